//! The data of the pages: the [`Flame`] model as JSON in columns, which compress well and parse fast.
//!
//! ```text
//! nodes.up         distance to the node's parent, which comes before it; the first node is the root
//! nodes.place      ≥ 0 a location, −1 the root, −2 no Python frame, −2 − n: n frames that were cut
//! owners.text      a file or native library, as an index of `texts`
//! owners.owner     who wrote it: 0 the user, 1 a package, 2 Python's library, 3 the interpreter, 4 other
//! own.*            allocations of a node itself, without those of its descendants: an entry for each node and origin
//! own.step         difference between the node numbers of this entry and the previous one
//! own.<measure>    bytes and counts, a column each; for sampled captures also the variance of the bytes, in square KiB
//! lives.*          lifetimes of blocks, in bins of time: docs/reference/page-data.md
//! ```
//! Names are in `texts`; a location without a module, or without a source text, has −1 or an empty text.

use std::io::{self, Write};

use heaptide_analysis::model::flame::{
    Curves, Flame, FlameContent, FlameLives, FlameProcess, JobSpan, Measured, Own, Owner,
};
use heaptide_analysis::model::{Diff, Measure, ProcessSummary, Quality};
use serde_json::{Value, json};

use super::diff::{change, side};
use super::findings::{finding, ledger};
use super::{labels, number, stopped, text_or_null, write_text};
use crate::shell::command_line;
use crate::text::diff::comparability;
use crate::text::mode::modes;
use crate::text::notes;
use crate::units::{python_version, timestamp};

/// The version of the data. It increases when an older page would misread the data.
const FORMAT: u32 = 1;

/// The initial view of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstView {
    pub measure: Measure,
    pub inverted: bool,
    pub split_threads: bool,
    /// Only for comparisons, which merge lines by default.
    pub by_line: bool,
}

/// The two sides of a comparison: the first `n_before` processes are the earlier side.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'a> {
    pub n_before: usize,
    pub diff: &'a Diff,
}

/// Writes the data of a page.
pub fn flame(
    out: &mut dyn Write,
    flame: &Flame,
    first: FirstView,
    sides: Option<Sides>,
) -> io::Result<()> {
    out.write_all(b"{\"head\":")?;
    serde_json::to_writer(&mut *out, &head(flame, first, sides))?;
    out.write_all(b",\"timeline\":{")?;
    write!(out, "\"bin_ns\":{},\"together\":", flame.timeline.bin_ns)?;
    curves(out, &flame.timeline.all_processes)?;
    out.write_all(b",\"processes\":[")?;
    for (number, process) in flame.timeline.processes.iter().enumerate() {
        comma(out, number)?;
        curves(out, process)?;
    }
    out.write_all(b"],\"stacked\":[")?;
    for (number, heap) in flame.timeline.stacked.iter().enumerate() {
        comma(out, number)?;
        list(out, heights(heap))?;
    }
    out.write_all(b"]},\"texts\":")?;
    texts(out, flame.texts.iter().map(|text| &**text))?;
    out.write_all(b",\"locations\":{")?;
    let locations = &flame.locations;
    column(out, "function", locations.iter().map(|at| at.function))?;
    column(out, "file", locations.iter().map(|at| at.file))?;
    column(out, "line", locations.iter().map(|at| at.line))?;
    let modules = locations.iter().map(|at| at.module.map_or(-1, i64::from));
    column(out, "module", modules)?;
    let imports = locations.iter().map(|at| u8::from(at.is_import_system));
    column(out, "import_system", imports)?;
    let libraries = locations.iter().map(|at| at.library.map_or(-1, i64::from));
    column(out, "library", libraries)?;
    out.write_all(b"\"source\":")?;
    texts(
        out,
        locations
            .iter()
            .map(|at| at.source.as_deref().unwrap_or("")),
    )?;
    out.write_all(b"},\"owners\":{")?;
    column(out, "text", flame.owners.iter().map(|&(text, _)| text))?;
    let owners = flame.owners.iter().map(|&(_, owner)| owner_number(owner));
    last_column(out, "owner", owners)?;
    out.write_all(b"},\"nodes\":{")?;
    let parent_steps = flame.nodes.iter().enumerate();
    column(
        out,
        "up",
        parent_steps.map(|(number, node)| number as u32 - node.parent),
    )?;
    last_column(
        out,
        "place",
        flame.nodes.iter().map(|node| content_number(node.content)),
    )?;
    out.write_all(b"},\"origins\":{")?;
    column(
        out,
        "thread",
        flame.origins.iter().map(|origin| origin.thread),
    )?;
    out.write_all(b"\"allocator\":")?;
    let allocators = flame.origins.iter().map(|origin| origin.allocator.name());
    texts(out, allocators)?;
    if !flame.jobs.is_empty() {
        let jobs = flame.origins.iter();
        let jobs = jobs.map(|origin| origin.job.map_or(-1, i64::from));
        out.write_all(b",")?;
        last_column(out, "job", jobs)?;
    }
    out.write_all(b"},\"own\":{")?;
    own(out, &flame.own, flame.quality.sampling.is_some())?;
    out.write_all(b"},\"lives\":{")?;
    lives(out, &flame.lives)?;
    out.write_all(b"}}\n")
}

