//! Command lines as text.

use heaptide_procfs as procfs;

/// Returns the command line of a process, joined as mprof joins it; empty for a kernel thread.
pub fn command_of(pid: u32) -> Option<String> {
    let words = procfs::arguments(pid).ok()?.into_iter();
    Some(join(words.map(|word| word.to_string_lossy().into_owned())))
}

/// Joins words with blanks. Words that contain a blank get single quotes.
pub fn join(words: impl Iterator<Item = String>) -> String {
    let quoted = words.map(|word| {
        if word.contains([' ', '\t']) {
            format!("'{word}'")
        } else {
            word
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}
