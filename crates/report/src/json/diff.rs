//! `diff --json`: every number of both sides, and each stack that changed.
//!
//! Stacks share their frames, as in the model: a list of frames per stack would be as long as the stack is deep.

use heaptide_analysis::Measure;
use heaptide_analysis::model::{Change, Diff, DiffSide};
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
    let (frames, numbers) = changed_frames(diff);
    let stacks = diff.stacks.iter().map(|row| {
        let mut stack = change(&row.change);
        stack["frame"] = json!(row.frame.map(|frame| numbers[frame]));
        stack
    });
    json!({
        "format": 2,
        "measure": diff.measure.name(),
        "by_line": diff.by_line,
        "warnings": comparability(diff),
        "before": side(&diff.before),
        "after": side(&diff.after),
        "whole": whole.collect::<Value>(),
        "frames": frames,
        "stacks": stacks.collect::<Value>(),
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

/// The frames of the stacks that changed, and for each frame of the model its number among them.
fn changed_frames(diff: &Diff) -> (Vec<Value>, Vec<usize>) {
    let mut is_changed = vec![false; diff.frames.len()];
    for row in &diff.stacks {
        let mut frame = row.frame;
        while let Some(at) = frame.filter(|&at| !is_changed[at]) {
            is_changed[at] = true;
            frame = diff.frames[at].caller;
        }
    }
    let mut numbers = vec![0; diff.frames.len()];
    let mut changed = Vec::new();
    for (number, frame) in diff.frames.iter().enumerate() {
        if is_changed[number] {
            numbers[number] = changed.len();
            let at = &diff.locations[frame.location as usize];
            let caller = frame.caller.map(|caller| numbers[caller]);
            let mut frame =
                json!({ "function": &*at.function, "file": &*at.file, "caller": caller });
            if diff.by_line {
                frame["line"] = at.line.into();
            }
            changed.push(frame);
        }
    }
    (changed, numbers)
}
