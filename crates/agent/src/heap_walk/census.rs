//! How many objects of each type there are, and their bytes: what a walk finds that writes down nothing else, for a look
//! that costs next to nothing.

use heaptide_capture::heap::TypeInfo;

use super::count::Sums;
use super::types::TypeEntry;

/// Objects of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfType {
    pub info: TypeInfo,
    pub objects: u64,
    /// With buffers that belong to them.
    pub bytes: u64,
}

/// What a process is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// In the order of finding; types that are objects themselves and have no instances are left out.
    pub types: Vec<OfType>,
    /// How long the program stood still.
    pub stood_still_ns: u64,
    /// Bytes that the walk itself needed.
    pub walker_bytes: u64,
    /// What could not be looked at, a sentence each.
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
