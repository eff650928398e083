//! Splits a command line that runs a program into Heaptide's arguments and the program.
//!
//! Everything after the script, module or code belongs to the program, including options, so the split happens before
//! parsing. The command's declaration defines which of Heaptide's options take a value.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use clap::{Arg, Command};

use crate::commands::recording::{live, run};
use crate::exit::Failure;
use crate::options::arguments::{CAPTURE, CODE, MODULE};

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandLine {
    /// Heaptide's name, subcommand and options.
    pub own: Vec<OsString>,
    /// The program and its arguments; empty for commands that run none.
    pub program: Vec<OsString>,
}

/// A program to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Script(PathBuf),
    Module(OsString),
    Code(OsString),
    /// `-`: the program is read from standard input.
    Stdin,
}

impl CommandLine {
    /// Splits `arguments` where the program begins. `command` declares all subcommands.
    pub(crate) fn split(mut arguments: Vec<OsString>, command: &Command) -> CommandLine {
        let is_word = |at: usize, word: &str| arguments.get(at).is_some_and(|given| given == word);
        if is_word(1, live::NAME) && is_word(2, "--") {
            // `live -- job.py` means `run --live job.py`.
            arguments[1] = run::NAME.into();
            arguments[2] = "--live".into();
        }
        let whole = |own| CommandLine {
            own,
            program: Vec::new(),
        };
        let globals = ValueOptions::globals(command);
        let mut at = 1;
        while let Some(Word::Option { takes_next }) =
            arguments.get(at).map(|word| globals.classify(word))
        {
            at += 1 + usize::from(takes_next);
        }
        let name = arguments.get(at);
        let subcommand = name.and_then(|name| command.find_subcommand(name));
        let Some(mut options) = subcommand.and_then(ValueOptions::of) else {
            return whole(arguments);
        };
        options.add(globals);
        at += 1;
        while let Some(argument) = arguments.get(at) {
            if options.names_captures(argument) {
                // `lines --from` reads captures instead of running a program.
                return whole(arguments);
            }
            match options.classify(argument) {
                Word::Option { takes_next: false } => at += 1,
                Word::Option { takes_next: true } => at += 2,
                Word::Target => break,
                // `-fqm module` becomes `-fq -m module`.
                Word::OptionsThenTarget { split } => {
                    let bytes = argument.as_bytes();
                    let options = OsStr::from_bytes(&bytes[..split]).to_owned();
                    let target = [b"-", &bytes[split..]].concat();
                    arguments[at] = OsString::from_vec(target);
                    arguments.insert(at, options);
                    at += 1;
                    break;
                }
            }
        }
        let program = arguments.split_off(at.min(arguments.len()));
        CommandLine {
            own: arguments,
            program,
        }
    }

    /// Returns the program and its arguments.
    pub(crate) fn target(self) -> Result<(Target, Vec<OsString>), Failure> {
        let mut words = self.program.into_iter();
        let first = words.next().ok_or_else(nothing_to_run)?;
        let target = match first.as_bytes() {
            b"--" => Target::Script(words.next().ok_or_else(nothing_to_run)?.into()),
            b"-" => Target::Stdin,
            [b'-', letter @ (b'm' | b'c'), attached @ ..] => {
                let value = match attached {
                    [] => words.next().ok_or_else(nothing_to_run)?,
                    attached => OsStr::from_bytes(attached).to_owned(),
                };
                if *letter == b'm' {
                    Target::Module(value)
                } else {
                    Target::Code(value)
                }
            }
            _ => Target::Script(first.into()),
        };
        Ok((target, words.collect()))
    }
}

pub(crate) fn nothing_to_run() -> Failure {
    Failure::Usage(
        "there is nothing to run: name a script, -m MODULE, -c CODE, or - for standard input"
            .into(),
    )
}

/// The options of a command that take the next word as their value.
struct ValueOptions {
    long: Vec<String>,
    short: Vec<char>,
    /// The option after which no program follows.
    capture: Option<String>,
}

enum Word {
    Option { takes_next: bool },
    OptionsThenTarget { split: usize },
    Target,
}

impl ValueOptions {
    /// `None` if the command runs no program.
    fn of(command: &Command) -> Option<ValueOptions> {
        let runs_program = command
            .get_arguments()
            .any(|argument| argument.get_id() == MODULE);
        runs_program.then(|| ValueOptions::among(command.get_arguments()))
    }

    /// The options that every command has.
    fn globals(command: &Command) -> ValueOptions {
        ValueOptions::among(command.get_arguments().filter(|it| it.is_global_set()))
    }

