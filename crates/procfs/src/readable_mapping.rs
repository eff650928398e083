//! Finds the readable mapping around an address of this process, and lists all of them. The search does not allocate:
//! hooks inside `malloc` call it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;

/// Returns the readable mapping of this process that contains an address. Allocates nothing.
pub fn readable_mapping(address: usize) -> Option<Range<usize>> {
    let mut file = File::open("/proc/self/maps").ok()?;
    let mut scan = Scan::default();
    let mut buffer = [0u8; 4096];
    loop {
        let len = file.read(&mut buffer).ok().filter(|&len| len > 0)?;
        let bytes = buffer.get(..len)?.iter();
        let mut readable = bytes.filter_map(|&byte| scan.take(byte));
        if let Some(range) = readable.find(|range| range.contains(&address)) {
            return Some(range);
        }
    }
}

/// Returns the readable memory of this process, in ascending order. Adjacent mappings are one range.
pub fn readable_ranges() -> io::Result<Vec<Range<usize>>> {
    let text = fs::read("/proc/self/maps")?;
    let mut scan = Scan::default();
    Ok(joined(text.iter().filter_map(|&byte| scan.take(byte))))
}

fn joined(mappings: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for mapping in mappings {
        match ranges.last_mut() {
            Some(last) if last.end == mapping.start => last.end = mapping.end,
            _ => ranges.push(mapping),
        }
    }
    ranges
}

/// Parses lines such as `7ffc1000-7ffc3000 rw-p 00000000 00:00 0` byte by byte.
#[derive(Default)]
struct Scan {
    part: Part,
    start: usize,
    end: usize,
}

#[derive(Default)]
enum Part {
    #[default]
    Start,
    End,
    Permissions,
    Rest,
}

impl Scan {
    /// Takes one byte. Returns the range of a readable mapping as soon as its permissions are known.
    fn take(&mut self, byte: u8) -> Option<Range<usize>> {
        let digit = (byte as char).to_digit(16).map(|digit| digit as usize);
        match (&self.part, byte) {
            (_, b'\n') => *self = Scan::default(),
            (Part::Start, b'-') => self.part = Part::End,
            (Part::Start, _) => self.start = self.start << 4 | digit?,
            (Part::End, b' ') => self.part = Part::Permissions,
            (Part::End, _) => self.end = self.end << 4 | digit?,
            (Part::Permissions, _) => {
                self.part = Part::Rest;
                return (byte == b'r').then_some(self.start..self.end);
            }
            (Part::Rest, _) => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_holds_its_address_and_an_unmapped_address_has_none() {
        let local = 0u64;
        let address = &raw const local as usize;
        assert!(readable_mapping(address).unwrap().contains(&address));
        assert_eq!(readable_mapping(16), None);
    }

    #[test]
    fn adjacent_mappings_are_one_range() {
        let mappings = [0x1000..0x2000, 0x2000..0x5000, 0x6000..0x7000];
        assert_eq!(
            joined(mappings.into_iter()),
            [0x1000..0x5000, 0x6000..0x7000]
        );
        let local = 0u64;
        let address = &raw const local as usize;
        let ranges = readable_ranges().unwrap();
        assert!(ranges.is_sorted_by(|before, after| before.end < after.start));
        assert!(ranges.iter().any(|range| range.contains(&address)));
    }

    #[test]
    fn readable_mappings_are_parsed_byte_by_byte() {
        let mut scan = Scan::default();
        let text = b"1000-2000 r--p 00000000 08:01 77 /bin/x-y z\n2000-3000 ---p 0 0 0\nffff-1ffff rw-p 0 0 0\n";
        let ranges: Vec<_> = text.iter().filter_map(|&byte| scan.take(byte)).collect();
        assert_eq!(ranges, [0x1000..0x2000, 0xffff..0x1ffff]);
    }
}
