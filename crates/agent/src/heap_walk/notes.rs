//! What a walk writes down: everything for a snapshot, or sums for a census.

use std::collections::HashMap;

use heaptide_capture::heap::Label;

use super::column::Column;
use super::marks::Place;

/// Sizes from here on are kept apart: a column of four bytes is enough for the others.
const LARGE: u32 = u32::MAX;

/// What is known of an object that was looked through.
pub struct Facts {
    pub type_number: u32,
    pub bytes: u64,
    /// Bytes beside the object that `sys.getsizeof` does not see.
    pub extra: u64,
    /// What objects of its type have of them, but for a few.
    pub usual_extra: u64,
    pub flags: u8,
}

/// Every method gives `false` when there is no memory left.
pub trait Notes {
    /// Whether references and how they are called are wanted.
    const REFERENCES: bool;

    /// An object is about to be looked through.
    fn begin(&mut self) -> bool;

    fn reference(&mut self, target: Place, label: Label) -> bool;

    fn end(&mut self, facts: Facts) -> bool;
}

/// Columns for a snapshot, in the order in which objects were found.
pub struct Columns {
    pub types: Column<u32>,
    sizes: Column<u32>,
    large_sizes: HashMap<usize, u64>,
    /// Of the few objects that have other bytes beside them than those of their type have.
    unusual_extras: HashMap<usize, u64>,
    pub flags: Column<u8>,
    /// Where the references of each object begin.
    pub starts: Column<u32>,
    pub targets: Column<Place>,
    pub labels: Column<u32>,
}

impl Columns {
    pub fn new() -> Columns {
        Columns {
            types: Column::new(),
            sizes: Column::new(),
            large_sizes: HashMap::new(),
            unusual_extras: HashMap::new(),
            flags: Column::new(),
            starts: Column::new(),
            targets: Column::new(),
            labels: Column::new(),
        }
    }

    pub fn size(&self, found: usize) -> u64 {
        match self.sizes.get(found) {
            None => 0,
            Some(&LARGE) => self.large_sizes.get(&found).copied().unwrap_or(0),
            Some(size) => u64::from(*size),
        }
    }

    /// Bytes beside an object whose type usually has so many.
    pub fn extra(&self, found: usize, usual: u64) -> u64 {
        self.unusual_extras.get(&found).copied().unwrap_or(usual)
    }

    /// Places of an object's references.
    #[inline(always)]
    pub fn references(&self, found: usize) -> std::ops::Range<usize> {
        let start = self.starts.get(found).map_or(0, |start| *start as usize);
        let next = self.starts.get(found + 1);
        start..next.map_or(self.targets.len(), |end| *end as usize)
    }

    /// Bytes of the columns that have an entry for each object.
    pub fn bytes(&self) -> usize {
        self.types.bytes() + self.sizes.bytes() + self.flags.bytes() + self.starts.bytes()
    }
}

impl Notes for Columns {
    const REFERENCES: bool = true;

    #[inline(always)]
    fn begin(&mut self) -> bool {
        match u32::try_from(self.targets.len()) {
            Ok(start) => self.starts.push(start),
            Err(_) => false,
        }
    }

    #[inline(always)]
    fn reference(&mut self, target: Place, label: Label) -> bool {
        self.targets.push(target) && self.labels.push(label.to_word())
    }

    #[inline(always)]
    fn end(&mut self, facts: Facts) -> bool {
        let size = match u32::try_from(facts.bytes) {
            Ok(size) if size < LARGE => size,
            _ => {
                self.large_sizes.insert(self.sizes.len(), facts.bytes);
                LARGE
            }
        };
        if facts.extra != facts.usual_extra {
            self.unusual_extras.insert(self.flags.len(), facts.extra);
        }
        self.types.push(facts.type_number) && self.sizes.push(size) && self.flags.push(facts.flags)
    }
}

/// How many objects of each type, and their bytes.
#[derive(Default)]
pub struct Sums {
    /// In the order of the walk's types.
    pub of_types: Vec<Sum>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub objects: u64,
    pub bytes: u64,
}

impl Notes for Sums {
    const REFERENCES: bool = false;

    #[inline(always)]
    fn begin(&mut self) -> bool {
        true
    }

    #[inline(always)]
    fn reference(&mut self, _: Place, _: Label) -> bool {
        true
    }

    #[inline(always)]
    fn end(&mut self, facts: Facts) -> bool {
        let at = facts.type_number as usize;
        if at >= self.of_types.len() {
            self.of_types.resize(at + 1, Sum::default());
        }
        let sum = &mut self.of_types[at];
        sum.objects += 1;
        sum.bytes += facts.bytes + facts.extra;
        true
    }
}
