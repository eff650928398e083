//! `heaptide man`: the manual page of a command, from the same declarations as its help.

use clap::{Arg, ArgMatches, Command};
use clap_mangen::Man;

use crate::exit::Failure;
use crate::output::Output;

pub(crate) fn arguments() -> Command {
    Command::new("man")
        .about("Print the manual page of a command")
        .after_help(
            "Examples:\n  \
             heaptide man run | man -l -                                 read a page\n  \
             heaptide man stats >~/.local/share/man/man1/heaptide-stats.1",
        )
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .num_args(0..=2)
                .help("command, for example run or heap types [default: heaptide itself]"),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let mut command = crate::command();
    command.build();
    let mut name = "heaptide".to_owned();
    for word in matches.get_many::<String>("command").into_iter().flatten() {
        let Some(found) = command.find_subcommand(word) else {
            return Err(Failure::Usage(format!(
                "there is no command {word}: see heaptide --help"
            )));
        };
        command = found.clone();
        name = format!("{name}-{word}");
    }
    let mut page = Vec::new();
    let rendered = Man::new(command.name(name)).render(&mut page);
    rendered.map_err(|error| Failure::writing("the manual page", &error))?;
    let mut output = Output::exact();
    output.write(|out| out.write_all(&page))?;
    output.finish()
}
