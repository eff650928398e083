//! Answers about object heaps for other programs. Bytes are bytes, addresses are texts as `hex(id())` writes them.

use heaptide_analysis::heap::diff::{Amount, HeapDiff};
use heaptide_analysis::heap::paths::ShortestPaths;
use heaptide_analysis::heap::pattern::PatternRow;
use heaptide_analysis::heap::sites::Site;
use heaptide_analysis::heap::suspects::Suspects;
use heaptide_analysis::heap::tree::Branch;
use heaptide_analysis::heap::types::KindsTable;
use heaptide_analysis::heap::waste::WasteReport;
use heaptide_analysis::heap::{Heap, Partition};

use super::Json;
use crate::text::heap::{self as words, flag};

/// 0 is all.
fn limit(n_rows: usize) -> usize {
    if n_rows == 0 { usize::MAX } else { n_rows }
}

pub fn partition(table: &Partition, n_rows: usize) -> Json {
    let rows = table.rows.iter().take(limit(n_rows)).map(|row| {
        Json::Object(vec![
            ("label", row.label.trim().into()),
            ("count", row.count.into()),
            ("bytes", row.bytes.into()),
        ])
    });
    Json::Object(vec![
        ("format", 1u64.into()),
        ("count", table.count.into()),
        ("bytes", table.bytes.into()),
        ("num_rows", (table.rows.len() as u64).into()),
        ("rows", rows.collect()),
    ])
}

pub fn kinds_table(table: &KindsTable, n_rows: usize) -> Json {
    let rows = table.rows.iter().take(limit(n_rows)).map(|row| {
        let mut members = vec![
            ("label", row.label.as_str().into()),
            ("count", row.count.into()),
            ("bytes", row.bytes.into()),
            ("retained_bytes", row.retained.into()),
        ];
        members.extend(row.site.as_ref().map(|largest| ("site", site(largest))));
        Json::Object(members)
    });
    Json::Object(vec![
        ("format", 1u64.into()),
        ("count", table.count.into()),
        ("bytes", table.bytes.into()),
        ("num_rows", (table.rows.len() as u64).into()),
        ("rows", rows.collect()),
    ])
}

/// One object.
pub fn object(heap: &Heap, object: u32) -> Json {
    let mut members = vec![
        ("address", heap.address(object).into()),
        ("kind", heap.kind(object).into()),
        ("bytes", heap.bytes(object).into()),
        ("retained_bytes", heap.retained()[object as usize].into()),
    ];
    if let Some(value) = heap.snapshot.value_of(object) {
        members.push(("value", value.into()));
    }
    let frames = heap.allocation(object).map(|frame| {
        Json::Object(vec![
            ("function", frame.function.as_str().into()),
            ("file", frame.file.as_str().into()),
            ("line", frame.line.into()),
        ])
    });
    let frames: Vec<Json> = frames.collect();
    if !frames.is_empty() {
        members.push(("allocated_at", Json::Array(frames)));
    }
    Json::Object(members)
}

pub fn paths(heap: &Heap, found: &ShortestPaths) -> Json {
    let paths = found.paths.iter().map(|path| {
        let steps = heap.path_steps(path).into_iter().map(Json::from);
        let objects = path.iter().map(|&one| object(heap, one));
        Json::Object(vec![
            ("text", heap.path_text(path).into()),
            ("steps", steps.collect()),
            ("objects", objects.collect()),
        ])
    });
    Json::Object(vec![
        ("format", 1u64.into()),
        ("num_paths", found.n_paths.into()),
        ("paths", paths.collect()),
    ])
}

pub fn pattern(heap: &Heap, rows: &[PatternRow]) -> Json {
    let rows = rows.iter().map(|row| {
        let path = row.path.iter().map(|&child| Json::from(child as u64));
        let examples = row.objects.iter().take(3);
        Json::Object(vec![
            ("path", path.collect()),
            ("flag", flag(row.flag).into()),
            ("kind", row.label.as_str().into()),
            ("count", (row.objects.len() as u64).into()),
            ("bytes", heap.bytes_of(&row.objects).into()),
            (
                "examples",
                examples.map(|one| heap.address(one).into()).collect(),
            ),
        ])
    });
    Json::Object(vec![("format", 1u64.into()), ("rows", rows.collect())])
}

