//! How this command was called, to call it again in other processes, and the interpreter that belongs to it.

use std::ffi::OsString;
use std::path::Path;

use heaptide_procfs as procfs;

/// The words in front of the subcommand: `heaptide`, or an interpreter with its options and `-m heaptide`.
///
/// The path of the running executable would not do: in a virtual environment it is the interpreter outside.
pub(crate) fn command(subcommand: &str) -> Vec<OsString> {
    let words = procfs::arguments("self").unwrap_or_default().into_iter();
    let before: Vec<OsString> = words.take_while(|word| word != subcommand).collect();
    if before.is_empty() {
        return vec!["heaptide".into()];
    }
    before
}

/// The Python that this command runs in, as it was called; else the one on the path.
pub(crate) fn interpreter(subcommand: &str) -> OsString {
    let first = command(subcommand).swap_remove(0);
    let name = Path::new(&first).file_name().unwrap_or_default();
    if name.to_string_lossy().starts_with("python") {
        first
    } else {
        "python3".into()
    }
}
