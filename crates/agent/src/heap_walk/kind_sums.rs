//! Sums of the reachable objects of a walk by kind: by type, and for dicts also by the owner's type.
//!
//! A table of kinds needs no more than these sums, so the walk is not assembled into a snapshot for it.

use heaptide_capture::heap::{EdgeType, Label, Objects};

use super::count::Sum;
use super::walk::WalkResult;

const NONE: u32 = u32::MAX;

/// The reachable objects of each type, in the order of the walk's types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindSums {
    /// All objects of the type.
    pub of_types: Vec<Sum>,
    /// Dicts that are the `__dict__` of an object of the type.
    pub dicts_of: Vec<Sum>,
    /// The number of the type `dict`.
    pub dict: Option<usize>,
}

impl KindSums {
    pub(super) fn new(walked: &WalkResult) -> KindSums {
        let columns = &walked.columns;
        let n_types = walked.types.len();
        let dict = walked.types.iter().position(|entry| entry.is_dict());
        let owners = owner_positions(walked);
        let mut of_types = vec![Sum::default(); n_types];
        let mut dicts_of = vec![Sum::default(); n_types];
        let facts = columns.types.iter().zip(columns.flags.iter());
        for (position, (&number, &flags)) in facts.enumerate() {
            if flags & Objects::UNREACHABLE != 0 {
                continue;
            }
            let number = number as usize;
            let mut bytes = columns.size(position);
            if flags & Objects::INLINE_VALUES != 0 {
                bytes += columns.extra(position, walked.types[number].values_bytes);
            }
            of_types[number].add(bytes);
            if Some(number) == dict && !owners.is_empty() {
                let of = walked.numbering.number(columns.handles[position]) as usize;
                if let Some(&owner) = owners.get(of).filter(|owner| **owner != NONE) {
                    dicts_of[columns.types[owner as usize] as usize].add(bytes);
                }
            }
        }
        KindSums {
            of_types,
            dicts_of,
            dict,
        }
    }
}

/// Returns, for each object in the order of addresses, the position of its owner if the object is a `__dict__`. A dict of
/// several objects belongs to the one with the lowest address. Empty if there are no such dicts.
fn owner_positions(walked: &WalkResult) -> Vec<u32> {
    let columns = &walked.columns;
    let mut owners = Vec::new();
    let mut owner = 0;
    for (at, label) in columns.labels.iter().enumerate() {
        if Label::from_word(*label).map(Label::edge_type) != Some(EdgeType::DictOf) {
            continue;
        }
        // The references are in the order of the objects that have them.
        while columns.references(owner).end <= at {
            owner += 1;
        }
        if owners.is_empty() {
            owners = vec![NONE; columns.handles.len()];
        }
        let number = |position: usize| walked.numbering.number(columns.handles[position]);
        let target = walked.numbering.number(columns.targets[at]) as usize;
        if let Some(known) = owners.get_mut(target) {
            if *known == NONE || number(*known as usize) > number(owner) {
                *known = owner as u32;
            }
        }
    }
    owners
}
