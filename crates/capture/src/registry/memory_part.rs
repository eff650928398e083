//! Parts of a process's memory, recorded when recording begins and ends.

use crate::numbered::numbered;

numbered! {
    /// A part of the process's memory that is not the sum of its blocks.
    pub enum MemoryPart {
        /// Resident at the end: private memory, pages of files, memory shared with other processes.
        Anonymous = 1,
        Files = 2,
        SharedMemory = 3,
        /// Bytes that libc has allocated, and free bytes that it keeps: address space, which need not be resident.
        LibcInUse = 4,
        LibcFree = 5,
        /// The resident part of the capture, which is in `Files` or, in a file system in memory, in `SharedMemory`. In
        /// captures without `OwnHeap` it is the address space of the capture instead.
        OwnMapped = 6,
        /// Resident at the end and shared with another process.
        SharedPages = 7,
        /// The part of `SharedPages` that is not an unmodified page of a file.
        SharedAnonymous = 8,
        /// Anonymous memory resident when recording began.
        AnonymousAtStart = 9,
        /// Heaptide's own memory at the end, without the capture.
        OwnHeap = 10,
        /// The part of `LibcFree` that is certainly resident.
        LibcFreeResident = 11,
        /// Heaptide's own memory, without the capture, when the resident size was largest.
        OwnAtResidentPeak = 12,
    }
}
