//! Examples in the help of the commands that are used most.

use clap::Command;

type Example = (&'static str, &'static str);

const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "run",
        &[
            ("heaptide run job.py --its-own options", "record a script"),
            (
                "heaptide run --open -m package.job",
                "record a module and open its flame graph",
            ),
            (
                "heaptide run --objects job.py",
                "also record every Python object",
            ),
            (
                "heaptide run --sample -q -m service",
                "record a service at low cost",
            ),
            (
                "heaptide run --follow-fork pool.py",
                "also record child processes",
            ),
        ],
    ),
    (
        "stats",
        &[
            ("heaptide stats", "show the newest capture of this folder"),
            (
                "heaptide stats --leaks job.tide",
                "show memory that was never freed",
            ),
            (
                "heaptide stats job.tide job.tide.*",
                "show a program with its children",
            ),
            (
                "heaptide stats --json job.tide",
                "print all numbers for a script",
            ),
        ],
    ),
    (
        "tree",
        &[
            ("heaptide tree", "browse the newest capture"),
            (
                "heaptide tree --leaks job.tide",
                "browse memory that was never freed",
            ),
            (
                "heaptide tree --plain --threshold 5 job.tide",
                "print calls above 5%",
            ),
        ],
    ),
    (
        "summary",
        &[
            (
                "heaptide summary",
                "list the functions of the newest capture",
            ),
            ("heaptide summary --by file job.tide", "one row per file"),
            (
                "heaptide summary -s 3 -r 20 job.tide",
                "the 20 functions that allocate most",
            ),
        ],
    ),
    (
        "flamegraph",
        &[
            ("heaptide flamegraph", "make a page of the newest capture"),
            (
                "heaptide flamegraph --leaks -o leaks.html job.tide",
                "begin with leaked memory",
            ),
            (
                "heaptide flamegraph --from 10s --to 1m job.tide",
                "only this interval",
            ),
        ],
    ),
    (
        "table",
        &[
            ("heaptide table", "make a page of the newest capture"),
            (
                "heaptide table --leaks -f -o leaks.html job.tide",
                "begin with leaked memory",
            ),
        ],
    ),
    (
        "timeline",
        &[
            ("heaptide timeline", "make a page of the newest capture"),
            (
                "heaptide timeline job.tide job.tide.*",
                "all processes on one time axis",
            ),
        ],
    ),
    (
        "transform",
        &[
            (
                "heaptide transform speedscope job.tide",
                "write a file for speedscope",
            ),
            ("heaptide transform csv -o - job.tide", "print a table"),
            (
                "heaptide transform pprof --leaks job.tide",
                "leaked memory for pprof",
            ),
        ],
    ),
    (
        "lines",
        &[
            (
                "heaptide lines job.py",
                "run a program and measure its @profile functions",
            ),
            ("heaptide lines --from job.tide", "the lines of a capture"),
            (
                "heaptide lines --from job.tide --function load",
                "only one function",
            ),
        ],
    ),
    (
        "plot",
        &[
            ("heaptide plot", "draw the newest timeline in the terminal"),
            ("heaptide plot -o memory.html job.timeline", "make a page"),
            (
                "heaptide plot --slope -w 10,60 job.timeline",
                "show the trend from 10 s to 60 s",
            ),
        ],
    ),
];

/// Adds the examples of the command called `name` to the end of its help.
pub(crate) fn add(name: &str, command: Command) -> Command {
    let Some((_, examples)) = EXAMPLES.iter().find(|(known, _)| *known == name) else {
        return command;
    };
    let width = examples
        .iter()
        .map(|(line, _)| line.len())
        .max()
        .unwrap_or(0);
    let mut text = "Examples:".to_owned();
    for (line, what) in *examples {
        text += &format!("\n  {line:width$}   {what}");
    }
    if let Some(end) = command.get_after_help() {
        text = format!("{text}\n\n{end}");
    }
    command.after_help(text)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::invocation::command_line::CommandLine;

    #[test]
    fn examples_are_valid_command_lines_of_their_command() {
        for (name, examples) in EXAMPLES {
            for (line, _) in *examples {
                let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
                assert_eq!(words[1], **name, "{line}");
                let mut command = crate::command();
                let line_parts = CommandLine::split(words, &command);
                let parsed = command.try_get_matches_from_mut(&line_parts.own);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }

    #[test]
    fn examples_fit_into_a_line() {
        for (name, _) in EXAMPLES {
            let command = add(name, Command::new("x"));
            let text = command
                .get_after_help()
                .map_or(String::new(), ToString::to_string);
            for line in text.lines() {
                assert!(line.chars().count() <= 100, "{line}");
            }
        }
    }
}
