//! All data of a session as JSON, with the schema `docs/reference/schema/model-1.json`.
//!
//! Times are nanoseconds since a start that is given as text, because many JSON readers cannot represent nanoseconds since
//! 1970 as numbers. Within one version of the schema, members may be added, but none is removed or changed.

use std::fmt;
use std::io::{self, Write};

use heaptide_analysis::model::{ProcessStacks, ProcessSummary, Quality, Reading, StackModel};
use heaptide_tally::Amount;

use serde_json::{Value, json};

use super::lines;
use crate::json::findings::findings;
use crate::json::{damage, identity, labels, location, lost, peak_moment, sampling, text_or_null};
use crate::text::notes::{asides, remarks, warnings};
use crate::units::{python_version, timestamp};

const FORMAT: &str = "heaptide-model";
const VERSION: u64 = 1;

pub fn write(model: &StackModel, out: &mut dyn Write) -> io::Result<()> {
    let quality = &model.quality;
    let duration_ns = model.end_unix_ns.saturating_sub(model.start_unix_ns);
    let generator = format!("heaptide {}", env!("CARGO_PKG_VERSION"));
    for (before, value) in [
        ("{\"format\":", FORMAT.into()),
        (",\"version\":", VERSION.into()),
        (",\n\"generator\":", generator.into()),
        (
            ",\n\"start_time\":",
            Value::from(timestamp(model.start_unix_ns)),
        ),
        (",\"duration_ns\":", duration_ns.into()),
        (",\n\"peak_bytes\":", model.peak_bytes.into()),
        (",\n\"peak_moment\":", peak_moment(quality)),
        (",\n\"filters\":", texts(&quality.filters)),
        (
            ",\n\"sampling\":",
            sampling(quality, "leaked_error_bytes_95"),
        ),
        (",\n\"lost\":", lost(quality)),
        (",\n\"damage\":", damage(quality)),
        (",\n\"notes\":", notes(quality)),
        (",\n\"findings\":", findings(&model.findings)),
    ] {
        out.write_all(before.as_bytes())?;
        lines::value(out, &value)?;
    }
    out.write_all(b",\n\"frames\":")?;
    lines::array(out, model.locations.iter().map(location))?;
    out.write_all(b",\n\"stacks\":")?;
    lines::array_with(out, model.stacks.iter(), |out, node| {
        let parent = or_null(node.parent);
        write!(out, r#"{{"parent":{parent},"frame":{}}}"#, node.location)
    })?;
    if !model.jobs.is_empty() {
        out.write_all(b",\n\"jobs\":")?;
        lines::value(out, &texts(&model.jobs))?;
    }
    out.write_all(b",\n\"processes\":[")?;
    let processes = model.processes.iter().zip(&quality.processes);
    for (at, (process, summary)) in processes.enumerate() {
        out.write_all(if at > 0 { b",\n" } else { b"\n" })?;
        self::process(out, process, summary)?;
    }
    out.write_all(b"\n]}\n")
}

fn process(
    out: &mut dyn Write,
    process: &ProcessStacks,
    summary: &ProcessSummary,
) -> io::Result<()> {
    for (before, value) in [
        ("{\"process\":", summary.name.as_str().into()),
        (",\"pid\":", summary.pid.into()),
        (",\"parent_pid\":", summary.parent_pid.into()),
        (",\"identity\":", identity(&summary.identity)),
        (",\"title\":", summary.title.as_str().into()),
        (",\"labels\":", labels(&summary.labels)),
        (",\"run\":", text_or_null(&summary.run)),
        (",\"file\":", summary.path.display().to_string().into()),
        (",\n\"command\":", texts(&summary.command)),
        (",\n\"executable\":", process.executable.as_str().into()),
        (
            ",\"working_directory\":",
            process.working_directory.as_str().into(),
        ),
        (",\"host\":", process.host.as_str().into()),
        (
            ",\n\"python_version\":",
            python_version(process.python_version).into(),
        ),
        (
            ",\"python_allocator\":",
            process.python_allocator.as_str().into(),
        ),
        (",\"mode\":", mode(process)),
        (
            ",\n\"start_time\":",
            timestamp(process.start_unix_ns).into(),
        ),
        (",\"duration_ns\":", process.duration_ns.into()),
        (",\"ended_in_order\":", summary.ended_in_order.into()),
        (",\"joined_late\":", summary.joined_late.into()),
        (",\"num_events\":", summary.n_events.into()),
    ] {
        out.write_all(before.as_bytes())?;
        lines::value(out, &value)?;
    }
    write!(
        out,
        ",\n\"total\":{},\"peak\":{},\"peak_elapsed_ns\":{},\"leaked\":{},\n\"resident_peak_bytes\":{},\
         \"limit_bytes\":{},\"own_memory_bytes\":{},\n\"main_thread_id\":{},\n\"threads\":",
        AmountJson(&process.total),
        AmountJson(&process.peak),
        process.peak_elapsed_ns,
        AmountJson(&process.leaked),
        or_null(summary.resident_peak_bytes),
        or_null(summary.limit_bytes),
        summary.own_memory_bytes,
        process.main_thread,
    )?;
    let threads = process.threads.iter().map(|thread| {
        json!({
            "id": thread.os_id,
            "name": thread.name.as_deref(),
            "started_ns": thread.started_ns,
        })
    });
    lines::array(out, threads)?;
    out.write_all(b",\n\"sites\":")?;
    // Written directly: there can be millions of sites.
    lines::array_with(out, process.sites.iter(), |out, site| {
        let job = match site.job {
            Some(job) => format!(r#""job":{job},"#),
            None => String::new(),
        };
        write!(
            out,
            r#"{{"stack":{},"thread":{},{job}"allocator":"{}","total":{},"peak":{},"leaked":{},"temporary":{},"block_time_ns":{}}}"#,
            or_null(site.stack),
            site.thread,
            site.allocator.name(),
            AmountJson(&site.total),
            AmountJson(&site.peak),
            AmountJson(&site.leaked),
            AmountJson(&site.temporary),
            or_null(site.block_time_ns),
        )
    })?;
    for (before, readings) in [
        (",\n\"heap\":", &process.heap),
        (",\n\"resident\":", &process.resident),
    ] {
        out.write_all(before.as_bytes())?;
        lines::value(out, &series(readings))?;
    }
    out.write_all(b"}")
}

fn or_null(number: Option<impl fmt::Display>) -> String {
    number.map_or_else(|| "null".to_owned(), |number| number.to_string())
}

/// The error is written only for sampled captures.
struct AmountJson<'a>(&'a Amount);

impl fmt::Display for AmountJson<'_> {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let AmountJson(amount) = self;
        write!(
            out,
            r#"{{"bytes":{},"count":{}"#,
            amount.bytes, amount.count
        )?;
        if amount.variance > 0.0 {
            let error = amount.error_bytes().round();
            write!(out, r#","error_bytes_95":{error}"#)?;
        }
        out.write_str("}")
    }
}

/// Two columns, because a list of pairs would be twice as long.
fn series(readings: &[Reading]) -> Value {
    let column = |number: fn(&Reading) -> u64| {
        let numbers = readings.iter().map(number);
        numbers.map(Value::from).collect::<Value>()
    };
    json!({
        "elapsed_ns": column(|reading| reading.elapsed_ns),
        "bytes": column(|reading| reading.bytes),
    })
}

fn texts(texts: &[String]) -> Value {
    texts.iter().map(String::as_str).collect()
}

fn mode(process: &ProcessStacks) -> Value {
    let mode = process.mode;
    let sample_bytes = (mode.sample_bytes > 0).then_some(mode.sample_bytes);
    json!({
        "objects": mode.objects,
        "sample_bytes": sample_bytes,
        "native": mode.native,
        "aggregate": mode.aggregate,
        "follow_fork": mode.follow_fork,
    })
}

fn notes(quality: &Quality) -> Value {
    let notes = warnings(quality).into_iter().chain(remarks(quality));
    let notes = notes.chain(asides(quality));
    notes.map(Value::from).collect()
}
