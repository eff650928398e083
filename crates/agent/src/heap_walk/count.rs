//! Scans objects for a census, in batches of one type.
//!
//! Batches are fast: the type is read once per batch, and the processor predicts most branches correctly. While one object
//! is scanned, the contents of another are prefetched. A census needs neither the order of objects nor their referrers.

use heaptide_capture::heap::Label;

use super::column::{Column, Zeroable};
use super::output::{Facts, Output};
use super::prefetch::{FETCH_OBJECT, fetch_object};
use super::sizes::bytes_of_all;
use super::types::{Scan, Special};
use super::visited::{Handle, Refused};
use super::walk::{Full, Walk};
use crate::cpython::offsets::object;
use crate::cpython::references::{Object, Type};

/// Objects of one type that are scanned together.
const BATCH: usize = 32;
/// Batches that are filled at the same time; a power of two.
const BATCHES: usize = 256;
/// Sorted objects are removed from the list when they are at least this many, and at least half of it.
const MIN_REMOVED: usize = 1 << 12;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub objects: u64,
    pub bytes: u64,
}

impl Sum {
    /// Adds one object.
    #[inline(always)]
    pub fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Objects of one type that wait to be scanned.
#[derive(Clone, Copy)]
struct Batch {
    /// 0 as long as the batch has no type.
    type_address: usize,
    type_number: u32,
    len: u32,
    /// The first `len` are addresses of objects of the type.
    addresses: [usize; BATCH],
}

// SAFETY: a batch of zeros has no type and no objects.
unsafe impl Zeroable for Batch {}

/// The number of objects of each type, and their bytes.
pub struct Sums {
    /// In the order of the walk's types.
    pub of_types: Vec<Sum>,
    /// Objects that were found; the first `n_sorted` were put into batches.
    objects: Column<Object>,
    n_sorted: usize,
    batches: Column<Batch>,
}

impl Sums {
    pub fn new() -> Option<Sums> {
        Some(Sums {
            of_types: Vec::new(),
            objects: Column::new(),
            n_sorted: 0,
            batches: Column::zeroed(BATCHES)?,
        })
    }

    pub fn bytes(&self) -> usize {
        self.objects.bytes() + self.batches.bytes()
    }

    /// Takes the next objects to sort, but leaves the last `n_left`.
    #[inline(always)]
    fn next(&mut self, n_left: usize) -> Option<([Object; BATCH], usize)> {
        let waiting = self.objects.get(self.n_sorted..)?;
        let n_taken = waiting.len().checked_sub(n_left)?.min(BATCH);
        let mut taken = [*waiting.first()?; BATCH];
        taken[..n_taken].copy_from_slice(&waiting[..n_taken]);
        self.n_sorted += n_taken;
        if self.n_sorted >= MIN_REMOVED && self.n_sorted * 2 >= self.objects.len() {
            self.objects.remove_first(self.n_sorted);
            self.n_sorted = 0;
        }
        (n_taken > 0).then_some((taken, n_taken))
    }

    fn add(&mut self, type_number: u32, sum: Sum) {
        let at = type_number as usize;
        if at >= self.of_types.len() {
            self.of_types.resize(at + 1, Sum::default());
        }
        self.of_types[at].objects += sum.objects;
        self.of_types[at].bytes += sum.bytes;
    }
}

impl Output for Sums {
    const REFERENCES: bool = false;

    #[inline(always)]
    fn meet(&mut self, _: Handle, object: Object, new: bool) -> bool {
        fetch_object(object);
        self.objects.push_if(object, new)
    }

    #[inline(always)]
    fn reference(&mut self, _: Handle, _: Label) -> bool {
        true
    }

    fn begin_with(&mut self, _: Handle) -> bool {
        true
    }

    fn end(&mut self, facts: Facts) -> bool {
        let bytes = facts.bytes + facts.extra;
        self.add(facts.type_number, Sum { objects: 1, bytes });
        true
    }

    fn run(walk: &mut Walk<'_, Sums>) -> Result<(), Full> {
        loop {
            walk.sort_until(0)?;
            if !walk.more_items() && !walk.scan_partial_batches() {
                return Ok(());
            }
        }
    }

    #[inline(always)]
    fn collected(walk: &mut Walk<'_, Sums>, object: Object) -> bool {
        // No prefetch is needed: the link before the object has just been read.
        match walk.visit(object) {
            Ok((_, true)) => walk.sort_in(object),
            Ok((_, false)) | Err(Refused::NoObject) => {}
            Err(Refused::Full) => walk.failed = true,
        }
        walk.output.objects.len() - walk.output.n_sorted < BATCH + FETCH_OBJECT
            || walk.sort_until(FETCH_OBJECT).is_ok()
    }
}

impl Walk<'_, Sums> {
    /// Puts all found objects but the last `n_left` into the batch of their type, and scans full batches.
    fn sort_until(&mut self, n_left: usize) -> Result<(), Full> {
        while !self.failed {
            let Some((objects, n_objects)) = self.output.next(n_left) else {
                return Ok(());
            };
            for object in &objects[..n_objects] {
                self.sort_in(*object);
            }
        }
        Err(Full)
    }

