//! `diff --json`: every number of both sides, and each stack that changed.

use heaptide_analysis::Measure;
use heaptide_analysis::model::{Change, Diff, DiffSide, DiffStack};

use super::Json;
use crate::shell::command_line;
use crate::text::notes;

pub fn diff(diff: &Diff) -> Json {
    let whole = Measure::ALL.into_iter().map(|measure| {
        let known = diff.knows(measure);
        let whole = || change(&diff.whole(measure));
        (measure.name(), if known { whole() } else { Json::Null })
    });
    Json::Object(vec![
        ("format", 1u64.into()),
        ("measure", diff.measure.name().into()),
        ("by_line", diff.by_line.into()),
        ("before", side(&diff.before)),
        ("after", side(&diff.after)),
        ("whole", Json::Object(whole.collect())),
        (
            "stacks",
            diff.stacks.iter().map(|row| stack(diff, row)).collect(),
        ),
    ])
}

pub(super) fn side(side: &DiffSide) -> Json {
    let processes = side.quality.processes.iter();
    let processes = processes.map(|process| {
        Json::Object(vec![
            ("file", process.path.display().to_string().into()),
            ("pid", process.pid.into()),
            ("command_line", command_line(&process.command).into()),
        ])
    });
    let warnings = notes::warnings(&side.quality).into_iter().map(Json::from);
    Json::Object(vec![
        ("duration_ns", side.duration_ns.into()),
        ("num_allocations", side.total.count.into()),
        ("resident_peak_bytes", side.resident_peak_bytes.into()),
        (
            "sampled_every_bytes",
            side.quality
                .sampling
                .map(|sampling| sampling.mean_bytes)
                .into(),
        ),
        ("processes", processes.collect()),
        ("warnings", warnings.collect()),
    ])
}

pub(super) fn change(change: &Change) -> Json {
    Json::Object(vec![
        ("before_bytes", change.before.bytes.into()),
        ("after_bytes", change.after.bytes.into()),
        ("change_bytes", change.bytes().into()),
        ("before_blocks", change.before.count.into()),
        ("after_blocks", change.after.count.into()),
        ("error_bytes", Json::Fraction(change.error_bytes().round())),
        ("is_noise", change.is_noise().into()),
    ])
}

fn stack(diff: &Diff, row: &DiffStack) -> Json {
    let frames = row.frames.iter().map(|&number| {
        let at = &diff.locations[number as usize];
        let mut frame = vec![
            ("function", (*at.function).into()),
            ("file", (*at.file).into()),
        ];
        if diff.by_line {
            frame.push(("line", i64::from(at.line).into()));
        }
        Json::Object(frame)
    });
    let Json::Object(mut members) = change(&row.change) else {
        return Json::Null;
    };
    members.push(("frames", frames.collect()));
    Json::Object(members)
}
