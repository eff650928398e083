//! The data of the heap page, in columns, which compress well. `docs/reference/page-data.md` describes it.

use heaptide_analysis::heap::diff::HeapDiff;
use heaptide_analysis::heap::explore::Exploration;
use heaptide_analysis::heap::{Heap, PLAIN_DICT};
use heaptide_capture::labels;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::{identity, text_or_null};
use crate::shell::command_line;
use crate::text::heap as words;
use crate::units;

/// All data of the page.
pub fn explore(
    heap: &Heap,
    diff: Option<&HeapDiff>,
    exploration: &Exploration,
    file: &str,
) -> Value {
    json!({
        "head": head(heap, diff, exploration, file),
        "kinds": kinds(exploration, diff),
        "objects": objects(heap, exploration),
        "stacks": stacks(heap, exploration),
    })
}

fn head(heap: &Heap, diff: Option<&HeapDiff>, exploration: &Exploration, file: &str) -> Value {
    let header = &heap.snapshot.header;
    let unreachable = heap.unreachable();
    let suspects = exploration
        .suspects
        .suspects
        .iter()
        .zip(&exploration.suspect_points);
    let suspects = suspects.map(|(suspect, &position)| {
        json!({
            "what": words::headline(heap, &exploration.suspects, suspect),
            "evidence": words::evidence(heap, suspect),
            "advice": words::advice(suspect),
            "bytes": suspect.bytes,
            "object": position,
        })
    });
    let mut head = json!({
        "format": 1,
        "file": file,
        "command_line": command_line(&header.command),
        "pid": header.pid,
        "identity": identity(&header.identity()),
        "host": header.host.as_str(),
        "labels": super::labels(&labels::of(&header.facts)),
        "run": text_or_null(labels::run(&header.facts)),
        "title": labels::title(&labels::of(&header.facts), &header.command),
        "python": units::python_version(header.python_version),
        "taken": units::timestamp(header.taken_unix_ns),
        "paused_ns": header.paused_ns,
        "count": heap.n_objects(),
        "bytes": heap.snapshot.total_bytes(),
        "unreachable_count": unreachable.len(),
        "unreachable_bytes": heap.bytes_of(&unreachable),
        "has_stacks": heap.stacks().is_some(),
        "warnings": header.notes,
        "suspects": suspects.collect::<Value>(),
        "tops": exploration.tops,
        "num_tops": exploration.n_tops,
    });
    if let Some(diff) = diff {
        head["before"] = json!({
            "count": diff.before.count,
            "bytes": diff.before.bytes,
            "same_process": diff.is_same_process,
            "num_new": diff.new.len(),
            "num_gone": diff.gone.len(),
        });
    }
    head
}

fn kinds(exploration: &Exploration, diff: Option<&HeapDiff>) -> Value {
    let changes: FxHashMap<&str, usize> = diff
        .into_iter()
        .flat_map(|diff| diff.rows.iter().enumerate())
        .map(|(at, row)| (row.label.as_str(), at))
        .collect();
    let mut gone = Vec::new();
    let rows = exploration.kinds.iter().map(|kind| {
        let mut row = json!({
            "label": label(&kind.row.label),
            "count": kind.row.count,
            "bytes": kind.row.bytes,
            "retained": kind.row.retained,
            "objects": kind.objects,
        });
        if let Some(diff) = diff {
            let change = changes.get(kind.row.label.as_str());
            let change = change.map(|&at| &diff.rows[at]);
            let (count, bytes) = match change {
                Some(change) => (change.before.count, change.before.bytes),
                // An unchanged kind had the same numbers before.
                None => (kind.row.count, kind.row.bytes),
            };
            row["before_count"] = count.into();
            row["before_bytes"] = bytes.into();
            row["new"] = change.map_or(0, |change| change.new.count).into();
            row["gone"] = change.map_or(0, |change| change.gone.count).into();
        }
        row
    });
    let mut rows: Vec<Value> = rows.collect();
    for change in diff.into_iter().flat_map(|diff| &diff.rows) {
        if change.after.count == 0 {
            gone.push(json!({
                "label": label(&change.label),
                "count": 0,
                "bytes": 0,
                "retained": 0,
                "objects": [],
                "before_count": change.before.count,
                "before_bytes": change.before.bytes,
                "new": 0,
                "gone": change.gone.count,
            }));
        }
    }
    rows.append(&mut gone);
    Value::Array(rows)
}

