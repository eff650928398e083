//! Where objects were allocated: the recording that ran when the snapshot was taken, found by itself or named.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, value_parser};
use heaptide_analysis::heap::allocations;
use heaptide_capture::heap::HeapSnapshot;

use crate::exit::Failure;

pub(super) fn argument() -> Arg {
    Arg::new("recording")
        .long("recording")
        .value_name("CAPTURE")
        .value_parser(value_parser!(PathBuf))
        .help("the capture of `heaptide run --objects` during which the snapshot was taken: says where objects were allocated [default: the one the snapshot names]")
}

/// Gives the snapshot's objects the stacks that allocated them, if their recording can be found. One that was named must fit;
/// about one that the snapshot itself names there is a line on standard error if it does not.
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
        Some(found) => allocations::join_file(snapshot, &found),
        None => Err(format!(
            "the recording that ran then, {}, is gone, so it is not known where objects were allocated: name it with --recording",
            position.path
        )),
    };
    match joined {
        Ok(stacks) => snapshot.stacks = Some(stacks),
        Err(sentence) if position.objects => {
            eprintln!("heaptide: {}: {sentence}", path.display());
        }
        // Of a recording without Python's objects nothing was promised.
        Err(_) => {}
    }
    Ok(())
}