pub fn dominators(heap: &Heap, branches: &[Branch]) -> Json {
    let branches = branches.iter().map(|branch| {
        let mut members = vec![
            ("depth", branch.depth.into()),
            ("retained_bytes", branch.retained.into()),
        ];
        match branch.object {
            Some(one) => {
                members.push(("object", object(heap, one)));
                members.push(("text", heap.brief(one).into()));
            }
            None => members.push(("num_rest", branch.n_objects.into())),
        }
        Json::Object(members)
    });
    Json::Object(vec![
        ("format", 1u64.into()),
        ("count", (heap.n_objects() as u64).into()),
        ("bytes", heap.snapshot.total_bytes().into()),
        ("branches", branches.collect()),
    ])
}

fn amount(amount: Amount) -> Json {
    Json::Object(vec![
        ("count", amount.count.into()),
        ("bytes", amount.bytes.into()),
    ])
}

pub fn difference(diff: &HeapDiff, n_rows: usize) -> Json {
    let rows = diff.rows.iter().take(limit(n_rows)).map(|row| {
        Json::Object(vec![
            ("label", row.label.trim().into()),
            ("count", row.count().into()),
            ("bytes", row.bytes().into()),
            ("before", amount(row.before)),
            ("after", amount(row.after)),
            ("new", amount(row.new)),
            ("gone", amount(row.gone)),
        ])
    });
    Json::Object(vec![
        ("format", 1u64.into()),
        ("same_process", diff.is_same_process.into()),
        ("before", amount(diff.before)),
        ("after", amount(diff.after)),
        ("num_new", (diff.new.len() as u64).into()),
        ("num_gone", (diff.gone.len() as u64).into()),
        ("rows", rows.collect()),
    ])
}

fn site(site: &Site) -> Json {
    Json::Object(vec![
        ("function", site.function.as_str().into()),
        ("file", site.file.as_str().into()),
        ("line", site.line.into()),
        ("bytes", site.bytes.into()),
    ])
}

pub fn suspects(heap: &Heap, found: &Suspects) -> Json {
    let suspects = found.suspects.iter().map(|suspect| {
        let piles = suspect.piles.iter().map(|pile| {
            Json::Object(vec![
                ("kind", pile.kind.as_str().into()),
                ("count", pile.count.into()),
                ("bytes", pile.bytes.into()),
            ])
        });
        let sites = suspect.sites.iter().map(site);
        Json::Object(vec![
            ("shape", suspect.shape.name().into()),
            ("text", words::headline(heap, found, suspect).into()),
            ("advice", words::advice(suspect).into()),
            ("bytes", suspect.bytes.into()),
            ("num_items", suspect.n_items.into()),
            ("sole_holder", suspect.is_sole_holder.into()),
            (
                "point",
                suspect
                    .point
                    .map_or(Json::Null, |point| object(heap, point)),
            ),
            ("holder", heap.path_text(&suspect.path).into()),
            ("piles", piles.collect()),
            ("sites", sites.collect()),
        ])
    });
    Json::Object(vec![
        ("format", 1u64.into()),
        ("bytes", found.bytes.into()),
        ("suspects", suspects.collect()),
    ])
}

pub fn waste(heap: &Heap, report: &WasteReport, n_rows: usize) -> Json {
    let rows = report.rows.iter().take(limit(n_rows)).map(|row| {
        Json::Object(vec![
            ("kind", row.category.name().into()),
            ("what", row.what.as_str().into()),
            ("count", row.count.into()),
            ("bytes", row.bytes.into()),
            ("example", heap.address(row.example).into()),
            ("text", words::sentence(row).into()),
        ])
    });
    Json::Object(vec![
        ("format", 1u64.into()),
        ("has_values", report.has_values.into()),
        ("num_rows", (report.rows.len() as u64).into()),
        ("rows", rows.collect()),
    ])
}
