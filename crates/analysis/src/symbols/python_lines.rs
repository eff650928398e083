//! From an instruction to its line: the two formats of `co_linetable`.
//!
//! ```text
//! 3.10    pairs of bytes: how many bytes of code, by how much the line changes (signed; −128: these have no line)
//! 3.11 …  entries: 1 cccc lll, then arguments; lll + 1 code units, kind cccc:
//!           0–9    same line, one more byte (columns)
//!           10–12  line plus 0, 1, 2, two more bytes (columns)
//!           13     signed number: line change
//!           14     signed number: line change; three numbers (end line, columns)
//!           15     no line
//!         numbers have six bits a byte, lowest first, 0x40 says that more follow; signed ones end in a sign bit
//! ```
//!
//! The bytes come from a file that may be damaged: anything is read without panic, and what makes no sense ends the
//! table.

/// The lines of one code object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineTable {
    first_line: i32,
    /// (code units up to here, line), ascending. Instructions without a line have that of those before them.
    ends: Vec<(u32, i32)>,
}

/// As `sys.hexversion`.
const PYTHON_3_11: u32 = 0x030b_0000;

impl LineTable {
    /// `python_version` as in the capture's header.
    pub fn new(python_version: u32, first_line: i32, bytes: &[u8]) -> LineTable {
        let mut table = LineTable {
            first_line,
            ends: Vec::new(),
        };
        if python_version < PYTHON_3_11 {
            table.read_pairs(bytes);
        } else {
            table.read_locations(bytes);
        }
        table
    }

    /// The line of an instruction, given in code units. Beyond the table it is the function's first line.
    pub fn line_of(&self, instruction: u32) -> i32 {
        let at = self.ends.partition_point(|&(end, _)| end <= instruction);
        self.ends.get(at).map_or(self.first_line, |&(_, line)| line)
    }

    fn push(&mut self, end: u32, line: i32) {
        match self.ends.last_mut() {
            Some(last) if last.1 == line => last.0 = end,
            _ => self.ends.push((end, line)),
        }
    }

    fn read_pairs(&mut self, bytes: &[u8]) {
        let (mut end_bytes, mut line) = (0u32, self.first_line);
        for pair in bytes.chunks_exact(2) {
            let change = pair[1] as i8;
            if change != i8::MIN {
                line = line.wrapping_add(change.into());
            }
            if pair[0] > 0 {
                end_bytes = end_bytes.saturating_add(pair[0].into());
                self.push(end_bytes / 2, line);
            }
        }
    }

    fn read_locations(&mut self, bytes: &[u8]) {
        let mut bytes = bytes.iter().copied();
        let (mut end, mut line) = (0u32, self.first_line);
        while let Some(first) = bytes.next() {
            let change = match (first >> 3) & 15 {
                0..=9 => bytes.next().map(|_| 0),
                kind @ 10..=12 => bytes.nth(1).map(|_| i32::from(kind) - 10),
                13 => signed(&mut bytes),
                14 => {
                    let change = signed(&mut bytes);
                    (0..3)
                        .try_for_each(|_| number(&mut bytes).map(|_| ()))
                        .and(change)
                }
                _ => Some(0),
            };
            let Some(change) = change.filter(|_| first & 0x80 != 0) else {
                return;
            };
            line = line.wrapping_add(change);
            end = end.saturating_add(u32::from(first & 7) + 1);
            self.push(end, line);
        }
    }
}

fn number(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let mut value = 0u32;
    let mut shift = 0;
    loop {
        let byte = bytes.next()?;
        value |= u32::from(byte & 0x3f).checked_shl(shift)?;
        if byte & 0x40 == 0 {
            return Some(value);
        }
        shift += 6;
    }
}

fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i32> {
    let value = number(bytes)?;
    let magnitude = (value >> 1) as i32;
    Some(if value & 1 == 1 {
        -magnitude
    } else {
        magnitude
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at: u32, old: bool) {
            let version = if old { 0x030a_0000 } else { 0x030c_0000 };
            LineTable::new(version, 1, &bytes).line_of(at);
        }
    }

    #[test]
    fn instruction_without_a_line_has_the_one_before_it() {
        let table = LineTable::new(0x030a_00f0, 10, &[2, 1, 2, 0x80, 4, 3]);
        let lines: Vec<i32> = (0..5).map(|at| table.line_of(at)).collect();
        assert_eq!(lines, [11, 11, 14, 14, 10]);
    }
}