/// The name of a kind on the page. Most readers do not know heapy's name for a plain dict.
fn label(kind: &str) -> &str {
    if kind == PLAIN_DICT { "dict" } else { kind }
}

fn objects(heap: &Heap, exploration: &Exploration) -> Value {
    let shown = &exploration.objects;
    let column = |make: &dyn Fn(usize) -> Value| (0..shown.len()).map(make).collect::<Value>();
    let kinds: FxHashMap<&str, u32> = exploration
        .kinds
        .iter()
        .enumerate()
        .map(|(at, kind)| (kind.row.label.as_str(), at as u32))
        .collect();
    let number = |position: Option<u32>| Value::from(position.map_or(-1, i64::from));
    let stacks = heap.stacks();
    json!({
        "kind": column(&|at| {
            let kind = heap.kind(shown[at].object);
            kinds.get(kind).copied().unwrap_or(0).into()
        }),
        "address": column(&|at| heap.address(shown[at].object).into()),
        "name": column(&|at| name(heap, shown[at].object).into()),
        "bytes": column(&|at| heap.bytes(shown[at].object).into()),
        "retained": column(&|at| heap.retained()[shown[at].object as usize].into()),
        "dominator": column(&|at| number(shown[at].dominator)),
        "children": column(&|at| shown[at].n_children.into()),
        "before": column(&|at| number(shown[at].before)),
        "via": column(&|at| shown[at].via.as_str().into()),
        "num_referrers": column(&|at| shown[at].n_referrers.into()),
        "referrers": column(&|at| {
            let pairs = shown[at].referrers.iter();
            pairs
                .flat_map(|(from, text)| [Value::from(*from), text.as_str().into()])
                .collect()
        }),
        "is_new": column(&|at| u32::from(shown[at].is_new).into()),
        "is_reachable": column(&|at| u32::from(shown[at].is_reachable).into()),
        "stack": column(&|at| {
            let of = stacks.and_then(|all| all.of_objects.get(shown[at].object as usize));
            of.copied().unwrap_or(0).into()
        }),
    })
}

/// A text that distinguishes an object from others, without its address, which has its own column.
fn name(heap: &Heap, object: u32) -> String {
    if let Some(name) = heap.own_name(object) {
        return name;
    }
    if let Some(value) = heap.snapshot.value_of(object) {
        return value.to_owned();
    }
    match heap.n_items(object) {
        Some(1) => "1 item".to_owned(),
        Some(n_items) => format!("{} items", units::count(n_items)),
        None => String::new(),
    }
}

/// The stacks of objects in the page, by number.
fn stacks(heap: &Heap, exploration: &Exploration) -> Value {
    let Some(stacks) = heap.stacks() else {
        return Value::Array(Vec::new());
    };
    let mut used: Vec<u32> = exploration
        .objects
        .iter()
        .filter_map(|shown| stacks.of_objects.get(shown.object as usize).copied())
        .filter(|&stack| stack != 0)
        .collect();
    used.sort_unstable();
    used.dedup();
    let used = used.into_iter().map(|number| {
        let frames = stacks.stacks.get(number as usize).into_iter().flatten();
        let frames = frames.filter_map(|&frame| stacks.frames.get(frame as usize));
        let frames = frames.map(|frame| {
            json!({
                "function": frame.function.as_str(),
                "file": frame.file.as_str(),
                "line": frame.line,
            })
        });
        json!({ "number": number, "frames": frames.collect::<Value>() })
    });
    used.collect()
}
