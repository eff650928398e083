//! Options of memray's commands that have no meaning in Heaptide. They are accepted, so that command lines written for memray
//! work, and are not in the help. A new one gets a row in `docs/coming-from/memray-code.md`.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction};

/// Heaptide packs captures while it records.
pub(crate) fn compression() -> [Arg; 2] {
    [
        ignored("compress-on-exit").conflicts_with("no-compress"),
        ignored("no-compress"),
    ]
}

/// Captures need no file system with special features.
pub(crate) fn buffering() -> Arg {
    ignored("buffered-file-io")
}

/// Attaching needs no debugger, and always reports why it failed.
pub(crate) fn debugger() -> [Arg; 2] {
    [
        Arg::new("method")
            .long("method")
            .value_name("METHOD")
            .value_parser(PossibleValuesParser::new([
                "auto",
                "sys.remote_exec",
                "gdb",
                "lldb",
            ]))
            .hide(true),
        ignored("verbose").short('v'),
    ]
}

/// Pages load nothing from the network.
pub(crate) fn assets() -> Arg {
    ignored("no-web")
}

/// A page always shows memory over time, and users choose the interval in the page.
pub(crate) fn time() -> [Arg; 2] {
    [
        ignored("temporal").conflicts_with_all(["temporary", "temporary_threshold"]),
        Arg::new("max-memory-records")
            .long("max-memory-records")
            .value_name("N")
            .value_parser(clap::value_parser!(i64))
            .allow_negative_numbers(true)
            .hide(true),
    ]
}

fn ignored(name: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .hide(true)
}
