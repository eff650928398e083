//! Functions line by line, for other programs.

use heaptide_analysis::model::{LineTable, Lines};

use super::Json;

pub fn lines(lines: &Lines) -> Json {
    Json::Object(vec![
        ("functions", lines.tables.iter().map(table).collect()),
        ("function_count", (lines.n_functions as u64).into()),
    ])
}

fn table(table: &LineTable) -> Json {
    let rows = table.rows.iter().map(|row| {
        let heap = row.heap.unwrap_or_default();
        Json::Object(vec![
            ("line", row.number.into()),
            ("text", row.text.as_str().into()),
            ("allocated_bytes", heap.total_bytes.into()),
            ("allocations", heap.n_allocations.into()),
            ("peak_bytes", heap.peak_bytes.into()),
            ("alive_bytes", heap.leaked_bytes.into()),
        ])
    });
    Json::Object(vec![
        ("file", table.file.as_str().into()),
        ("function", table.function.as_str().into()),
        ("lines", rows.collect()),
    ])
}
