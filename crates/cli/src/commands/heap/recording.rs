//! Allocation stacks of objects, from the recording that ran when the snapshot was taken.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, value_parser};
use heaptide_analysis::heap::allocations;
use heaptide_capture::heap::HeapSnapshot;

use crate::exit::Failure;
use crate::messages::message;

pub(super) fn argument() -> Arg {
    Arg::new("recording")
        .long("recording")
        .value_name("CAPTURE")
        .value_parser(value_parser!(PathBuf))
        .help("capture of `heaptide run --objects` with the allocation stacks [default: the one named in the snapshot]")
}

/// Adds allocation stacks to the snapshot, if its recording can be found. It is an error if a recording named by the user
/// does not match. If the one named in the snapshot does not match and recorded objects, a line on standard error
/// reports it.
pub(super) fn join(
    matches: &ArgMatches,
    snapshot: &mut HeapSnapshot,
    path: &Path,
) -> Result<(), Failure> {
    if snapshot.stacks.is_some() {
        return Ok(());
    }
    if let Some(named) = matches.get_one::<PathBuf>("recording") {
        let stacks = allocations::join_file(snapshot, named);
        snapshot.stacks = Some(stacks.map_err(Failure::failed)?);
        return Ok(());
    }
    let Some(position) = snapshot.header.recording.clone() else {
        return Ok(());
    };
    let joined = match allocations::recording_of(&snapshot.header, path) {
        Some(recording) => allocations::join_file(snapshot, &recording),
        None => Err(format!(
            "the recording {} is missing, so allocation stacks are unknown: name it with --recording",
            position.path
        )),
    };
    match joined {
        Ok(stacks) => snapshot.stacks = Some(stacks),
        Err(sentence) if position.objects => {
            message!("{}: {sentence}", path.display());
        }
        // A recording without Python's allocators has no stacks of objects, so nothing is missing.
        Err(_) => {}
    }
    Ok(())
}
