//! A code object's location table without its columns.
//!
//! From 3.11 on the table has the line and columns of every instruction. A capture needs only the lines, a small part of
//! it. The result is in the interpreter's own format, so one reader serves both:
//!
//! ```text
//! in    1 0000 lll cc …   an entry for every one or two instructions, with columns
//! out   1 1101 lll dd     up to 8 code units, and the change of the line
//!       1 1111 lll        up to 8 more units of the same line
//! ```

use heaptide_capture::line_table::steps;

use super::layout::Layout;

/// Appends the part of a code object's table that a capture needs: before 3.11 the whole table, later its lines.
pub fn append_lines(layout: &Layout, table: &[u8], out: &mut Vec<u8>) {
    if layout.version >= (3, 11) {
        strip_columns(table, out);
    } else {
        out.extend_from_slice(table);
    }
}

/// Appends the lines of `table` (3.11 or later) to `out`. An invalid entry ends the table, as it does for readers.
fn strip_columns(table: &[u8], out: &mut Vec<u8>) {
    // The run of code units on one line that was not written yet, and the change of line at its start.
    let (mut n_units, mut change) = (0u32, 0i64);
    for step in steps(table) {
        if step.line_change != 0 {
            write_run(n_units, change, out);
            if n_units > 0 {
                change = 0;
            }
            (n_units, change) = (0, change.wrapping_add(step.line_change));
        }
        n_units += step.n_units;
    }
    write_run(n_units, change, out);
}

fn write_run(mut n_units: u32, change: i64, out: &mut Vec<u8>) {
    const LINE: u8 = 0x80 | 13 << 3;
    const SAME: u8 = 0x80 | 15 << 3;
    let mut code = LINE;
    while n_units > 0 {
        let n = n_units.min(8);
        out.push(code | (n - 1) as u8);
        if code == LINE {
            let mut value = change.unsigned_abs() << 1 | u64::from(change < 0);
            while value >= 0x40 {
                out.push(0x40 | (value & 0x3f) as u8);
                value >>= 6;
            }
            out.push(value as u8);
            code = SAME;
        }
        n_units -= n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line of every code unit.
    fn lines(table: &[u8]) -> Vec<i64> {
        let (mut line, mut lines) = (100, Vec::new());
        for step in steps(table) {
            line += step.line_change;
            lines.extend((0..step.n_units).map(|_| line));
        }
        lines
    }

    #[test]
    fn lines_are_kept_and_columns_removed() {
        // A table of 3.11: a function of four lines with short, one-line, long, line-only and empty entries.
        let table = [
            0x80, 0x00, 0xd8, 0x04, 0x05, 0x82, 0x21, 0x87, 0x33, 0xf0, 0x02, 0x00, 0x05, 0x09,
            0xe8, 0x03, 0xff, 0xe9, 0x41, 0x02, 0x87, 0x10, 0x87, 0x10,
        ];
        let mut stripped = Vec::new();
        strip_columns(&table, &mut stripped);
        assert_eq!(lines(&stripped), lines(&table));
        assert!(stripped.len() < table.len());
    }

    #[test]
    fn run_longer_than_an_entry_is_continued() {
        let mut stripped = Vec::new();
        strip_columns(&[0x87, 0, 0x87, 0, 0x83, 0], &mut stripped);
        assert_eq!(stripped, [0xef, 0, 0xff, 0xfb]);
    }

    #[test]
    fn an_invalid_entry_ends_the_table() {
        let mut stripped = Vec::new();
        strip_columns(&[0x80, 0, 0x00, 0x80, 0], &mut stripped);
        assert_eq!(lines(&stripped), [100]);
        strip_columns(&[0xe8, 0x7f], &mut stripped);
    }
}
