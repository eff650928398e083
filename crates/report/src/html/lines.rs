//! Functions line by line, as a page: each line with its numbers, and a bar in the background of its source.

use std::io::{self, Write};

use heaptide_analysis::model::{LineHeap, LineRow, LineTable};
use serde_json::{Value, json};

use super::embed;
use crate::text::lines::{Column, Options};

pub(super) const LINES: &str = include_str!("../../../../web/dist/lines.html");

/// Writes a page with all tables.
pub fn lines(out: &mut dyn Write, tables: &[LineTable], options: &Options) -> io::Result<()> {
    embed(out, LINES, &data(tables, options.columns))
}

fn data(tables: &[LineTable], columns: &[Column]) -> Value {
    let shown = if columns.contains(&Column::Increment) {
        Column::Increment
    } else {
        Column::AtPeak
    };
    // The increment of a function's first line is the memory that the process had before the call, so totals and bars
    // skip this row.
    let skipped = usize::from(shown == Column::Increment);
    let bar = columns.iter().position(|&column| column == shown);
    let tables = tables.iter().map(|table| {
        let rows = table.rows.iter().map(|row| {
            let cells = columns.iter().map(|&column| value(column, row));
            json!({
                "number": row.number,
                "text": row.text.as_str(),
                "cells": cells.collect::<Value>(),
            })
        });
        json!({
            "file": table.file.as_str(),
            "function": table.function.as_str(),
            "skipped": skipped,
            "rows": rows.collect::<Value>(),
        })
    });
    json!({
        "head": { "format": 1, "profiler": env!("CARGO_PKG_VERSION") },
        "columns": columns.iter().map(|&column| describe(column)).collect::<Value>(),
        "bar": bar.map_or(-1, |bar| bar as i64),
        "tables": tables.collect::<Value>(),
    })
}

fn describe(column: Column) -> Value {
    let is_count = matches!(column, Column::Occurrences | Column::Allocations);
    json!({
        "title": column.title(),
        "unit": if is_count { "count" } else { "bytes" },
        "total": if column == Column::MemUsage { "most" } else { "sum" },
        "is_change": column == Column::Increment,
    })
}

fn value(column: Column, row: &LineRow) -> Value {
    let heap = |number: fn(&LineHeap) -> u64| row.heap.as_ref().map(number).into();
    match column {
        Column::MemUsage => row.visits.map(|visits| visits.most_bytes).into(),
        Column::Increment => row.visits.map(|visits| visits.increment_bytes).into(),
        Column::Occurrences => row.visits.map(|visits| visits.n_visits).into(),
        Column::Allocated => heap(|heap| heap.total_bytes),
        Column::AtPeak => heap(|heap| heap.peak_bytes),
        Column::Alive => heap(|heap| heap.leaked_bytes),
        Column::Allocations => heap(|heap| heap.n_allocations),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptide_analysis::model::LineVisits;

    #[test]
    fn page_has_the_numbers_of_every_line_and_no_text_as_markup() {
        let row = |number, text: &str, increment_bytes| LineRow {
            number,
            text: text.into(),
            visits: Some(LineVisits {
                n_visits: 1,
                most_bytes: 100,
                increment_bytes,
            }),
            heap: None,
        };
        let table = LineTable {
            file: "<script>.py".into(),
            function: "f".into(),
            rows: vec![row(1, "def f():", 1 << 30), row(2, "x = '<b>'", -500)],
        };
        let data = data(std::slice::from_ref(&table), &Column::WATCHED);
        assert_eq!(data["bar"], 1);
        assert_eq!(data["tables"][0]["skipped"], 1);
        assert_eq!(data["tables"][0]["rows"][1]["cells"], json!([100, -500, 1]));
        let recorded = super::data(std::slice::from_ref(&table), &Column::RECORDED);
        assert_eq!(recorded["bar"], 1);
        assert_eq!(recorded["tables"][0]["rows"][0]["cells"][0], Value::Null);
        let mut out = Vec::new();
        let options = Options {
            columns: &Column::WATCHED,
            precision: 1,
        };
        lines(&mut out, &[table], &options).unwrap();
        let page = String::from_utf8(out).unwrap();
        assert!(!page.contains("<script>.py") && !page.contains("'<b>'"));
    }
}
