//! The census: the number of objects of each type, and their bytes.

use heaptide_capture::heap::TypeInfo;

use super::count::Sums;
use super::types::TypeEntry;

/// Objects of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfType {
    pub info: TypeInfo,
    pub objects: u64,
    /// Including buffers that belong to the objects.
    pub bytes: u64,
}

/// All objects of a process by type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// In the order in which the walk found them, without types that have no instances.
    pub types: Vec<OfType>,
    /// How long the program was paused.
    pub paused_ns: u64,
    /// Bytes that the walk needed.
    pub walker_bytes: u64,
    /// One sentence for each part that could not be read.
    pub notes: Vec<String>,
}

pub(super) fn of_types(types: Vec<TypeEntry>, sums: &Sums) -> Vec<OfType> {
    types
        .into_iter()
        .zip(&sums.of_types)
        .filter(|(_, sum)| sum.objects > 0)
        .map(|(entry, sum)| OfType {
            info: entry.info,
            objects: sum.objects,
            bytes: sum.bytes,
        })
        .collect()
}
