//! What lists, tuples, dicts and arrays refer to, read where they keep it, and what a dict's entries are called.

use heaptide_capture::heap::{EdgeType, Label};

use super::output::Output;
use super::reader::Reader;
use super::sizes::{array, array_bytes};
use super::walk::Walk;

/// Elements of a list or tuple that are found at once.
const MANY: usize = 32;

impl<O: Output> Walk<'_, O> {
    /// Finds some more elements of a long list; `false` if there are none left. What a census has found is looked through
    /// while it is still in the processor's caches, so it does not find more than it can look at.
    pub(super) fn more_items(&mut self) -> bool {
        let Some((items, n_items)) = self.long.pop() else {
            return false;
        };
        let n_now = n_items.min(MANY);
        if n_now < n_items {
            self.failed |= !self.long.push((items + n_now * 8, n_items - n_now));
        }
        for index in 0..n_now {
            let target = self.reader.word(items + index * 8);
            self.edge(target, Label::new(EdgeType::Index, 0));
        }
        true
    }

    #[inline(always)]
    pub(super) fn items(&mut self, items: usize, n_items: usize) {
        if !O::REFERENCES && n_items > MANY {
            self.failed |= !self.long.push((items, n_items));
            return;
        }
        for index in 0..n_items {
            let target = self.reader.word(items + index * 8);
            self.edge(target, Label::new(EdgeType::Index, index as u32));
        }
    }

    /// The keys and values of a dict, named by the keys.
    #[inline(always)]
    pub(super) fn dict_entries(&mut self, at: usize) {
        let reader = self.reader;
        if !O::REFERENCES {
            reader.dict_entries(at, |key, value| {
                self.add(key);
                self.add(value);
            });
            return;
        }
        let mut position = 0;
        reader.dict_entries(at, |key, value| {
            let label = self.key_label(key, position);
            self.edge(key, Label::new(EdgeType::KeyOf, position));
            self.edge(value, label);
            position = position.saturating_add(1);
        });
    }

    #[inline(always)]
    pub(super) fn key_label(&mut self, key: usize, position: u32) -> Label {
        let reader = self.reader;
        let key_type = reader.type_of(key);
        if key_type == reader.known.unicode {
            return Label::new(EdgeType::Key, self.names.of_object(reader, key));
        }
        if key_type == reader.known.long {
            if let Some(number) = small_number(reader, key) {
                return Label::new(EdgeType::NumberKey, number);
            }
        }
        Label::new(EdgeType::Item, position)
    }

    /// References of an object that the collector does not follow, by the fields that are known of it.
    pub(super) fn fields(&mut self, type_number: u32, at: usize) {
        for position in 0..self.types[type_number as usize].fields.len() {
            let field = self.types[type_number as usize].fields[position];
            let target = self.reader.word(at + field.offset);
            self.edge(target, field.label);
        }
    }

    /// What a numpy array refers to: the collector does not follow arrays.
    pub(super) fn array(&mut self, at: usize) {
        let reader = self.reader;
        let internal = |name| Label::new(EdgeType::Internal, name);
        let description = reader.word(at + array::DESCRIPTION);
        self.edge(
            reader.word(at + array::BASE),
            internal(self.internal.array_base),
        );
        self.edge(description, internal(self.internal.dtype));
        let contiguous = reader.half(at + array::FLAGS) & array::CONTIGUOUS != 0;
        let data = reader.word(at + array::DATA);
        if description == 0 || data == 0 || !contiguous {
            return;
        }
        if reader.half(description + array::TYPE_NUMBER) == array::OBJECTS {
            if let Some(bytes) = array_bytes(reader, at) {
                self.items(data, bytes / 8);
            }
        }
    }
}

/// The value of a whole number that is neither negative nor large.
fn small_number(reader: &Reader, at: usize) -> Option<u32> {
    let size = reader.size(at);
    let n_digits = if reader.heap.tagged_numbers {
        // The two lowest bits are 0 for a positive number and 1 for zero.
        match size & 3 {
            0 => size >> 3,
            1 => 0,
            _ => return None,
        }
    } else {
        size
    };
    match n_digits {
        0 => Some(0),
        1 => Some(reader.half(at + 24)).filter(|number| *number <= Label::MAX_NUMBER),
        _ => None,
    }
}
