//! Command lines as text.

use heaptide_procfs as procfs;

/// Replaces the words of a command line that must not be stored.
pub type Hide = fn(Vec<String>) -> Vec<String>;

/// Returns the command line of a process, joined as mprof joins it; empty for a kernel thread.
pub fn command_of(pid: u32, hide: Hide) -> Option<String> {
    let words = procfs::arguments(pid).ok()?.into_iter();
    let words = words.map(|word| word.to_string_lossy().into_owned());
    Some(join(hide(words.collect())))
}

/// Joins words with blanks. Words that contain a blank get single quotes.
pub fn join(words: Vec<String>) -> String {
    let quoted = words.into_iter().map(|word| {
        if word.contains([' ', '\t']) {
            format!("'{word}'")
        } else {
            word
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}
