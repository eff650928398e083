//! Line tables of code objects: the line of an instruction, in the formats of all Python versions.
//!
//! ```text
//! 3.9     pairs of bytes: number of bytes of code, line change after them (signed)
//! 3.10    pairs of bytes: number of bytes of code, line change before them (signed; −128: no line)
//! 3.11 …  entries: 1 cccc lll, then arguments; lll + 1 code units, form cccc:
//!           0–9    same line, one more byte (columns)
//!           10–12  line plus 0, 1, 2, two more bytes (columns)
//!           13     signed number: line change
//!           14     signed number: line change; three numbers (end line, columns)
//!           15     no line
//!         numbers have six bits per byte, lowest first; 0x40 means that another byte follows;
//!         bit 0 of a signed number is its sign
//! ```
//!
//! The agent uses it to leave the columns out of a capture, and reports use it to name lines. Heaptide does not record 3.9,
//! but other profilers' captures contain it. Reading never panics; an invalid entry ends the table.

/// The lines of one code object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineTable {
    first_line: i32,
    /// (code units up to here, line), ascending. An instruction without a line has the line of the one before it.
    ends: Vec<(u32, i32)>,
}

/// As `sys.hexversion`.
const PYTHON_3_10: u32 = 0x030a_0000;
const PYTHON_3_11: u32 = 0x030b_0000;

impl LineTable {
    /// `python_version` as in the capture's header.
    pub fn new(python_version: u32, first_line: i32, bytes: &[u8]) -> LineTable {
        let mut table = LineTable {
            first_line,
            ends: Vec::new(),
        };
        match python_version {
            ..PYTHON_3_10 => table.read_changes(bytes),
            PYTHON_3_10..PYTHON_3_11 => table.read_pairs(bytes),
            _ => table.read_steps(bytes),
        }
        table
    }

    /// Returns the line of an instruction, given in code units. Beyond the table it is the function's first line.
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

    fn read_changes(&mut self, bytes: &[u8]) {
        let (mut end_bytes, mut line) = (0u32, self.first_line);
        for pair in bytes.chunks_exact(2) {
            if pair[0] > 0 {
                end_bytes = end_bytes.saturating_add(pair[0].into());
                self.push(end_bytes / 2, line);
            }
            line = line.wrapping_add((pair[1] as i8).into());
        }
        self.push(u32::MAX, line);
    }

    fn read_steps(&mut self, bytes: &[u8]) {
        let (mut end, mut line) = (0u32, self.first_line);
        for step in steps(bytes) {
            line = line.wrapping_add(step.line_change as i32);
            end = end.saturating_add(step.n_units);
            self.push(end, line);
        }
    }
}

/// An entry of a table of 3.11 or later, without its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Line change before these code units.
    pub line_change: i64,
    pub n_units: u32,
}

/// Returns the entries of a table of 3.11 or later, up to an invalid one.
pub fn steps(table: &[u8]) -> impl Iterator<Item = Step> + '_ {
    let mut bytes = table.iter().copied();
    std::iter::from_fn(move || {
        let first = bytes.next().filter(|first| first & 0x80 != 0)?;
        let line_change = match (first >> 3) & 15 {
            0..=9 => bytes.next().map(|_| 0),
            form @ 10..=12 => bytes.nth(1).map(|_| i64::from(form) - 10),
            13 => signed(&mut bytes),
            14 => {
                let change = signed(&mut bytes);
                change.filter(|_| (0..3).all(|_| number(&mut bytes).is_some()))
            }
            _ => Some(0),
        }?;
        Some(Step {
            line_change,
            n_units: u32::from(first & 7) + 1,
        })
    })
    .fuse()
}

fn number(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let byte = bytes.next()?;
        value |= u64::from(byte & 0x3f).checked_shl(shift)?;
        if byte & 0x40 == 0 {
            return Some(value);
        }
        shift += 6;
    }
}

fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = number(bytes)?;
    let magnitude = (value >> 1) as i64;
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
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at: u32, minor in 9u32..13) {
            let version = 0x0300_0000 | minor << 16;
            LineTable::new(version, 1, &bytes).line_of(at);
        }
    }

    #[test]
    fn instruction_without_a_line_has_the_line_before_it() {
        let table = LineTable::new(0x030a_00f0, 10, &[2, 1, 2, 0x80, 4, 3]);
        let lines: Vec<i32> = (0..5).map(|at| table.line_of(at)).collect();
        assert_eq!(lines, [11, 11, 14, 14, 10]);
    }

    #[test]
    fn table_of_3_9_changes_the_line_after_its_bytes() {
        let table = LineTable::new(0x0309_12f0, 10, &[4, 1, 2, 0xff, 0, 5]);
        let lines: Vec<i32> = [0, 1, 2, 3, 1000]
            .into_iter()
            .map(|at| table.line_of(at))
            .collect();
        assert_eq!(lines, [10, 10, 11, 15, 15]);
        assert_eq!(LineTable::new(0x0309_12f0, 10, &[]).line_of(7), 10);
    }
}
