//! The reasons why an interpreter is not supported, each with one message for the user.

use std::fmt;

/// The supported interpreters, for messages. The tables cover exactly these versions.
pub const SUPPORTED: &str = "CPython 3.10 to 3.15";

/// The reason why no Python stacks can be read in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// The build is not for a 64-bit little-endian machine.
    Platform,
    /// The process does not export a symbol that every CPython exports.
    MissingSymbol { name: &'static str },
    /// The interpreter's version text does not start with two numbers.
    VersionText,
    /// No table describes this version.
    Version { major: u8, minor: u8 },
    /// An alpha or beta: their layouts still change.
    PreRelease { major: u8, minor: u8 },
    /// A build without the GIL.
    FreeThreaded,
    /// The debug offsets of 3.13 and later contradict themselves, or the known layout of the version.
    DebugOffsets { what: &'static str },
    /// An object of the interpreter has another size or header than in unmodified builds of the version.
    ForeignBuild { what: &'static str },
    /// The calling thread has no thread state.
    NoThreadState,
    /// The calling thread runs in a sub-interpreter.
    SubInterpreter,
    /// The self-check could not run.
    CheckFailed { what: &'static str },
    /// Values read by offsets differ from those that the interpreter reports.
    LayoutMismatch { what: &'static str },
}

impl Unsupported {
    /// Returns whether recording must not start. For other reasons, Heaptide records without Python stacks.
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
                "cannot read Python stacks: only 64-bit little-endian machines are \
                 supported; use x86-64 or aarch64",
            ),
            Self::MissingSymbol { name } => write!(
                f,
                "cannot read the stacks of this Python: it does not export {name}; use {SUPPORTED}"
            ),
            Self::VersionText => {
                write!(f, "cannot read the version of this Python; use {SUPPORTED}")
            }
            Self::Version { major, minor } => write!(
                f,
                "Python {major}.{minor} is not supported; use {SUPPORTED} or a newer heaptide"
            ),
            Self::PreRelease { major, minor } => write!(
                f,
                "this Python is an alpha or beta of {major}.{minor}, whose \
                 internal layout still changes; use a release"
            ),
            Self::FreeThreaded => f.write_str(
                "free-threaded builds of Python are not supported; use \
                 the build with the GIL of the same version",
            ),
            Self::DebugOffsets { what } => write!(
                f,
                "this Python publishes invalid debug offsets ({what}); use an unmodified {SUPPORTED}"
            ),
            Self::ForeignBuild { what } => write!(
                f,
                "this build of Python is not supported ({what}); use an unmodified {SUPPORTED}"
            ),
            Self::NoThreadState => f.write_str(
                "the calling thread is unknown to Python; start recording \
                 from a thread that runs Python code",
            ),
            Self::SubInterpreter => f.write_str(
                "cannot start recording from a sub-interpreter; start \
                 it from the main interpreter",
            ),
            Self::CheckFailed { what } => write!(
                f,
                "cannot check Python's internal layout ({what}); \
                 free some resources and try again"
            ),
            Self::LayoutMismatch { what } => write!(
                f,
                "the internal layout of this Python is not that of its version \
                 ({what} differs); use an unmodified {SUPPORTED}"
            ),
        }
    }
}

impl std::error::Error for Unsupported {}
