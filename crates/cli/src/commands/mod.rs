//! The subcommands, one file each. A new one is a file, a line in the module list and a line in [`ALL`].

pub mod diff;
pub mod flamegraph;
pub mod parse;
pub mod run;
pub mod stats;
pub mod summary;
pub mod table;
pub mod transform;
pub mod tree;

use clap::{ArgMatches, Command};

use crate::exit::Failure;

pub struct Subcommand {
    pub name: &'static str,
    pub arguments: fn() -> Command,
    pub run: fn(&ArgMatches) -> Result<(), Failure>,
}

/// In the order in which help lists them.
pub const ALL: &[Subcommand] = &[
    Subcommand {
        name: run::NAME,
        arguments: run::arguments,
        // `run` needs an interpreter, which is not here: it becomes a plan instead.
        run: |_| Ok(()),
    },
    Subcommand {
        name: "flamegraph",
        arguments: flamegraph::arguments,
        run: flamegraph::run,
    },
    Subcommand {
        name: "table",
        arguments: table::arguments,
        run: table::run,
    },
    Subcommand {
        name: "stats",
        arguments: stats::arguments,
        run: stats::run,
    },
    Subcommand {
        name: "summary",
        arguments: summary::arguments,
        run: summary::run,
    },
    Subcommand {
        name: "tree",
        arguments: tree::arguments,
        run: tree::run,
    },
    Subcommand {
        name: "diff",
        arguments: diff::arguments,
        run: diff::run,
    },
    Subcommand {
        name: "transform",
        arguments: transform::arguments,
        run: transform::run,
    },
    Subcommand {
        name: "parse",
        arguments: parse::arguments,
        run: parse::run,
    },
];
