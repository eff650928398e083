//! How the command ends.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done; also if a capture was damaged and a report could be made of the rest |
//! | 1 | failed, or a job of `heaptide worker` did, or `heaptide diff --fail-above` found too much growth; one sentence on standard error says why |
//! | 2 | the arguments were not understood |
//! | 3 | nothing that was recorded passes the filters; one sentence says what there is |
//!
//! `heaptide attach` and `heaptide detach` end with 1 if the process was refused or could not be entered: it is as it was.
//!
//! `heaptide run` and `heaptide record` end with the exit code of the program they ran; `record` with 127 if the program
//! was not found and 126 if it could not be started, as shells do.

use std::fmt;
use std::io;

use crate::Outcome;

pub(crate) const OK: i32 = 0;
pub(crate) const FAILED: i32 = 1;
pub(crate) const USAGE: i32 = 2;
pub(crate) const NO_MATCH: i32 = 3;

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A sentence for the user: what happened, to which thing, what to do next.
    Failed(String),
    /// The arguments are not understood, or not together.
    Usage(String),
    /// The filters leave nothing to report.
    NoMatch(String),
    /// The program that was run ended with this code, which is ours; everything was said.
    Ended(i32),
    /// Whoever read our output has gone: nothing is wrong, and nothing is left to do.
    OutputClosed,
}

impl Failure {
    pub(crate) fn failed(sentence: impl fmt::Display) -> Failure {
        Failure::Failed(sentence.to_string())
    }

    pub(crate) fn no_match(sentence: impl fmt::Display) -> Failure {
        Failure::NoMatch(sentence.to_string())
    }

    /// Something could not be written to `what`.
    pub(crate) fn writing(what: impl fmt::Display, error: &io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::OutputClosed;
        }
        Failure::Failed(format!(
            "{what} cannot be written ({error}): check the folder and the space left"
        ))
    }

    pub(crate) fn report(self) -> Outcome {
        match self {
            Failure::Failed(sentence) => {
                eprintln!("heaptide: {sentence}");
                Outcome::Exit(FAILED)
            }
            Failure::Usage(sentence) => {
                eprintln!("heaptide: {sentence}");
                Outcome::Exit(USAGE)
            }
            Failure::NoMatch(sentence) => {
                eprintln!("heaptide: {sentence}");
                Outcome::Exit(NO_MATCH)
            }
            Failure::Ended(code) => Outcome::Exit(code),
            Failure::OutputClosed => Outcome::Exit(OK),
        }
    }
}
