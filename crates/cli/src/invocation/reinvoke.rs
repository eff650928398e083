//! The words that started this command, to start it again in other processes.

use std::ffi::OsString;
use std::path::Path;

use heaptide_procfs as procfs;

/// Returns the words before the subcommand: `heaptide`, or an interpreter with its options and `-m heaptide`.
///
/// The path of the running executable is not enough: in a virtual environment it is the base interpreter.
pub(crate) fn command(subcommand: &str) -> Vec<OsString> {
    let words = procfs::arguments("self").unwrap_or_default().into_iter();
    let before: Vec<OsString> = words.take_while(|word| word != subcommand).collect();
    if before.is_empty() {
        return vec!["heaptide".into()];
    }
    before
}

/// Returns the Python that runs this command, or `python3`.
pub(crate) fn interpreter(subcommand: &str) -> OsString {
    let first = command(subcommand).swap_remove(0);
    let name = Path::new(&first).file_name().unwrap_or_default();
    if name.to_string_lossy().starts_with("python") {
        first
    } else {
        "python3".into()
    }
}
