//! Why an interpreter is not supported, as one sentence for the user each.

use std::fmt;

/// The reason for which no Python stacks can be read in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// The build is not for a 64-bit little-endian machine.
    Platform,
    /// The process does not export a symbol that every CPython exports.
    MissingSymbol { name: &'static str },
    /// The interpreter's version text does not begin with two numbers.
    VersionText,
    /// The version is older than the oldest or newer than the newest that has a table.
    Version { major: u8, minor: u8 },
    /// An alpha or beta, whose layouts still change from one to the next.
    PreRelease { major: u8, minor: u8 },
    /// A build without the GIL.
    FreeThreaded,
    /// The debug offsets of 3.13 and later contradict themselves or what is known of the version.
    DebugOffsets { what: &'static str },
    /// An object of the interpreter does not have the size or header that its version has.
    ForeignBuild { what: &'static str },
    /// The calling thread has no thread state.
    NoThreadState,
    /// The calling thread runs in a sub-interpreter.
    SubInterpreter,
    /// The self-check could not run.
    CheckFailed { what: &'static str },
    /// What the offsets show differs from what the interpreter says.
    LayoutMismatch { what: &'static str },
}

impl Unsupported {
    /// Recording itself must not begin; the other reasons only cost the Python stacks.
    pub fn forbids_recording(&self) -> bool {
        matches!(
            self,
            Self::FreeThreaded | Self::SubInterpreter | Self::MissingSymbol { .. }
        )
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Platform => f.write_str(
                "heaptide reads Python stacks on 64-bit little-endian \
                 machines only; run it on x86-64 or aarch64",
            ),
            Self::MissingSymbol { name } => write!(
                f,
                "this Python does not export {name}, so its stacks cannot be \
                 read; use a CPython 3.10 to 3.15"
            ),
            Self::VersionText => f.write_str(
                "this Python does not tell its version in a form heaptide \
                 knows; use a CPython 3.10 to 3.15",
            ),
            Self::Version { major, minor } => write!(
                f,
                "heaptide does not know Python {major}.{minor}; use a \
                 CPython 3.10 to 3.15, or a newer heaptide if there is one"
            ),
            Self::PreRelease { major, minor } => write!(
                f,
                "this Python is an alpha or beta of {major}.{minor}, whose \
                 inner layout still changes; use a release of it"
            ),
            Self::FreeThreaded => f.write_str(
                "free-threaded builds of Python are not supported yet; use \
                 the build with the GIL of the same version",
            ),
            Self::DebugOffsets { what } => write!(
                f,
                "this Python publishes debug offsets that cannot be right \
                 ({what}); use an unmodified CPython 3.10 to 3.15"
            ),
            Self::ForeignBuild { what } => write!(
                f,
                "this Python was built in a way heaptide does not know \
                 ({what}); use an unmodified CPython 3.10 to 3.15"
            ),
            Self::NoThreadState => f.write_str(
                "the calling thread is not known to Python; start recording \
                 from a thread that runs Python code",
            ),
            Self::SubInterpreter => f.write_str(
                "recording cannot be started from a sub-interpreter; start \
                 it from the main interpreter",
            ),
            Self::CheckFailed { what } => write!(
                f,
                "the check of Python's inner layout could not run ({what}); \
                 free some resources and try again"
            ),
            Self::LayoutMismatch { what } => write!(
                f,
                "this Python does not look inside as its version should \
                 ({what} differs); use an unmodified CPython 3.10 to 3.15"
            ),
        }
    }
}

impl std::error::Error for Unsupported {}
