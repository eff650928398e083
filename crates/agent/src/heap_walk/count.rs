//! How a census looks through what it finds: objects of a type together. What is known of the type is asked for once, the
//! processor takes the same way through the code many times over, and what one object keeps beside it is fetched while
//! another is looked at. In which order objects come does not matter, nor what led to them.

use heaptide_capture::heap::Label;

use super::column::Column;
use super::output::{Facts, Output};
use super::prefetch::{FETCH_OBJECT, fetch_object};
use super::sizes::bytes_of_all;
use super::types::{Scan, Special};
use super::visited::{Handle, Refused};
use super::walk::{Full, Walk};
use crate::cpython::heap_layout::object;

/// Objects of a type that are looked through together.
const BATCH: usize = 32;
/// Types whose objects wait for others at the same time; a power of two.
const BATCHES: usize = 256;
/// So many objects have been sorted before they are forgotten.
const FORGET_FROM: usize = 1 << 12;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub objects: u64,
    pub bytes: u64,
}

/// Objects of one type that wait for others of it.
#[derive(Clone, Copy)]
struct Batch {
    /// Of the type; 0 as long as there is none.
    type_address: usize,
    type_number: u32,
    len: u32,
    objects: [usize; BATCH],
}

/// How many objects of each type, and their bytes.
pub struct Sums {
    /// In the order of the walk's types.
    pub of_types: Vec<Sum>,
    /// Objects that were found, those that were sorted into batches first.
    found: Column<usize>,
    n_sorted: usize,
    batches: Column<Batch>,
}

impl Sums {
    pub fn new() -> Option<Sums> {
        Some(Sums {
            of_types: Vec::new(),
            found: Column::new(),
            n_sorted: 0,
            batches: Column::zeroed(BATCHES)?,
        })
    }

    pub fn bytes(&self) -> usize {
        self.found.bytes() + self.batches.bytes()
    }

    /// The next objects to be sorted, but for so many.
    fn next(&mut self, n_left: usize) -> Option<([usize; BATCH], usize)> {
        let waiting = self.found.get(self.n_sorted..)?;
        let n_now = waiting.len().checked_sub(n_left)?.min(BATCH);
        let mut now = [0; BATCH];
        now[..n_now].copy_from_slice(&waiting[..n_now]);
        self.n_sorted += n_now;
        if self.n_sorted >= FORGET_FROM && self.n_sorted * 2 >= self.found.len() {
            self.found.remove_first(self.n_sorted);
            self.n_sorted = 0;
        }
        (n_now > 0).then_some((now, n_now))
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
    fn meet(&mut self, _: Handle, address: usize, new: bool) -> bool {
        fetch_object(address);
        self.found.push_if(address, new)
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
    fn collected(walk: &mut Walk<'_, Sums>, address: usize) -> bool {
        // It need not be fetched first: the collector's link in front of it has just been read.
        match walk.visited.mark(address) {
            Ok((_, true)) => walk.sort_in(address),
            Ok((_, false)) | Err(Refused::NoObject) => {}
            Err(Refused::Full) => walk.failed = true,
        }
        walk.output.found.len() - walk.output.n_sorted < BATCH + FETCH_OBJECT
            || walk.sort_until(FETCH_OBJECT).is_ok()
    }
}

impl Walk<'_, Sums> {
    /// Puts what was found to others of its type, but for so many, and looks through those that are enough.
    fn sort_until(&mut self, n_left: usize) -> Result<(), Full> {
        while !self.failed {
            let Some((objects, n_objects)) = self.output.next(n_left) else {
                return Ok(());
            };
            for at in &objects[..n_objects] {
                self.sort_in(*at);
            }
        }
        Err(Full)
    }

    #[inline(always)]
    fn sort_in(&mut self, at: usize) {
        let type_address = self.reader.type_of(at);
        let number = (type_address >> 4 ^ type_address >> 13) % BATCHES;
        let batch = &mut self.output.batches[number];
        if batch.type_address != type_address {
            return self.begin_batch(number, type_address, at);
        }
        batch.objects[batch.len as usize % BATCH] = at;
        batch.len += 1;
        if batch.len as usize == BATCH {
            self.scan_batch(number);
        }
    }

    #[inline(never)]
    fn begin_batch(&mut self, number: usize, type_address: usize, at: usize) {
        self.scan_batch(number);
        let type_number = self.known_type(type_address);
        let batch = &mut self.output.batches[number];
        batch.type_address = type_address;
        batch.type_number = type_number;
        batch.objects[0] = at;
        batch.len = 1;
    }

    /// Looks through the batches that are not full; `false` if there are none.
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
        let (type_number, objects) = (batch.type_number, batch.objects);
        let n_objects = std::mem::take(&mut batch.len) as usize;
        if n_objects > 0 {
            self.scan_objects(type_number, &objects[..n_objects.min(BATCH)]);
        }
    }

    #[inline(always)]
    fn scan_objects(&mut self, type_number: u32, objects: &[usize]) {
        let reader = self.reader;
        let entry = &self.types[type_number as usize];
        let (scan, special, own) = (entry.scan, entry.special, entry.own);
        let flags = entry.flags;
        for at in objects {
            self.fetch_content(*at, scan, flags);
        }
        let mut bytes = bytes_of_all(reader, entry, objects);
        match scan {
            Scan::Leaf => {}
            Scan::List => {
                for at in objects {
                    self.items(reader.word(at + object::LIST_ITEMS), reader.size(*at));
                }
            }
            Scan::Tuple => {
                for at in objects {
                    self.items(at + self.tuple_items, reader.size(*at));
                }
            }
            Scan::Dict => {
                for at in objects {
                    self.dict_entries(*at);
                }
            }
            Scan::Type => {
                for at in objects {
                    let entry = &self.types[type_number as usize];
                    let collected = reader.is_collected(*at, entry.flags, entry.is_gc);
                    self.type_references(type_number, *at, collected);
                }
            }
            Scan::Fields => {
                for at in objects {
                    self.fields(type_number, *at);
                }
            }
            Scan::Instance => bytes += self.instances(type_number, objects),
            Scan::Traverse => {
                for at in objects {
                    let entry = &self.types[type_number as usize];
                    let collected = reader.is_collected(*at, entry.flags, entry.is_gc);
                    // What is not tracked may not be whole yet, unless the interpreter itself made it.
                    if collected && (own || reader.is_tracked(*at)) {
                        bytes += self.traverse_object(type_number, *at);
                    }
                }
            }
        }
        for at in objects {
            match special {
                Special::Weak => {
                    if let Some(handle) = self.visited.find(*at as u64) {
                        self.weak_reference(handle, *at);
                    }
                }
                Special::Array => self.array(*at),
                _ => break,
            }
        }
        let objects = objects.len() as u64;
        self.output.add(type_number, Sum { objects, bytes });
    }
}
