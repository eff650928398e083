//! The names that labels refer to, each stored once.

use std::collections::HashMap;

use heaptide_capture::heap::{Label, Names};

use super::column::Column;
use super::index::Index;
use super::reader::Reader;
use crate::cpython::references::Object;

/// Longer names are cut.
const MAX_NAME: usize = 100;
/// Marks a name that was cut.
const CUT: &str = "…";

pub struct NameTable {
    pub names: Names,
    by_text: HashMap<String, u32>,
    /// String objects that were used as names, by address, and the number of each.
    seen: Index,
    seen_addresses: Column<u64>,
    seen_numbers: Column<u32>,
}

impl NameTable {
    pub fn new() -> Option<NameTable> {
        Some(NameTable {
            names: Names::default(),
            by_text: HashMap::new(),
            seen: Index::new()?,
            seen_addresses: Column::new(),
            seen_numbers: Column::new(),
        })
    }

    pub fn of_text(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(number) = self.by_text.get(text) {
            return *number;
        }
        if self.names.len() >= Label::MAX_NUMBER as usize {
            return 0;
        }
        let number = self.names.push(text);
        self.by_text.insert(text.to_owned(), number);
        number
    }

    /// Returns the number of a string object's text; 0 if it cannot be read.
    #[inline]
    pub fn of_object(&mut self, reader: &Reader, object: Object) -> u32 {
        match self
            .seen
            .find(&self.seen_addresses, object.address() as u64)
        {
            Some(position) => self
                .seen_numbers
                .get(position as usize)
                .copied()
                .unwrap_or(0),
            None => self.of_new_object(reader, object),
        }
    }

    #[cold]
    fn of_new_object(&mut self, reader: &Reader, object: Object) -> u32 {
        let mut buffer = [0; MAX_NAME];
        let number = match reader.text(object, &mut buffer) {
            Some((text, false)) => self.of_text(text),
            Some((text, true)) => self.of_text(&format!("{text}{CUT}")),
            None => 0,
        };
        let added = self
            .seen
            .find_or_add(&self.seen_addresses, object.address() as u64);
        if added.is_some_and(|(_, new)| new)
            && self.seen_addresses.push(object.address() as u64)
            && !self.seen_numbers.push(number)
        {
            return 0;
        }
        number
    }
}
