//! Heap analyses as JSON. Sizes are in bytes; addresses are texts, as `hex(id(object))` writes them.

use heaptide_analysis::heap::diff::{Amount, HeapDiff};
use heaptide_analysis::heap::paths::ShortestPaths;
use heaptide_analysis::heap::pattern::PatternRow;
use heaptide_analysis::heap::sites::Site;
use heaptide_analysis::heap::suspects::Suspects;
use heaptide_analysis::heap::tree::Branch;
use heaptide_analysis::heap::types::KindsTable;
use heaptide_analysis::heap::waste::WasteReport;
use heaptide_analysis::heap::{Heap, Partition};
use serde_json::{Value, json};

use crate::text::heap::{self as words, flag};

/// 0 means all rows.
fn limit(n_rows: usize) -> usize {
    if n_rows == 0 { usize::MAX } else { n_rows }
}

pub fn partition(table: &Partition, n_rows: usize) -> Value {
    let rows =
        table.rows.iter().take(limit(n_rows)).map(
            |row| json!({ "label": row.label.trim(), "count": row.count, "bytes": row.bytes }),
        );
    json!({
        "format": 1,
        "count": table.count,
        "bytes": table.bytes,
        "num_rows": table.rows.len(),
        "rows": rows.collect::<Value>(),
    })
}

pub fn kinds_table(table: &KindsTable, n_rows: usize) -> Value {
    let rows = table.rows.iter().take(limit(n_rows)).map(|row| {
        let mut value = json!({
            "label": row.label.as_str(),
            "count": row.count,
            "bytes": row.bytes,
            "retained_bytes": row.retained,
        });
        if let Some(largest) = &row.site {
            value["site"] = site(largest);
        }
        value
    });
    json!({
        "format": 1,
        "count": table.count,
        "bytes": table.bytes,
        "num_rows": table.rows.len(),
        "rows": rows.collect::<Value>(),
    })
}

/// One object.
pub fn object(heap: &Heap, object: u32) -> Value {
    let mut members = json!({
        "address": heap.address(object),
        "kind": heap.kind(object),
        "bytes": heap.bytes(object),
        "retained_bytes": heap.retained()[object as usize],
    });
    if let Some(value) = heap.snapshot.value_of(object) {
        members["value"] = value.into();
    }
    let frames = heap.allocation(object).map(|frame| {
        json!({
            "function": frame.function.as_str(),
            "file": frame.file.as_str(),
            "line": frame.line,
        })
    });
    let frames: Vec<Value> = frames.collect();
    if !frames.is_empty() {
        members["allocated_at"] = frames.into();
    }
    members
}

pub fn paths(heap: &Heap, shortest: &ShortestPaths) -> Value {
    let paths = shortest.paths.iter().map(|path| {
        let objects = path.iter().map(|&one| object(heap, one));
        json!({
            "text": heap.path_text(path),
            "steps": heap.path_steps(path),
            "objects": objects.collect::<Value>(),
        })
    });
    json!({
        "format": 1,
        "num_paths": shortest.n_paths,
        "paths": paths.collect::<Value>(),
    })
}

pub fn pattern(heap: &Heap, rows: &[PatternRow]) -> Value {
    let rows = rows.iter().map(|row| {
        let examples = row.objects.iter().take(3);
        json!({
            "path": row.path,
            "flag": flag(row.flag),
            "kind": row.label.as_str(),
            "count": row.objects.len(),
            "bytes": heap.bytes_of(&row.objects),
            "examples": examples.map(|one| heap.address(one)).collect::<Value>(),
        })
    });
    json!({ "format": 1, "rows": rows.collect::<Value>() })
}

pub fn dominators(heap: &Heap, branches: &[Branch]) -> Value {
    let branches = branches.iter().map(|branch| {
        let mut members = json!({
            "depth": branch.depth,
            "retained_bytes": branch.retained,
        });
        match branch.object {
            Some(one) => {
                members["object"] = object(heap, one);
                members["text"] = heap.brief(one).into();
            }
            None => members["num_rest"] = branch.n_objects.into(),
        }
        members
    });
    json!({
        "format": 1,
        "count": heap.n_objects(),
        "bytes": heap.snapshot.total_bytes(),
        "branches": branches.collect::<Value>(),
    })
}

fn amount(amount: Amount) -> Value {
    json!({ "count": amount.count, "bytes": amount.bytes })
}

pub fn difference(diff: &HeapDiff, n_rows: usize) -> Value {
    let rows = diff.rows.iter().take(limit(n_rows)).map(|row| {
        json!({
            "label": row.label.trim(),
            "count": row.count(),
            "bytes": row.bytes(),
            "before": amount(row.before),
            "after": amount(row.after),
            "new": amount(row.new),
            "gone": amount(row.gone),
        })
    });
    json!({
        "format": 1,
        "same_process": diff.is_same_process,
        "before": amount(diff.before),
        "after": amount(diff.after),
        "num_new": diff.new.len(),
        "num_gone": diff.gone.len(),
        "rows": rows.collect::<Value>(),
    })
}

fn site(site: &Site) -> Value {
    json!({
        "function": site.function.as_str(),
        "file": site.file.as_str(),
        "line": site.line,
        "bytes": site.bytes,
        "count": site.count,
    })
}

pub fn suspects(heap: &Heap, all: &Suspects) -> Value {
    let suspects = all.suspects.iter().map(|suspect| {
        let piles = suspect.piles.iter().map(|pile| {
            json!({
                "kind": pile.kind.as_str(),
                "count": pile.count,
                "bytes": pile.bytes,
            })
        });
        let sites = suspect.sites.iter().map(site);
        json!({
            "shape": suspect.shape.name(),
            "text": words::headline(heap, all, suspect),
            "advice": words::advice(suspect),
            "bytes": suspect.bytes,
            "num_items": suspect.n_items,
            "sole_holder": suspect.is_sole_holder,
            "point": suspect.point.map(|point| object(heap, point)),
            "holder": heap.path_text(&suspect.path),
            "piles": piles.collect::<Value>(),
            "sites": sites.collect::<Value>(),
        })
    });
    json!({
        "format": 1,
        "bytes": all.bytes,
        "suspects": suspects.collect::<Value>(),
    })
}

pub fn waste(heap: &Heap, report: &WasteReport, n_rows: usize) -> Value {
    let rows = report.rows.iter().take(limit(n_rows)).map(|row| {
        json!({
            "kind": row.category.name(),
            "what": row.what.as_str(),
            "count": row.count,
            "bytes": row.bytes,
            "example": heap.address(row.example),
            "text": words::sentence(row),
        })
    });
    json!({
        "format": 1,
        "has_values": report.has_values,
        "num_rows": report.rows.len(),
        "rows": rows.collect::<Value>(),
    })
}
