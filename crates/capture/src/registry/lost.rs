//! The reasons why events are missing from a capture.

use crate::numbered::numbered;

numbered! {
    /// The reason why an event is missing from the capture or incomplete.
    pub enum Lost {
        /// Writing to the file failed.
        WriteFailed = 1,
        /// A signal handler allocated while its thread was recording.
        Reentered = 2,
        /// There was no memory for the thread's buffer.
        NoThreadState = 3,
        /// The stack was deeper than is recorded; its outermost frames are missing.
        DeepStack = 4,
        /// A code object could not be read; its frame shows as unknown.
        UnreadableCode = 5,
        /// The table that follows sampled blocks until they are freed was full.
        SampleTableFull = 6,
        /// The native frames could not be followed to the end of the stack; the outer ones are missing.
        CutNativeStack = 7,
    }
}

impl Lost {
    /// Describes the missing events for a report.
    pub fn describe(self) -> &'static str {
        match self {
            Lost::WriteFailed => "events that could not be written to the file",
            Lost::Reentered => "allocations made by a signal handler during recording",
            Lost::NoThreadState => "events of threads for which there was no memory left",
            Lost::DeepStack => "stacks cut because they were too deep",
            Lost::UnreadableCode => "frames whose code object could not be read",
            Lost::SampleTableFull => "samples dropped because too many sampled blocks were alive",
            Lost::CutNativeStack => "native stacks that could not be followed to their end",
        }
    }
}
