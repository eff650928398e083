//! A function line by line, in columns of memory_profiler, of a recording, or of both.

use std::fmt::Write as _;
use std::io::{self, Write};

use heaptide_analysis::model::{LineHeap, LineRow, LineTable};

use super::controls::{Escaping, escape_line};

const MIB: f64 = 1_048_576.0;

/// A column between the line's number and its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    MemUsage,
    Increment,
    Occurrences,
    Allocated,
    /// Bytes alive at the peak.
    AtPeak,
    /// Bytes alive at the end.
    Alive,
    Allocations,
}

impl Column {
    /// The columns of memory_profiler.
    pub const WATCHED: [Column; 3] = [Column::MemUsage, Column::Increment, Column::Occurrences];
    pub const RECORDED: [Column; 4] = [
        Column::Allocated,
        Column::AtPeak,
        Column::Alive,
        Column::Allocations,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Column::MemUsage => "Mem usage",
            Column::Increment => "Increment",
            Column::Occurrences => "Occurrences",
            Column::Allocated => "Allocated",
            Column::AtPeak => "At peak",
            Column::Alive => "Alive",
            Column::Allocations => "Allocations",
        }
    }

    /// Returns the column of a recording that has this name in options.
    pub fn from_name(name: &str) -> Option<Column> {
        match name {
            "allocated" => Some(Column::Allocated),
            "peak" => Some(Column::AtPeak),
            "alive" => Some(Column::Alive),
            "allocations" => Some(Column::Allocations),
            _ => None,
        }
    }

    /// The number of blanks before the column, and its width.
    fn layout(self) -> (usize, usize) {
        match self {
            // Narrower than its title, as in memory_profiler.
            Column::Occurrences => (2, 10),
            Column::Allocations => (2, 11),
            _ => (1, 12),
        }
    }

    pub(crate) fn cell(self, row: &LineRow, precision: usize) -> Option<String> {
        let mib = |bytes: f64| {
            let width = precision + 4;
            format!("{:width$.precision$} MiB", bytes / MIB)
        };
        let heap =
            |bytes: fn(&LineHeap) -> u64| row.heap.as_ref().map(|heap| mib(bytes(heap) as f64));
        match self {
            Column::MemUsage => row.visits.map(|visits| mib(visits.most_bytes as f64)),
            Column::Increment => row.visits.map(|visits| mib(visits.increment_bytes as f64)),
            Column::Occurrences => row.visits.map(|visits| visits.n_visits.to_string()),
            Column::Allocated => heap(|heap| heap.total_bytes),
            Column::AtPeak => heap(|heap| heap.peak_bytes),
            Column::Alive => heap(|heap| heap.leaked_bytes),
            Column::Allocations => row.heap.map(|heap| heap.n_allocations.to_string()),
        }
    }
}

pub struct Options<'a> {
    pub columns: &'a [Column],
    /// The number of decimals of a size.
    pub precision: usize,
}

/// Writes the file name, a heading, a rule, the lines, and two empty lines.
pub fn lines(out: &mut dyn Write, table: &LineTable, options: &Options) -> io::Result<()> {
    // Escaped here and not only when a command prints it, because Python programs also print it.
    let out = &mut Escaping::new(out, false);
    let columns = options.columns;
    let head = line(
        "Line #",
        columns
            .iter()
            .map(|column| (*column, column.title().to_owned())),
        "Line Contents",
    );
    writeln!(out, "Filename: {}\n", escape_line(&table.file))?;
    writeln!(out, "{head}\n{:=<width$}", "", width = head.chars().count())?;
    for row in &table.rows {
        let cells = columns.iter().map(|&column| {
            let cell = column.cell(row, options.precision);
            (column, cell.unwrap_or_default())
        });
        writeln!(out, "{}", line(&row.number.to_string(), cells, &row.text))?;
    }
    out.write_all(b"\n\n")?;
    out.flush()
}

fn line(number: &str, cells: impl Iterator<Item = (Column, String)>, text: &str) -> String {
    let mut line = format!("{number:>6}");
    for (column, cell) in cells {
        let (blanks, width) = column.layout();
        // Writing into a string cannot fail.
        let _ = write!(line, "{:blanks$}{cell:>width$}", "");
    }
    line + "   " + text
}

/// `file function peak MiB`, in one line.
pub fn one_line(table: &LineTable, precision: usize) -> String {
    let peak = table.most_bytes() as f64 / MIB;
    let line = format!("{} {} {peak:.precision$} MiB", table.file, table.function);
    escape_line(&line).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptide_analysis::model::LineVisits;

    fn table() -> LineTable {
        let row = |number, text: &str, visits| LineRow {
            number,
            text: text.into(),
            visits,
            heap: None,
        };
        let visits = |most_bytes, increment_bytes, n_visits| {
            Some(LineVisits {
                n_visits,
                most_bytes,
                increment_bytes,
            })
        };
        LineTable {
            file: "/srv/increment.py".into(),
            function: "increment".into(),
            rows: vec![
                row(7, "@task(returns=1)", visits(55_888_000, 55_888_000, 1)),
                row(8, "def increment(value):", None),
                row(9, "    del b", visits(303_982_182, -23_802_676, 1)),
            ],
        }
    }

    #[test]
    fn columns_have_the_positions_of_memory_profiler() {
        let mut out = Vec::new();
        let options = Options {
            columns: &Column::WATCHED,
            precision: 1,
        };
        lines(&mut out, &table(), &options).unwrap();
        let expected = "\
Filename: /srv/increment.py

Line #    Mem usage    Increment  Occurrences   Line Contents
=============================================================
     7     53.3 MiB     53.3 MiB           1   @task(returns=1)
     8                                         def increment(value):
     9    289.9 MiB    -22.7 MiB           1       del b


";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn one_line_names_file_function_and_peak() {
        assert_eq!(
            one_line(&table(), 1),
            "/srv/increment.py increment 289.9 MiB"
        );
    }
}
