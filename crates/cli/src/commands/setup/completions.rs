//! `heaptide completions`: a script that completes commands and options in a shell.

use clap::{Arg, ArgMatches, Command};
use clap_complete::Shell;

use crate::exit::Failure;
use crate::output::Output;

pub(crate) fn arguments() -> Command {
    Command::new("completions")
        .about("Print a completion script for a shell")
        .after_help(
            "Examples:\n  \
             heaptide completions bash >~/.local/share/bash-completion/completions/heaptide\n  \
             heaptide completions zsh >~/.zfunc/_heaptide      with fpath+=~/.zfunc in .zshrc\n  \
             heaptide completions fish >~/.config/fish/completions/heaptide.fish",
        )
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(["bash", "zsh", "fish"])
                .help("shell"),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let shell = matches.get_one::<String>("shell").map(String::as_str);
    let shell = match shell {
        Some("zsh") => Shell::Zsh,
        Some("fish") => Shell::Fish,
        _ => Shell::Bash,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::command(), "heaptide", &mut script);
    let mut output = Output::exact();
    output.write(|out| out.write_all(&script))?;
    output.finish()
}
