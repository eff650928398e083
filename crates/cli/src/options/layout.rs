//! The hidden option `--layout`: commands and routes with another profiler's name print sizes in that profiler's format.

use clap::{Arg, ArgMatches};
use heaptide_report::units::{self, Layout};

pub(crate) fn argument() -> Arg {
    Arg::new("layout")
        .long("layout")
        .value_parser(["memray", "mprof"])
        .global(true)
        .hide(true)
}

pub(crate) fn choose(matches: &ArgMatches) {
    let given = matches.try_get_one::<String>("layout").ok().flatten();
    match given.map(String::as_str) {
        Some("memray") => units::use_layout(Layout::Memray),
        Some("mprof") => units::use_layout(Layout::Mprof),
        _ => {}
    }
}
