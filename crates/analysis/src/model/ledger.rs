//! The parts of one process's resident memory at the end.

use super::finding::Number;

/// The parts add up to `resident_bytes`. `not_resident_bytes` is not a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    pub pid: u32,
    pub resident_bytes: u64,
    /// Blocks of Python's own allocators, if these were recorded.
    pub python_bytes: u64,
    /// Anonymous mappings. Unless Python's own allocators were recorded, most of this is their arenas.
    pub mapped_bytes: u64,
    /// Blocks of libc.
    pub native_bytes: u64,
    /// Blocks of libc from before the recording, and libc's overhead per block.
    pub earlier_bytes: u64,
    pub libc_free_bytes: u64,
    /// Whether `libc_free_bytes` was measured. Otherwise libc may have more free memory, and an unknown part of it is
    /// resident.
    pub is_libc_free_measured: bool,
    /// Resident pages of files and of shared memory.
    pub files_bytes: u64,
    pub own_bytes: u64,
    /// The part of the resident size that no other field explains.
    pub unexplained_bytes: u64,
    /// Live blocks that cannot be resident, because more was allocated than is resident: they were never touched, or are
    /// swapped out.
    pub not_resident_bytes: u64,
}

impl Ledger {
    /// The numbers by their JSON keys.
    pub fn numbers(&self) -> Vec<(&'static str, Number)> {
        vec![
            ("pid", self.pid.into()),
            ("resident_bytes", self.resident_bytes.into()),
            ("python_bytes", self.python_bytes.into()),
            ("mapped_bytes", self.mapped_bytes.into()),
            ("native_bytes", self.native_bytes.into()),
            ("earlier_bytes", self.earlier_bytes.into()),
            ("libc_free_bytes", self.libc_free_bytes.into()),
            ("files_bytes", self.files_bytes.into()),
            ("own_bytes", self.own_bytes.into()),
            ("unexplained_bytes", self.unexplained_bytes.into()),
            ("not_resident_bytes", self.not_resident_bytes.into()),
        ]
    }
}
