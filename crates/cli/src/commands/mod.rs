//! The subcommands, one file each. To add one, add a file, its line in the module list and its line in [`ALL`].

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

use crate::Outcome;
use crate::command_line::CommandLine;
use crate::exit::Failure;

pub struct Subcommand {
    pub name: &'static str,
    pub arguments: fn() -> Command,
    pub run: fn(&ArgMatches, CommandLine) -> Result<Outcome, Failure>,
}

/// A command whose work is complete when it returns.
macro_rules! complete {
    ($name:expr, $arguments:path, $run:path) => {
        $crate::commands::Subcommand {
            name: $name,
            arguments: $arguments,
            run: |matches, _| $run(matches).map(|()| $crate::Outcome::Exit($crate::exit::OK)),
        }
    };
}
pub(crate) use complete;

/// A command that also needs the whole command line, or leaves a program to its caller.
const fn other(
    name: &'static str,
    arguments: fn() -> Command,
    run: fn(&ArgMatches, CommandLine) -> Result<Outcome, Failure>,
) -> Subcommand {
    Subcommand {
        name,
        arguments,
        run,
    }
}

/// All subcommands, in the order of the help.
pub const ALL: &[Subcommand] = &[
    other(run::NAME, run::arguments, run::run),
    other(lines::NAME, lines::arguments, lines::run),
    complete!(live::NAME, live::arguments, live::run),
    complete!(attach::NAME, attach::arguments, attach::run),
    complete!(detach::NAME, detach::arguments, detach::run),
    other(serve::NAME, serve::arguments, serve::run),
    other(worker::NAME, worker::arguments, worker::run),
    complete!("ctl", ctl::arguments, ctl::run),
    other("heap", heap::arguments, heap::run),
    complete!("flamegraph", flamegraph::arguments, flamegraph::run),
    complete!("table", table::arguments, table::run),
    complete!("stats", stats::arguments, stats::run),
    complete!("summary", summary::arguments, summary::run),
    complete!("tree", tree::arguments, tree::run),
    complete!("timeline", timeline::arguments, timeline::run),
    complete!("diff", diff::arguments, diff::run),
    complete!("transform", transform::arguments, transform::run),
    complete!("symbols", symbols::arguments, symbols::run),
    complete!("parse", parse::arguments, parse::run),
    complete!(record::NAME, record::arguments, record::run),
    complete!(launch::NAME, launch::arguments, launch::run),
    complete!("plot", plot::arguments, plot::run),
    complete!("peak", peak::arguments, peak::run),
    complete!("list", list::arguments, list::run),
    complete!("rm", rm::arguments, rm::run),
    complete!("clean", rm::clean_arguments, rm::clean),
];
