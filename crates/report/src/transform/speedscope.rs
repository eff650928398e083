//! speedscope's file format: one list of frames, and four sampled profiles that use it.

use std::io::{self, Write};

use heaptide_analysis::Measure;
use heaptide_analysis::model::StackModel;
use serde_json::{Value, json};

use super::{NO_FRAMES, lines, merged};
use crate::shell::command_line;
use crate::text::notes::peak_heading;

/// Identifies the format; nothing is fetched from this address.
const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

pub fn write(model: &StackModel, measure: Measure, out: &mut dyn Write) -> io::Result<()> {
    let first = model.quality.processes.first();
    let name = first.map_or(String::new(), |process| command_line(&process.command));
    let active: u64 = match measure {
        Measure::Peak => 0,
        Measure::Leaked => 1,
        Measure::Total => 2,
        Measure::Temporary => 3,
    };
    for (before, value) in [
        ("{\"$schema\":", SCHEMA.into()),
        (",\n\"exporter\":", exporter().into()),
        (",\n\"name\":", Value::from(name)),
        (",\n\"activeProfileIndex\":", active.into()),
    ] {
        out.write_all(before.as_bytes())?;
        lines::value(out, &value)?;
    }
    out.write_all(b",\n\"shared\":{\"frames\":")?;
    lines::array(out, frames(model))?;
    out.write_all(b"},\n\"profiles\":[")?;
    let at_peak = peak_heading(&model.quality);
    let at_peak = at_peak.map_or("Memory at the peak".to_owned(), |it| {
        format!("Memory of {it}")
    });
    profile(out, model, &at_peak, Measure::Peak, true)?;
    out.write_all(b",")?;
    profile(out, model, "Leaked", Measure::Leaked, true)?;
    out.write_all(b",")?;
    profile(out, model, "Allocations", Measure::Total, false)?;
    out.write_all(b",")?;
    profile(out, model, "Temporary", Measure::Temporary, false)?;
    out.write_all(b"]}\n")
}

fn exporter() -> String {
    format!("heaptide@{}", env!("CARGO_PKG_VERSION"))
}

/// The locations, and one more frame for empty stacks.
fn frames(model: &StackModel) -> impl Iterator<Item = Value> + '_ {
    let named = model.locations.iter().map(|at| {
        let mut frame = json!({ "name": &*at.function, "file": &*at.file });
        if at.line > 0 {
            frame["line"] = at.line.into();
        }
        frame
    });
    named.chain([json!({ "name": NO_FRAMES })])
}

/// Writes one profile: of bytes, or of numbers of allocations.
fn profile(
    out: &mut dyn Write,
    model: &StackModel,
    name: &str,
    measure: Measure,
    is_bytes: bool,
) -> io::Result<()> {
    let stacks = merged::stacks(model, measure).into_iter();
    let weighted = stacks.map(|(stack, amount)| {
        let weight = if is_bytes { amount.bytes } else { amount.count };
        (stack, weight)
    });
    let weighted: Vec<(Option<usize>, u64)> = weighted.filter(|&(_, weight)| weight > 0).collect();
    let sum: u64 = weighted
        .iter()
        .map(|&(_, weight)| weight)
        .fold(0, u64::saturating_add);
    let unit = if is_bytes { "bytes" } else { "none" };
    write!(
        out,
        "\n{{\"type\":\"sampled\",\"name\":\"{name}\",\"unit\":\"{unit}\",\"startValue\":0,\"endValue\":{sum},\n\
         \"samples\":"
    )?;
    let samples = weighted.iter().map(|&(stack, _)| {
        let frames = merged::frames(model, stack);
        let mut frames: Vec<usize> = frames.collect();
        if frames.is_empty() {
            frames.push(model.locations.len());
        }
        frames.reverse();
        Value::from(frames)
    });
    lines::array(out, samples)?;
    out.write_all(b",\n\"weights\":")?;
    let weights = weighted.iter().map(|&(_, weight)| Value::from(weight));
    lines::value(out, &weights.collect())?;
    out.write_all(b"}")
}