    #[inline(always)]
    fn sort_in(&mut self, object: Object) {
        let type_ = self.reader.type_of(object);
        let number = (type_.address() >> 4 ^ type_.address() >> 13) % BATCHES;
        let batch = &mut self.output.batches[number];
        if batch.type_address != type_.address() {
            return self.begin_batch(number, type_, object);
        }
        batch.addresses[batch.len as usize % BATCH] = object.address();
        batch.len += 1;
        if batch.len as usize == BATCH {
            self.scan_batch(number);
        }
    }

    #[inline(never)]
    fn begin_batch(&mut self, number: usize, type_: Type, object: Object) {
        self.scan_batch(number);
        let type_number = self.known_type(type_);
        let batch = &mut self.output.batches[number];
        batch.type_address = type_.address();
        batch.type_number = type_number;
        batch.addresses[0] = object.address();
        batch.len = 1;
    }

    /// Scans the batches that are not full; `false` if all are empty.
    fn scan_partial_batches(&mut self) -> bool {
        let mut any = false;
        for number in 0..BATCHES {
            any |= self.output.batches[number].len > 0;
            self.scan_batch(number);
        }
        any
    }

    #[inline(never)]
    fn scan_batch(&mut self, number: usize) {
        let batch = &mut self.output.batches[number];
        let (type_number, addresses) = (batch.type_number, batch.addresses);
        let n_objects = std::mem::take(&mut batch.len) as usize;
        if n_objects > 0 {
            // SAFETY: `sort_in` and `begin_batch` stored the first `len` addresses, all of objects of this type. Nothing
            // frees an object during the walk.
            unsafe {
                let objects = Object::list(&addresses[..n_objects.min(BATCH)]);
                self.scan_objects(type_number, objects);
            }
        }
    }

    /// # Safety
    /// `type_number` is that of the objects' type.
    #[inline(always)]
    unsafe fn scan_objects(&mut self, type_number: u32, objects: &[Object]) {
        let reader = self.reader;
        let entry = &self.types[type_number as usize];
        let (scan, special, is_static) = (entry.scan, entry.special, entry.is_static);
        let (flags, is_gc) = (entry.flags, entry.is_gc);
        for object in objects {
            // SAFETY: `scan` and `flags` are those of the object's type.
            unsafe { self.fetch_content(*object, scan, flags) };
        }
        // SAFETY: `entry` describes the type of the objects.
        let mut bytes = unsafe { bytes_of_all(reader, entry, objects) };
        // SAFETY: `scan` is that of the objects' type, so they are lists, dicts and so on. An object that is not tracked
        // may be incomplete, unless its type is static; only complete objects are traversed.
        unsafe {
            match scan {
                Scan::Leaf => {}
                Scan::List => {
                    for object in objects {
                        let items = reader.word(*object, object::LIST_ITEMS);
                        self.items(items, reader.size(*object));
                    }
                }
                Scan::Tuple => {
                    for object in objects {
                        let items = object.address() + self.tuple_items;
                        self.items(items, reader.size(*object));
                    }
                }
                Scan::Dict => {
                    for object in objects {
                        self.dict_entries(*object);
                    }
                }
                Scan::Type => {
                    for object in objects {
                        let collected = reader.is_collected(*object, flags, is_gc);
                        self.type_references(type_number, Type::from_object(*object), collected);
                    }
                }
                Scan::Fields => {
                    for object in objects {
                        self.fields(type_number, *object);
                    }
                }
                Scan::Instance => bytes += self.instances(type_number, objects),
                Scan::Traverse => {
                    for object in objects {
                        let collected = reader.is_collected(*object, flags, is_gc);
                        if collected && (is_static || reader.is_tracked(*object)) {
                            bytes += self.traverse_object(type_number, *object);
                        }
                    }
                }
            }
        }
        for object in objects {
            // SAFETY: `special` is that of the objects' type: a weak reference, or a numpy array.
            unsafe {
                match special {
                    Special::Weak => {
                        if let Some(handle) = self.handle_of(*object) {
                            self.weak_reference(handle, *object);
                        }
                    }
                    Special::Array => self.array(*object),
                    _ => break,
                }
            }
        }
        let objects = objects.len() as u64;
        self.output.add(type_number, Sum { objects, bytes });
    }
}
