//! Lines for the user outside a report: messages on standard error, and short answers on standard output.
//!
//! Both escape control characters and line feeds, because the paths and names in them are untrusted. A closed stream is
//! not an error.

use std::fmt;
use std::io::{self, Write};

use heaptide_capture::reason::without_error_numbers;
use heaptide_report::text::controls::escape_line;

/// Prints `heaptide: ` and one line on standard error.
macro_rules! message {
    ($($part:tt)*) => { $crate::messages::print_message(format_args!($($part)*)) };
}

/// Prints one line on standard output.
macro_rules! answer {
    ($($part:tt)*) => { $crate::messages::print_answer(format_args!($($part)*)) };
}

pub(crate) use {answer, message};

pub(crate) fn print_message(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "heaptide: {}", shown(text));
}

pub(crate) fn print_answer(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{}", shown(text));
}

fn shown(text: fmt::Arguments<'_>) -> String {
    escape_line(&without_error_numbers(&text.to_string())).into_owned()
}
