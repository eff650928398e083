//! `heaptide summary`: a table of functions.

use std::io::{self, Write};

use heaptide_analysis::model::{FunctionSum, Summary};

use super::table::{FirstColumn, Row, Table, wrap};
use super::{Style, notes};
use crate::units::{count, percent, size};

/// Notes are not wrapped to shorter lines than this.
const MIN_NOTE: usize = 40;

/// Columns that are left out on a narrow terminal, in this order. The sort column always stays.
const DISPENSABLE: [SortColumn; 5] = [
    SortColumn::OwnPercent,
    SortColumn::TotalPercent,
    SortColumn::AllocationCount,
    SortColumn::OwnMemory,
    SortColumn::TotalMemory,
];

/// The column that rows are sorted by, largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortColumn {
    TotalMemory = 1,
    TotalPercent = 2,
    OwnMemory = 3,
    OwnPercent = 4,
    AllocationCount = 5,
}

impl SortColumn {
    /// The column with this number, counted from 1 after the location.
    pub fn from_number(number: u8) -> Option<SortColumn> {
        match number {
            1 => Some(SortColumn::TotalMemory),
            2 => Some(SortColumn::TotalPercent),
            3 => Some(SortColumn::OwnMemory),
            4 => Some(SortColumn::OwnPercent),
            5 => Some(SortColumn::AllocationCount),
            _ => None,
        }
    }

    fn number_of(self, sum: &FunctionSum) -> u64 {
        match self {
            SortColumn::TotalMemory | SortColumn::TotalPercent => sum.total_bytes,
            SortColumn::OwnMemory | SortColumn::OwnPercent => sum.own_bytes,
            SortColumn::AllocationCount => sum.n_allocations,
        }
    }
}

pub struct Options {
    pub sort: SortColumn,
    /// `None` for all.
    pub max_rows: Option<usize>,
    /// `None` for lines of any length.
    pub max_width: Option<usize>,
    pub style: Style,
}

pub fn summary(out: &mut dyn Write, summary: &Summary, options: &Options) -> io::Result<()> {
    let mut functions: Vec<&FunctionSum> = summary.functions.iter().collect();
    functions.sort_by_key(|sum| {
        let number = options.sort.number_of(sum);
        (
            std::cmp::Reverse((number, sum.total_bytes)),
            &sum.file,
            &sum.function,
        )
    });
    let n_all = functions.len();
    functions.truncate(options.max_rows.unwrap_or(n_all));

    let titles = [
        "Location",
        "Total Memory",
        "Total Memory %",
        "Own Memory",
        "Own Memory %",
        "Allocation Count",
    ];
    let titles = titles.iter().enumerate().map(|(at, title)| {
        if at == options.sort as usize {
            format!("<{title}>")
        } else {
            (*title).to_owned()
        }
    });
    let mut table = Table {
        titles: titles.collect(),
        rows: functions
            .iter()
            .map(|sum| row(sum, summary.total_bytes))
            .collect(),
        first_column: FirstColumn::Shortened,
    };
    if let Some(max_width) = options.max_width {
        let columns = DISPENSABLE.iter().filter(|&&column| column != options.sort);
        let columns: Vec<usize> = columns.map(|&column| column as usize).collect();
        table.leave_out(&columns, max_width);
    }
    for note in notes::incomplete(&summary.quality) {
        writeln!(out, "{}", options.style.bold(&note))?;
    }
    if let Some(heading) = notes::heading(&summary.quality, summary.measure) {
        writeln!(out, "{}", options.style.bold(&heading))?;
    }
    table.write(out, options.max_width, options.style)?;
    let mut notes = notes::footer(&summary.quality, summary.measure);
    if functions.len() < n_all {
        let n_more = n_all - functions.len();
        notes.insert(0, format!("{n_more} more functions: -r {n_all} shows all"));
    }
    for note in notes {
        let width = options
            .max_width
            .map_or(usize::MAX, |width| width.max(MIN_NOTE));
        for line in wrap(&note, width) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

fn row(sum: &FunctionSum, whole: u64) -> Row {
    let (total, own) = (
        percent(sum.total_bytes, whole),
        percent(sum.own_bytes, whole),
    );
    Row {
        cells: vec![
            match &*sum.file {
                "" => sum.function.to_string(),
                file => format!("{} at {file}", sum.function),
            },
            size(sum.total_bytes),
            format!("{total:.2}%"),
            size(sum.own_bytes),
            format!("{own:.2}%"),
            count(sum.n_allocations),
        ],
        shares: vec![None, Some(total), Some(total), Some(own), Some(own), None],
    }
}
