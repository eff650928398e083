//! Prints one line when the recorded program replaces itself by another program, because no exit handler runs then.
//!
//! Runs on: the thread that calls exec. Allocates: never. Locks: never. During fork/exit: a child is another process and prints
//! nothing.

use std::ffi::{CStr, c_char, c_int};
use std::io::IoSlice;
use std::sync::OnceLock;

use crate::hooks::real;
use crate::session;

static LINE: OnceLock<Line> = OnceLock::new();

struct Line {
    /// The process that prints the line. A child has a separate capture.
    pid: u32,
    before_name: String,
    after_name: String,
}

/// Sets the line, once per process: the text before and after the name of the new program.
pub fn announce(before: &str, after: &str) {
    let _ = LINE.set(Line {
        pid: std::process::id(),
        before_name: format!("heaptide: {before} "),
        after_name: format!("{after}\n"),
    });
}

/// The hook of `execv`.
pub(crate) unsafe extern "C" fn execv(path: *const c_char, words: *const *const c_char) -> c_int {
    // SAFETY: the program called the function with this path.
    unsafe { print(path) };
    // SAFETY: this is the function's hook.
    unsafe { real::execv.get()(path, words) }
}

/// The hook of `execve`.
pub(crate) unsafe extern "C" fn execve(
    path: *const c_char,
    words: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the program called the function with this path.
    unsafe { print(path) };
    // SAFETY: this is the function's hook.
    unsafe { real::execve.get()(path, words, environment) }
}

/// Prints the line, unless the call will fail: a search along PATH tries many files.
///
/// # Safety
/// `path` is a valid argument of `access`.
unsafe fn print(path: *const c_char) {
    let Some(line) = LINE.get() else {
        return;
    };
    if !session::is_active() || std::process::id() != line.pid {
        return;
    }
    // SAFETY: as the caller promises; the path is a string if `access` finds a file.
    let name = unsafe {
        if libc::access(path, libc::X_OK) != 0 {
            return;
        }
        CStr::from_ptr(path)
    };
    // A name must not control the terminal.
    let is_plain = !name.to_bytes().iter().any(u8::is_ascii_control);
    let name = if is_plain { name } else { c"another program" };
    let parts = [
        line.before_name.as_bytes(),
        name.to_bytes(),
        line.after_name.as_bytes(),
    ]
    .map(IoSlice::new);
    // A failed write cannot be reported anywhere.
    // SAFETY: an `IoSlice` has the layout of an `iovec`, and the slices live until the call returns.
    unsafe { libc::writev(2, parts.as_ptr().cast(), parts.len() as c_int) };
}
