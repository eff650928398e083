//! The subcommands, one file each. A new one is a file, a line in the module list and a line in [`ALL`].

pub mod attach;
pub mod ctl;
pub mod detach;
pub mod diff;
pub mod flamegraph;
pub mod heap;
pub mod launch;
pub mod lines;
pub mod list;
pub mod live;
pub mod parse;
pub mod peak;
pub mod plot;
pub mod record;
pub mod rm;
pub mod run;
pub mod serve;
pub mod stats;
pub mod summary;
pub mod symbols;
pub mod table;
pub mod timeline;
pub mod transform;
pub mod tree;
pub mod worker;

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
        name: lines::NAME,
        arguments: lines::arguments,
        // Only a table from a capture is made here; a program to watch becomes a plan.
        run: |_| Ok(()),
    },
    Subcommand {
        name: live::NAME,
        arguments: live::arguments,
        run: live::run,
    },
    Subcommand {
        name: attach::NAME,
        arguments: attach::arguments,
        run: attach::run,
    },
    Subcommand {
        name: detach::NAME,
        arguments: detach::arguments,
        run: detach::run,
    },
    Subcommand {
        name: serve::NAME,
        arguments: serve::arguments,
        // As above.
        run: |_| Ok(()),
    },
    Subcommand {
        name: worker::NAME,
        arguments: worker::arguments,
        // As above.
        run: |_| Ok(()),
    },
    Subcommand {
        name: "ctl",
        arguments: ctl::arguments,
        run: ctl::run,
    },
    Subcommand {
        name: "heap",
        arguments: heap::arguments,
        run: heap::run,
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
        name: "timeline",
        arguments: timeline::arguments,
        run: timeline::run,
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
        name: "symbols",
        arguments: symbols::arguments,
        run: symbols::run,
    },
    Subcommand {
        name: "parse",
        arguments: parse::arguments,
        run: parse::run,
    },
    Subcommand {
        name: record::NAME,
        arguments: record::arguments,
        run: record::run,
    },
    Subcommand {
        name: launch::NAME,
        arguments: launch::arguments,
        run: launch::run,
    },
    Subcommand {
        name: "plot",
        arguments: plot::arguments,
        run: plot::run,
    },
    Subcommand {
        name: "peak",
        arguments: peak::arguments,
        run: peak::run,
    },
    Subcommand {
        name: "list",
        arguments: list::arguments,
        run: list::run,
    },
    Subcommand {
        name: "rm",
        arguments: rm::arguments,
        run: rm::run,
    },
    Subcommand {
        name: "clean",
        arguments: rm::clean_arguments,
        run: rm::clean,
    },
];
