//! The help of `heaptide` itself, with the commands in groups, and the messages of clap in plain words.

use std::io::{self, Write};

use clap::Command;
use clap::error::ErrorKind;
use heaptide_report::text::controls::escape;

use crate::Outcome;
use crate::commands::GROUPS;
use crate::exit;
use crate::invocation::fit;
use crate::options::layout;
use crate::output::color;

const ABOUT: &str = "Memory profiler for Python: every allocation at low cost";

const LONG_ABOUT: &str = "\
Memory profiler for Python: every allocation at low cost.

It answers four questions:
  where was memory allocated?   by call stack, at the peak or leaked
  when did it grow?             memory of every process over time
  what is it?                   Python objects by type, with retained size
  why is it still alive?        leak suspects, and paths from roots to objects";

const EXAMPLES: &str = "\
Examples:
  heaptide run job.py --its-own --options      record a program
  heaptide flamegraph                          make a page of the newest capture
  heaptide attach 4711                         record a running process
  heaptide heap take --pid 4711                take a heap snapshot

Run `heaptide help COMMAND` for the options of a command.";

const TEMPLATE: &str = "\
{before-help}{about-with-newline}
{usage-heading} {usage}{after-help}

Options:
{options}";

const NAME_CELLS: usize = 13;

/// Returns the command without its subcommands.
pub(crate) fn root() -> Command {
    Command::new("heaptide")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(format!("{}{EXAMPLES}", grouped()))
        .help_template(TEMPLATE)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(color::argument())
        .arg(layout::argument())
}

/// The names and descriptions of all commands, below the headings of their groups.
fn grouped() -> String {
    let mut text = String::new();
    for group in GROUPS {
        text += &format!("{}:\n", group.heading);
        for command in group.commands {
            let about = (command.arguments)();
            let about = about.get_about().map_or(String::new(), ToString::to_string);
            text += &format!("  {:NAME_CELLS$}{about}\n", command.name);
        }
        text.push('\n');
    }
    text
}

/// Prints a parse error. Help and version succeed; anything else is invalid usage.
pub(crate) fn explain(error: &clap::Error) -> Outcome {
    let text = fit::usage(&in_plain_words(&error.render().to_string()));
    let text = escape(&text);
    // A closed output is not an error.
    let _ = if error.use_stderr() {
        io::stderr().write_all(text.as_bytes())
    } else {
        io::stdout().write_all(text.as_bytes())
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Outcome::Exit(exit::OK),
        _ => Outcome::Exit(exit::USAGE),
    }
}

/// Replaces the messages of Rust's number parsers, which mean nothing to users.
pub(crate) fn in_plain_words(text: &str) -> String {
    let messages = [
        ("invalid digit found in string", "must be a whole number"),
        (
            "cannot parse integer from empty string",
            "must be a whole number",
        ),
        (
            "number too large to fit in target type",
            "the number is too large",
        ),
        (
            "number too small to fit in target type",
            "the number is too small",
        ),
        ("invalid float literal", "must be a number"),
    ];
    let replace = |text: String, (old, new): (&str, &str)| text.replace(old, new);
    messages.into_iter().fold(text.to_owned(), replace)
}
