//! Exit codes and failures.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | success; also if a capture is damaged and a report of the rest was made |
//! | 1 | failure, a failed job of `heaptide worker`, growth above `heaptide diff --fail-above`, or a peak above `heaptide jobs --fail-above`; standard error has the reason |
//! | 2 | invalid arguments |
//! | 3 | nothing passes the filters; standard error lists what was recorded |
//! | 4 | `--fail-above` cannot judge: captures of different modes, an incomplete one, or jobs without a peak |
//!
//! `heaptide attach` and `heaptide detach` exit with 1 if they cannot enter the process, which is then unchanged.
//!
//! `heaptide run` and `heaptide record` exit with the code of the program. Like shells, `record` exits with 127 if the
//! program does not exist and 126 if it cannot be started. `run` exits with 125 if the capture or the report cannot be
//! written; the program is then not started.

use std::fmt;
use std::io;

use crate::Outcome;
use crate::messages::message;

pub(crate) const OK: i32 = 0;
pub(crate) const FAILED: i32 = 1;
pub(crate) const USAGE: i32 = 2;
pub(crate) const NO_MATCH: i32 = 3;
pub(crate) const NOT_COMPARABLE: i32 = 4;
/// The code of `env` and `timeout` if they fail before the program starts. `python/heaptide/commands/run.py` has the
/// same number.
pub(crate) const CANNOT_RECORD: i32 = 125;

/// The reason why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A message: what failed, on what, how to fix it.
    Failed(String),
    /// Invalid arguments.
    Usage(String),
    /// The filters leave nothing to report.
    NoMatch(String),
    /// `--fail-above` cannot judge the growth or the peaks.
    NotComparable(String),
    /// The program was not started, because its recording could not be written.
    CannotRecord(String),
    /// The program exited with this code, which becomes the exit code. Nothing is printed.
    Ended(i32),
    /// The reader of standard output has closed it. This is not an error.
    OutputClosed,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Failure::Failed(sentence)
            | Failure::Usage(sentence)
            | Failure::NoMatch(sentence)
            | Failure::NotComparable(sentence)
            | Failure::CannotRecord(sentence) => f.write_str(sentence),
            Failure::Ended(code) => write!(f, "the program exited with {code}"),
            Failure::OutputClosed => f.write_str("the output was closed"),
        }
    }
}

impl Failure {
    pub(crate) fn failed(sentence: impl fmt::Display) -> Failure {
        Failure::Failed(sentence.to_string())
    }

    pub(crate) fn no_match(sentence: impl fmt::Display) -> Failure {
        Failure::NoMatch(sentence.to_string())
    }

    /// Returns the failure of a write to `what`.
    pub(crate) fn writing(what: impl fmt::Display, error: &io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::OutputClosed;
        }
        Failure::Failed(format!(
            "cannot write {what} ({error}): check the folder and the disk space"
        ))
    }

    pub(crate) fn report(self) -> Outcome {
        match self {
            Failure::Failed(sentence) => {
                message!("{sentence}");
                Outcome::Exit(FAILED)
            }
            Failure::Usage(sentence) => {
                message!("{sentence}");
                Outcome::Exit(USAGE)
            }
            Failure::NoMatch(sentence) => {
                message!("{sentence}");
                Outcome::Exit(NO_MATCH)
            }
            Failure::NotComparable(sentence) => {
                message!("{sentence}");
                Outcome::Exit(NOT_COMPARABLE)
            }
            Failure::CannotRecord(sentence) => {
                message!("{sentence}");
                Outcome::Exit(CANNOT_RECORD)
            }
            Failure::Ended(code) => Outcome::Exit(code),
            Failure::OutputClosed => Outcome::Exit(OK),
        }
    }
}
