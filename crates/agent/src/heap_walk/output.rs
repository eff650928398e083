//! What a walk writes down for a snapshot: columns, in the order in which objects were found. What one writes down for a
//! census are sums ([`super::count`]).

use std::collections::HashMap;

use heaptide_capture::heap::{Label, MAX_OBJECTS};

use super::column::Column;
use super::prefetch::FETCH_OBJECT;
use super::visited::Handle;
use super::walk::{Full, Walk};

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

/// What a walk is for. Methods that give a truth value give `false` when there is no memory left.
pub trait Output: Sized {
    /// Whether references and how they are called are wanted.
    const REFERENCES: bool;

    /// An object was met, perhaps for the first time.
    fn meet(&mut self, handle: Handle, address: usize, new: bool) -> bool;

    /// The object at hand refers to another.
    fn reference(&mut self, target: Handle, label: Label) -> bool;

    /// Nothing is left to look through, and this object is at hand, which nobody met: whoever has it says what it refers
    /// to, and then its facts.
    fn begin_with(&mut self, handle: Handle) -> bool;

    /// What is known of the object at hand.
    fn end(&mut self, facts: Facts) -> bool;

    /// Looks through everything that was found and not looked through yet.
    fn run(walk: &mut Walk<'_, Self>) -> Result<(), Full>;

    /// The collector shows an object; `false` if there is no memory for more. So that what was found does not pile up,
    /// some of it is looked through at once: the collector's lists stay as they are, looking makes and frees nothing.
    fn collected(walk: &mut Walk<'_, Self>, address: usize) -> bool;
}

/// Columns for a snapshot, in the order in which objects were found.
pub struct Columns {
    /// Every object.
    pub found: Column<Handle>,
    pub(super) n_scanned: usize,
    pub types: Column<u32>,
    sizes: Column<u32>,
    large_sizes: HashMap<usize, u64>,
    /// Of the few objects that have other bytes beside them than those of their type have.
    unusual_extras: HashMap<usize, u64>,
    pub flags: Column<u8>,
    /// Where the references of each object begin.
    pub starts: Column<u32>,
    pub targets: Column<Handle>,
    pub labels: Column<u32>,
}

impl Columns {
    pub fn new() -> Columns {
        Columns {
            found: Column::new(),
            n_scanned: 0,
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
        self.found.bytes()
            + self.types.bytes()
            + self.sizes.bytes()
            + self.flags.bytes()
            + self.starts.bytes()
    }
}

impl Columns {
    /// An object is about to be looked through; `false` when there is no memory left.
    #[inline(always)]
    pub fn begin(&mut self) -> bool {
        match u32::try_from(self.targets.len()) {
            Ok(start) => self.starts.push(start),
            Err(_) => false,
        }
    }
}

impl Output for Columns {
    const REFERENCES: bool = true;

    #[inline(always)]
    fn meet(&mut self, handle: Handle, _: usize, new: bool) -> bool {
        !new || self.found.len() < MAX_OBJECTS && self.found.push(handle)
    }

    #[inline(always)]
    fn reference(&mut self, target: Handle, label: Label) -> bool {
        self.targets.push(target) && self.labels.push(label.to_word())
    }

    fn begin_with(&mut self, handle: Handle) -> bool {
        self.n_scanned += 1;
        self.meet(handle, 0, true) && self.begin()
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

    fn run(walk: &mut Walk<'_, Columns>) -> Result<(), Full> {
        walk.run_in_order(0)
    }

    #[inline(always)]
    fn collected(walk: &mut Walk<'_, Columns>, address: usize) -> bool {
        walk.add(address);
        // The last few are still on their way into the processor's caches.
        walk.n_left() <= FETCH_OBJECT || walk.run_in_order(FETCH_OBJECT).is_ok()
    }
}
