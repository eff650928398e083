//! References of lists, tuples, dicts and arrays, read from the objects, and the labels of a dict's entries.

use heaptide_capture::heap::{EdgeType, Label};

use super::output::Output;
use super::reader::{Reader, word_at};
use super::sizes::array_bytes;
use super::walk::Walk;
use crate::cpython::offsets::{numpy_array, object};
use crate::cpython::references::Object;

/// A census adds at most this many items of a list or tuple at once. The rest waits in `long`.
const MAX_ADDED: usize = 32;

impl<O: Output> Walk<'_, O> {
    /// Adds some more items of a long list; `false` if none are left. A census scans the items while they are still in
    /// the processor's caches, so this adds no more items than fit there.
    pub(super) fn more_items(&mut self) -> bool {
        let Some((items, n_items)) = self.long.pop() else {
            return false;
        };
        let n_added = n_items.min(MAX_ADDED);
        if n_added < n_items {
            self.failed |= !self.long.push((items + n_added * 8, n_items - n_added));
        }
        for index in 0..n_added {
            // SAFETY: `items` stored the address of this many items of a live object.
            let target = unsafe { Object::at(word_at(items + index * 8)) };
            self.edge(target, Label::new(EdgeType::Index, 0));
        }
        true
    }

    /// Adds the items of a list, a tuple or an array.
    ///
    /// # Safety
    /// At the address are this many references or nulls, which belong to a live object.
    #[inline(always)]
    pub(super) unsafe fn items(&mut self, items: usize, n_items: usize) {
        if !O::REFERENCES && n_items > MAX_ADDED {
            self.failed |= !self.long.push((items, n_items));
            return;
        }
        for index in 0..n_items {
            // SAFETY: passed on from the caller.
            let target = unsafe { Object::at(word_at(items + index * 8)) };
            self.edge(target, Label::new(EdgeType::Index, index as u32));
        }
    }

    /// Adds the keys and values of a dict, labelled by the keys.
    ///
    /// # Safety
    /// The object is an instance of dict or of a subclass.
    #[inline(always)]
    pub(super) unsafe fn dict_entries(&mut self, dict: Object) {
        let reader = self.reader;
        if !O::REFERENCES {
            // SAFETY: passed on from the caller.
            unsafe {
                reader.dict_entries(dict, |key, value| {
                    self.add(key);
                    self.add(value);
                });
            }
            return;
        }
        // SAFETY: passed on from the caller.
        let only_strings = unsafe { reader.has_only_string_keys(dict) };
        let mut position = 0;
        let with = |key, value| {
            let label = match only_strings {
                // Reading the key itself would wait for memory.
                true => Label::new(EdgeType::Key, self.names.of_object(reader, key)),
                false => self.key_label(key, position),
            };
            self.edge(Some(key), Label::new(EdgeType::KeyOf, position));
            self.edge(Some(value), label);
            position = position.saturating_add(1);
        };
        // SAFETY: passed on from the caller.
        unsafe { reader.dict_entries(dict, with) };
    }

    #[inline(always)]
    pub(super) fn key_label(&mut self, key: Object, position: u32) -> Label {
        let reader = self.reader;
        let key_type = reader.type_of(key);
        if key_type == reader.known.unicode {
            return Label::new(EdgeType::Key, self.names.of_object(reader, key));
        }
        if key_type == reader.known.long {
            // SAFETY: the key is an `int`.
            if let Some(number) = unsafe { small_number(reader, key) } {
                return Label::new(EdgeType::NumberKey, number);
            }
        }
        Label::new(EdgeType::Item, position)
    }

    /// Adds the references of an object that the collector does not follow, by the known fields of its type.
    ///
    /// # Safety
    /// `type_number` is that of the object's type.
    pub(super) unsafe fn fields(&mut self, type_number: u32, object: Object) {
        for position in 0..self.types[type_number as usize].fields.len() {
            let field = self.types[type_number as usize].fields[position];
            // SAFETY: the fields of a type are references or null.
            let target = unsafe { self.reader.reference(object, field.offset) };
            self.edge(target, field.label);
        }
    }

    /// Adds the references of a numpy array: the collector does not follow arrays.
    ///
    /// # Safety
    /// The object is a numpy array.
    pub(super) unsafe fn array(&mut self, array: Object) {
        let reader = self.reader;
        let internal = |name| Label::new(EdgeType::Internal, name);
        // SAFETY: an array has these fields; base and description are references or null.
        let (base, description, flags, data) = unsafe {
            (
                reader.reference(array, numpy_array::BASE),
                reader.reference(array, numpy_array::DESCRIPTION),
                reader.half(array, numpy_array::FLAGS),
                reader.word(array, numpy_array::DATA),
            )
        };
        self.edge(base, internal(self.internal.array_base));
        self.edge(description, internal(self.internal.dtype));
        let Some(description) = description else {
            return;
        };
        if data == 0 || flags & numpy_array::CONTIGUOUS == 0 {
            return;
        }
        // SAFETY: the description has the number of the element type. If the elements are objects, a contiguous array
        // that owns them has as many references or nulls as fit into its bytes.
        unsafe {
            if reader.half(description, numpy_array::TYPE_NUMBER) == numpy_array::OBJECTS {
                if let Some(bytes) = array_bytes(reader, array) {
                    self.items(data, bytes / 8);
                }
            }
        }
    }
}

/// Returns the value of an `int` that is neither negative nor large.
///
/// # Safety
/// The object is an `int`.
unsafe fn small_number(reader: &Reader, number: Object) -> Option<u32> {
    // SAFETY: an `int` has its length here.
    let size = unsafe { reader.size(number) };
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
        // SAFETY: it has one digit.
        1 => Some(unsafe { reader.half(number, object::LONG_DIGITS) })
            .filter(|number| *number <= Label::MAX_NUMBER),
        _ => None,
    }
}