fn own(out: &mut dyn Write, own: &[Own], is_sampled: bool) -> io::Result<()> {
    let before = [0].into_iter().chain(own.iter().map(|entry| entry.node));
    let steps = own
        .iter()
        .zip(before)
        .map(|(entry, before)| entry.node - before);
    column(out, "step", steps)?;
    for (number, measure) in Measure::ALL.into_iter().enumerate() {
        write!(out, "\"{}\":{{", measure.name())?;
        let amounts =
            |part: fn(&Measured) -> u64| own.iter().map(move |entry| part(&entry.amounts[number]));
        column(out, "bytes", amounts(|amount| amount.bytes))?;
        if is_sampled {
            column(out, "variance", amounts(|amount| amount.variance))?;
        }
        last_column(out, "count", amounts(|amount| amount.count))?;
        out.write_all(b"},")?;
    }
    last_column(out, "origin", own.iter().map(|entry| entry.origin))
}

/// Lifetimes of one entry of `own` are adjacent, so most steps are 0. `age` is the number of bins from allocation to free.
fn lives(out: &mut dyn Write, lives: &FlameLives) -> io::Result<()> {
    column(out, "edges_ns", lives.edges_ns.iter())?;
    let before = [0]
        .into_iter()
        .chain(lives.entries.iter().map(|life| life.own));
    let entries = lives.entries.iter();
    let steps = entries
        .clone()
        .zip(before)
        .map(|(life, before)| life.own - before);
    column(out, "step", steps)?;
    column(out, "birth", entries.clone().map(|life| life.birth))?;
    column(
        out,
        "age",
        entries.clone().map(|life| life.death - life.birth),
    )?;
    column(out, "bytes", entries.clone().map(|life| life.bytes))?;
    last_column(out, "count", entries.map(|life| life.count))
}

fn owner_number(owner: Owner) -> u8 {
    match owner {
        Owner::User => 0,
        Owner::Package => 1,
        Owner::StandardLibrary => 2,
        Owner::Interpreter => 3,
        Owner::Other => 4,
    }
}

fn content_number(content: FlameContent) -> i64 {
    match content {
        FlameContent::Frame(location) => location.into(),
        FlameContent::Root => -1,
        FlameContent::NoFrames => -2,
        FlameContent::Cut { n_frames } => -2 - i64::from(n_frames),
    }
}

fn head(flame: &Flame, first: FirstView, sides: Option<Sides>) -> Value {
    let quality = &flame.quality;
    let mut warnings = notes::incomplete(quality);
    warnings.extend(notes::footer(quality, Measure::Peak));
    let remarks = match sides {
        None => remarks(quality),
        Some(sides) => {
            let of = |name: &str, quality: &Quality| -> Vec<String> {
                let moment = notes::peak_heading(quality).into_iter();
                let remarks = moment.chain(remarks(quality));
                remarks.map(|note| format!("{name}: {note}")).collect()
            };
            let before = of("before", &sides.diff.before.quality);
            [before, of("after", &sides.diff.after.quality)].concat()
        }
    };
    let processes = flame.processes.iter().zip(&quality.processes);
    let threads = flame.threads.iter().map(|thread| {
        json!({
            "process": thread.process,
            "os_id": thread.os_id,
            "name": thread.name,
            "is_main": thread.is_main,
        })
    });
    let measures = Measure::ALL.into_iter();
    let measures = measures.filter(|&measure| quality.knows(measure));
    let findings = flame.findings.iter();
    let findings = findings.map(|(it, node)| {
        let mut finding = finding(it);
        finding["node"] = (*node).into();
        finding
    });
    let mut head = json!({
        "format": FORMAT,
        "profiler": env!("CARGO_PKG_VERSION"),
        "start_time": timestamp(flame.start_unix_ns),
        "start_unix_ms": flame.start_unix_ns / 1_000_000,
        "duration_ns": flame.end_unix_ns.saturating_sub(flame.start_unix_ns),
        "peak_bytes": flame.peak_bytes,
        "peak_ns": flame.peak_ns,
        "peak_heading": notes::peak_heading(quality).filter(|_| sides.is_none()),
        "min_share": number(flame.min_share),
        "measures": measures.map(Measure::name).collect::<Value>(),
        "findings": findings.collect::<Value>(),
        "filters": quality.filters,
        "first_view": {
            "measure": first.measure.name(),
            "inverted": first.inverted,
            "split_threads": first.split_threads,
            "by_line": first.by_line,
        },
        "warnings": warnings,
        "remarks": remarks,
        "processes": processes.map(|(more, known)| process(more, known)).collect::<Value>(),
        "threads": threads.collect::<Value>(),
    });
    if !flame.jobs.is_empty() {
        head["jobs"] = flame.jobs.as_slice().into();
        head["job_spans"] = flame.job_spans.iter().map(job_span).collect();
        head["num_more_jobs"] = flame.n_more_jobs.into();
    }
    if let Some(sides) = sides {
        head["diff"] = diff_head(sides);
    }
    head
}

