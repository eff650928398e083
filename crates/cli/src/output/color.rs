//! Whether to print colours: the option `--color`, the environment and the terminal.

use std::sync::atomic::{AtomicU8, Ordering};

use clap::{Arg, ArgMatches};

const CHOICES: [&str; 3] = ["auto", "always", "never"];
const AUTO: u8 = 0;
const ALWAYS: u8 = 1;

/// The index of the choice in [`CHOICES`], for the whole process.
static CHOICE: AtomicU8 = AtomicU8::new(AUTO);

pub(crate) fn argument() -> Arg {
    Arg::new("color")
        .long("color")
        .value_name("WHEN")
        .value_parser(CHOICES)
        .global(true)
        // Before `--help`, which is the last one.
        .display_order(998)
        .help("colours: auto (in a terminal), always or never [default: auto]")
        .hide_possible_values(true)
}

/// Reads the option; without it, the environment decides.
pub(crate) fn choose(matches: &ArgMatches) {
    let given = matches.try_get_one::<String>("color").ok().flatten();
    let choice = given.and_then(|given| CHOICES.iter().position(|known| known == given));
    if let Some(choice) = choice {
        CHOICE.store(choice as u8, Ordering::Relaxed);
    }
}

/// Whether to print colours to an output. NO_COLOR and the terminal `dumb` refuse them.
pub(crate) fn is_wanted(is_terminal: bool) -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    match CHOICE.load(Ordering::Relaxed) {
        AUTO => {
            let is_dumb = set("TERM").is_none_or(|name| name == "dumb");
            is_terminal && set("NO_COLOR").is_none() && !is_dumb
        }
        choice => choice == ALWAYS,
    }
}
