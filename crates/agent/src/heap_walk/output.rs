//! The output of a walk. For a snapshot it is columns, in the order in which objects were found; for a census it is sums
//! ([`super::count`]).

use std::collections::HashMap;

use heaptide_capture::heap::{Label, MAX_OBJECTS};

use super::column::Column;
use super::prefetch::FETCH_OBJECT;
use super::visited::Handle;
use super::walk::{Full, Walk};
use crate::cpython::references::Object;

/// Larger sizes are stored in a separate map; four bytes are enough for the others.
const LARGE: u32 = u32::MAX;

/// Facts of an object that was scanned.
pub struct Facts {
    pub type_number: u32,
    pub bytes: u64,
    /// Bytes of the object that `sys.getsizeof` does not count.
    pub extra: u64,
    /// The usual value of `extra` for this type.
    pub usual_extra: u64,
    pub flags: u8,
}

/// The result that a walk builds. Methods that return a `bool` return `false` if there is no memory left.
pub trait Output: Sized {
    /// Whether the output needs references and their labels.
    const REFERENCES: bool;

    /// Notes that the walk met an object, perhaps not for the first time.
    fn meet(&mut self, handle: Handle, object: Object, new: bool) -> bool;

    /// Records a reference of the current object.
    fn reference(&mut self, target: Handle, label: Label) -> bool;

    /// Makes an object the current one. The object was visited but not passed to `meet`, so it is never scanned. The caller
    /// then records its references and its facts.
    fn begin_with(&mut self, handle: Handle) -> bool;

    /// Records the facts of the current object.
    fn end(&mut self, facts: Facts) -> bool;

    /// Scans all objects that were found and not scanned yet.
    fn run(walk: &mut Walk<'_, Self>) -> Result<(), Full>;

    /// Adds an object that the collector reports, and scans some, so that the list of found objects stays short. The
    /// collector's lists do not change meanwhile: a scan neither creates nor frees objects.
    fn collected(walk: &mut Walk<'_, Self>, object: Object) -> bool;
}

/// Columns for a snapshot, in the order in which objects were found.
pub struct Columns {
    pub handles: Column<Handle>,
    pub(super) n_scanned: usize,
    pub types: Column<u32>,
    sizes: Column<u32>,
    large_sizes: HashMap<usize, u64>,
    /// `extra` of the few objects for which it differs from the usual value of their type.
    unusual_extras: HashMap<usize, u64>,
    pub flags: Column<u8>,
    /// Position of the first reference of each object.
    pub starts: Column<u32>,
    pub targets: Column<Handle>,
    pub labels: Column<u32>,
}

impl Columns {
    pub fn new() -> Columns {
        Columns {
            handles: Column::new(),
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

    pub fn size(&self, position: usize) -> u64 {
        match self.sizes.get(position) {
            None => 0,
            Some(&LARGE) => self.large_sizes.get(&position).copied().unwrap_or(0),
            Some(size) => u64::from(*size),
        }
    }

    /// Returns `extra` of an object whose type has this usual value.
    pub fn extra(&self, position: usize, usual: u64) -> u64 {
        self.unusual_extras.get(&position).copied().unwrap_or(usual)
    }

    /// Returns the positions of an object's references.
    #[inline(always)]
    pub fn references(&self, position: usize) -> std::ops::Range<usize> {
        let start = self.starts.get(position).map_or(0, |start| *start as usize);
        let next = self.starts.get(position + 1);
        start..next.map_or(self.targets.len(), |end| *end as usize)
    }

    /// Returns the bytes of the columns that have an entry for each object.
    pub fn bytes(&self) -> usize {
        self.handles.bytes()
            + self.types.bytes()
            + self.sizes.bytes()
            + self.flags.bytes()
            + self.starts.bytes()
    }

    #[inline(always)]
    fn append(&mut self, handle: Handle) -> bool {
        self.handles.len() < MAX_OBJECTS && self.handles.push(handle)
    }

    /// Notes that the scan of an object begins; `false` if there is no memory left.
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
    fn meet(&mut self, handle: Handle, _: Object, new: bool) -> bool {
        !new || self.append(handle)
    }

    #[inline(always)]
    fn reference(&mut self, target: Handle, label: Label) -> bool {
        self.targets.push(target) && self.labels.push(label.to_word())
    }

    fn begin_with(&mut self, handle: Handle) -> bool {
        self.n_scanned += 1;
        self.append(handle) && self.begin()
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
    fn collected(walk: &mut Walk<'_, Columns>, object: Object) -> bool {
        walk.add(object);
        // The last few are still being prefetched.
        walk.n_left() <= FETCH_OBJECT || walk.run_in_order(FETCH_OBJECT).is_ok()
    }
}
