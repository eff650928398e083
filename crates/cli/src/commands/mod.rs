//! The subcommands. To add one, add a file to the folder of its subject, its line in the folder's `mod.rs`, and here its
//! import and its entry in [`GROUPS`].

pub(crate) mod heap;
pub(crate) mod job_control;
pub(crate) mod recording;
pub(crate) mod reports;
pub(crate) mod setup;
pub(crate) mod timelines;

use clap::{ArgMatches, Command};

use crate::Outcome;
use crate::exit::Failure;
use crate::invocation::command_line::CommandLine;

use job_control::{ctl, jobs, serve, worker};
use recording::{attach, detach, lines, live, run};
use reports::{diff, pages, parse, stats, summary, symbols, transform, tree};
use setup::{compat, completions, doctor, man, version};
use timelines::{launch, list, peak, plot, record, rm};

pub(crate) struct Subcommand {
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

/// A command that also needs the whole command line, or whose program the caller runs.
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

/// Subcommands with a common heading in the help.
pub(crate) struct Group {
    pub heading: &'static str,
    pub commands: &'static [Subcommand],
}

/// All subcommands, in the order of the help.
pub(crate) const GROUPS: &[Group] = &[
    Group {
        heading: "Record",
        commands: &[
            other(run::NAME, run::arguments, run::run),
            complete!(attach::NAME, attach::arguments, attach::run),
            complete!(detach::NAME, detach::arguments, detach::run),
            complete!(live::NAME, live::arguments, live::run),
            other(lines::NAME, lines::arguments, lines::run),
        ],
    },
    Group {
        heading: "Report on a capture",
        commands: &[
            complete!("stats", stats::arguments, stats::run),
            complete!("flamegraph", pages::flamegraph_arguments, pages::flamegraph),
            complete!("tree", tree::arguments, tree::run),
            complete!("summary", summary::arguments, summary::run),
            complete!("table", pages::table_arguments, pages::table),
            complete!("timeline", pages::timeline_arguments, pages::timeline),
            complete!("diff", diff::arguments, diff::run),
            complete!("transform", transform::arguments, transform::run),
        ],
    },
    Group {
        heading: "Objects",
        commands: &[other("heap", heap::arguments, heap::run)],
    },
    Group {
        heading: "Over time",
        commands: &[
            complete!(record::NAME, record::arguments, record::run),
            complete!("plot", plot::arguments, plot::run),
            complete!("peak", peak::arguments, peak::run),
            complete!(launch::NAME, launch::arguments, launch::run),
        ],
    },
    Group {
        heading: "Serve and control",
        commands: &[
            complete!("jobs", jobs::arguments, jobs::run),
            other(serve::NAME, serve::arguments, serve::run),
            other(worker::NAME, worker::arguments, worker::run),
            complete!("ctl", ctl::arguments, ctl::run),
        ],
    },
    Group {
        heading: "More",
        commands: &[
            complete!("list", list::arguments, list::run),
            other("doctor", doctor::arguments, doctor::run),
            complete!("rm", rm::arguments, rm::run),
            complete!("clean", rm::clean_arguments, rm::clean),
            complete!("symbols", symbols::arguments, symbols::run),
            complete!("parse", parse::arguments, parse::run),
            complete!("compat", compat::arguments, compat::run),
            complete!("completions", completions::arguments, completions::run),
            complete!("man", man::arguments, man::run),
            complete!("version", version::arguments, version::run),
        ],
    },
];

pub(crate) fn all() -> impl Iterator<Item = &'static Subcommand> {
    GROUPS.iter().flat_map(|group| group.commands)
}
