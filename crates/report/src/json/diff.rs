//! `diff --json`: every number of both sides, and each stack that changed.

use heaptide_analysis::Measure;
use heaptide_analysis::model::{Change, Diff, DiffSide, DiffStack};
use serde_json::{Value, json};

use super::{labels, number, peak_moment, text_or_null};
use crate::shell::command_line;
use crate::text::diff::comparability;
use crate::text::notes;

pub fn diff(diff: &Diff) -> Value {
    let whole = Measure::ALL.into_iter().map(|measure| {
        let known = diff.knows(measure);
        let whole = || change(&diff.whole(measure));
        (measure.name(), if known { whole() } else { Value::Null })
    });
    json!({
        "format": 1,
        "measure": diff.measure.name(),
        "by_line": diff.by_line,
        "warnings": comparability(diff),
        "before": side(&diff.before),
        "after": side(&diff.after),
        "whole": whole.collect::<Value>(),
        "stacks": diff.stacks.iter().map(|row| stack(diff, row)).collect::<Value>(),
    })
}

pub(super) fn side(side: &DiffSide) -> Value {
    let processes = side.quality.processes.iter();
    let processes = processes.map(|process| {
        json!({
            "file": process.path.display().to_string(),
            "process": process.name.as_str(),
            "title": process.title.as_str(),
            "labels": labels(&process.labels),
            "run": text_or_null(&process.run),
            "pid": process.pid,
            "command_line": command_line(&process.command),
        })
    });
    json!({
        "duration_ns": side.duration_ns,
        "num_allocations": side.total.count,
        "resident_peak_bytes": side.resident_peak_bytes,
        "sampled_every_bytes": side.quality.sampling.map(|sampling| sampling.mean_bytes),
        "processes": processes.collect::<Value>(),
        "peak_moment": peak_moment(&side.quality),
        "warnings": notes::warnings(&side.quality),
    })
}

pub(super) fn change(change: &Change) -> Value {
    json!({
        "before_bytes": change.before.bytes,
        "after_bytes": change.after.bytes,
        "change_bytes": change.bytes(),
        "before_blocks": change.before.count,
        "after_blocks": change.after.count,
        "error_bytes": number(change.error_bytes().round()),
        "is_noise": change.is_noise(),
    })
}

fn stack(diff: &Diff, row: &DiffStack) -> Value {
    let frames = row.frames.iter().map(|&number| {
        let at = &diff.locations[number as usize];
        let mut frame = json!({ "function": &*at.function, "file": &*at.file });
        if diff.by_line {
            frame["line"] = at.line.into();
        }
        frame
    });
    let mut stack = change(&row.change);
    stack["frames"] = frames.collect();
    stack
}