fn job_span(span: &JobSpan) -> Value {
    json!({
        "job": span.job,
        "process": span.process,
        "start_ns": span.start_ns,
        "end_ns": span.end_ns,
        "key": span.key,
        "outcome": span.outcome.name(),
    })
}

/// Remarks about the whole report, and the notes without effect on its numbers.
fn remarks(quality: &Quality) -> Vec<String> {
    let remarks = notes::remarks(quality).into_iter();
    remarks.chain(notes::asides(quality)).collect()
}

fn diff_head(sides: Sides) -> Value {
    let diff = sides.diff;
    let whole = Measure::ALL
        .into_iter()
        .map(|measure| (measure.name(), change(&diff.whole(measure))));
    json!({
        "n_before": sides.n_before,
        "warnings": comparability(diff),
        "before": side(&diff.before),
        "after": side(&diff.after),
        "whole": whole.collect::<Value>(),
    })
}

fn process(more: &FlameProcess, known: &ProcessSummary) -> Value {
    json!({
        "file": known.path.display().to_string(),
        "name": known.name.as_str(),
        "shown": known.shown.as_str(),
        "title": known.title.as_str(),
        "labels": labels(&known.labels),
        "run": text_or_null(&known.run),
        "pid": known.pid,
        "parent_pid": known.parent_pid,
        "command_line": command_line(&known.command),
        "executable": more.executable.as_str(),
        "working_directory": more.working_directory.as_str(),
        "host": more.host.as_str(),
        "python": python_version(more.python_version),
        "python_allocator": more.python_allocator.as_str(),
        "mode": modes(&known.modes),
        "start_ns": more.start_ns,
        "end_ns": more.end_ns,
        "peak_ns": more.peak_ns,
        "num_allocations": known.n_allocations,
        "total_bytes": known.total_bytes,
        "peak_bytes": known.peak_bytes,
        "at_peak_bytes": known.at_peak_bytes,
        "live_bytes": known.live_bytes,
        "resident_peak_bytes": known.resident_peak_bytes,
        "own_at_resident_peak_bytes": known.own_at_resident_peak_bytes,
        "limit_bytes": known.limit_bytes,
        "own_memory_bytes": known.own_memory_bytes,
        "ended_in_order": known.ended_in_order,
        "stopped": known.stopped.as_ref().map(stopped),
        "joined_late": known.joined_late,
        "ledger": known.ledger.as_ref().map(ledger),
    })
}

fn curves(out: &mut dyn Write, curves: &Curves) -> io::Result<()> {
    out.write_all(b"{")?;
    column(out, "heap", heights(&curves.heap))?;
    last_column(out, "resident", heights(&curves.resident))?;
    out.write_all(b"}")
}

fn heights(curve: &[Option<u64>]) -> impl Iterator<Item = String> {
    curve
        .iter()
        .map(|value| value.map_or_else(|| "null".to_owned(), |n| n.to_string()))
}

fn column<T: std::fmt::Display>(
    out: &mut dyn Write,
    name: &str,
    values: impl Iterator<Item = T>,
) -> io::Result<()> {
    last_column(out, name, values)?;
    out.write_all(b",")
}

fn last_column<T: std::fmt::Display>(
    out: &mut dyn Write,
    name: &str,
    values: impl Iterator<Item = T>,
) -> io::Result<()> {
    write!(out, "\"{name}\":")?;
    list(out, values)
}

fn list<T: std::fmt::Display>(
    out: &mut dyn Write,
    values: impl Iterator<Item = T>,
) -> io::Result<()> {
    out.write_all(b"[")?;
    for (number, value) in values.enumerate() {
        comma(out, number)?;
        write!(out, "{value}")?;
    }
    out.write_all(b"]")
}

fn texts<'a>(out: &mut dyn Write, texts: impl Iterator<Item = &'a str>) -> io::Result<()> {
    out.write_all(b"[")?;
    for (number, text) in texts.enumerate() {
        comma(out, number)?;
        write_text(out, text)?;
    }
    out.write_all(b"]")
}

fn comma(out: &mut dyn Write, n_before: usize) -> io::Result<()> {
    if n_before > 0 {
        out.write_all(b",")?;
    }
    Ok(())
}
