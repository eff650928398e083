//! Functions line by line as JSON.

use heaptide_analysis::model::{LineTable, Lines};
use serde_json::{Value, json};

pub fn lines(lines: &Lines) -> Value {
    json!({
        "functions": lines.tables.iter().map(table).collect::<Value>(),
        "function_count": lines.n_functions,
    })
}

fn table(table: &LineTable) -> Value {
    let rows = table.rows.iter().map(|row| {
        let heap = row.heap.unwrap_or_default();
        json!({
            "line": row.number,
            "text": row.text.as_str(),
            "allocated_bytes": heap.total_bytes,
            "allocations": heap.n_allocations,
            "peak_bytes": heap.peak_bytes,
            "alive_bytes": heap.leaked_bytes,
        })
    });
    json!({
        "file": table.file.as_str(),
        "function": table.function.as_str(),
        "lines": rows.collect::<Value>(),
    })
}