    fn among<'a>(arguments: impl Iterator<Item = &'a Arg>) -> ValueOptions {
        let mut options = ValueOptions {
            long: Vec::new(),
            short: Vec::new(),
            capture: None,
        };
        for argument in arguments {
            if argument.get_id() == CAPTURE {
                options.capture = argument.get_long().map(str::to_owned);
            }
            let is_target = [MODULE, CODE].contains(&argument.get_id().as_str());
            let takes_next = argument.get_action().takes_values()
                && !argument.is_require_equals_set()
                && argument.get_num_args().is_none_or(|n| n.max_values() > 0);
            if is_target || !takes_next {
                continue;
            }
            let aliases = argument.get_all_aliases().unwrap_or_default();
            let long = argument.get_long().into_iter().chain(aliases);
            options.long.extend(long.map(str::to_owned));
            options.short.extend(argument.get_short());
            options
                .short
                .extend(argument.get_all_short_aliases().unwrap_or_default());
        }
        options
    }

    fn add(&mut self, more: ValueOptions) {
        self.long.extend(more.long);
        self.short.extend(more.short);
    }

    /// Whether `word` is the option that names captures instead of a program.
    fn names_captures(&self, word: &OsStr) -> bool {
        let name = word.as_bytes().strip_prefix(b"--");
        let name = name.and_then(|name| name.split(|&byte| byte == b'=').next());
        self.capture.as_ref().map(String::as_bytes) == name && name.is_some()
    }

    fn classify(&self, word: &OsStr) -> Word {
        match word.as_bytes() {
            b"-" | b"--" => Word::Target,
            [b'-', b'-', name @ ..] => Word::Option {
                takes_next: self.long.iter().any(|long| long.as_bytes() == name),
            },
            [b'-', cluster @ ..] => {
                // A cluster of short options ends at the first letter that takes a value or begins the target.
                let has_value = |letter: u8| self.short.contains(&char::from(letter));
                let end = cluster
                    .iter()
                    .position(|&letter| matches!(letter, b'm' | b'c') || has_value(letter));
                match end {
                    Some(at) if has_value(cluster[at]) => Word::Option {
                        takes_next: at + 1 == cluster.len(),
                    },
                    Some(0) => Word::Target,
                    Some(at) => Word::OptionsThenTarget { split: at + 1 },
                    None => Word::Option { takes_next: false },
                }
            }
            _ => Word::Target,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> CommandLine {
        let words = std::iter::once("heaptide").chain(line.split(' '));
        CommandLine::split(words.map(OsString::from).collect(), &crate::command())
    }

    #[test]
    fn options_that_take_a_value_are_known_from_their_declaration() {
        let options = |name: &str| {
            let options = crate::command()
                .find_subcommand(name)
                .and_then(ValueOptions::of);
            options.map(|mut options| {
                options.long.sort();
                (options.long.join(" "), String::from_iter(options.short))
            })
        };
        let of_run = (
            "interval live-port output python report".to_owned(),
            "op".to_owned(),
        );
        assert_eq!(options("run"), Some(of_run));
        let of_lines = "backend columns exclude from function host html include job label num-functions output precision process thread";
        assert_eq!(
            options("lines").map(|options| options.0),
            Some(of_lines.to_owned())
        );
        assert_eq!(options("stats"), None);
    }

    #[test]
    fn options_without_a_separate_value_do_not_swallow_the_script() {
        for options in ["--sample", "--sample=1k", "--live-remote", "-q", "-ox.tide"] {
            let line = split(&format!("run {options} job.py 5"));
            assert_eq!(line.program, ["job.py", "5"], "{options}");
        }
        for options in [
            "--output x.tide",
            "-o x.tide",
            "--interval 5",
            "-fo x.tide",
            "--color never",
        ] {
            let line = split(&format!("run {options} job.py 5"));
            assert_eq!(line.program, ["job.py", "5"], "{options}");
        }
        for options in ["--color never", "--color=never"] {
            let line = split(&format!("{options} run job.py 5"));
            assert_eq!(line.program, ["job.py", "5"], "{options}");
        }
    }

    #[test]
    fn captures_of_lines_replace_the_program() {
        for line in [
            "lines --from a b --function f",
            "lines -n 3 --from=a b -n 2",
        ] {
            assert_eq!(split(line).program, Vec::<OsString>::new(), "{line}");
        }
        assert_eq!(
            split("lines job.py --from a").program,
            ["job.py", "--from", "a"]
        );
    }
}
