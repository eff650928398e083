//! Everything that is known of a session as JSON, by the schema in `docs/reference/schema/model-1.json`.
//!
//! Times are nanoseconds since a start that is given as text, because a number of JSON cannot hold all nanoseconds
//! since 1970 everywhere. Members may be added in a later version of the same number; none is removed or changed.

use std::io::{self, Write};

use heaptide_analysis::model::{ProcessStacks, ProcessSummary, Quality, Reading, StackModel};
use heaptide_tally::Amount;

use super::lines;
use crate::json::Json;
use crate::json::findings::findings;
use crate::text::notes::{remarks, warnings};
use crate::units::timestamp;

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
            Json::from(timestamp(model.start_unix_ns)),
        ),
        (",\"duration_ns\":", duration_ns.into()),
        (",\n\"peak_bytes\":", model.peak_bytes.into()),
        (",\n\"filters\":", texts(&quality.filters)),
        (",\n\"sampling\":", sampling(quality)),
        (",\n\"lost\":", lost(quality)),
        (",\n\"damage\":", damage(quality)),
        (",\n\"notes\":", notes(quality)),
        (",\n\"findings\":", findings(&model.findings)),
    ] {
        out.write_all(before.as_bytes())?;
        lines::value(out, &value)?;
    }
    out.write_all(b",\n\"frames\":")?;
    let frames = model.locations.iter().map(|at| {
        Json::Object(vec![
            ("function", (&*at.function).into()),
            ("file", (&*at.file).into()),
            ("line", u64::try_from(at.line).unwrap_or(0).into()),
        ])
    });
    lines::array(out, frames)?;
    out.write_all(b",\n\"stacks\":")?;
    let stacks = model.stacks.iter().map(|node| {
        Json::Object(vec![
            ("parent", index(node.parent)),
            ("frame", index(Some(node.location))),
        ])
    });
    lines::array(out, stacks)?;
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
        ("{\"pid\":", summary.pid.into()),
        (",\"parent_pid\":", summary.parent_pid.into()),
        (",\"file\":", summary.path.display().to_string().into()),
        (",\n\"command\":", texts(&summary.command)),
        (",\n\"executable\":", process.executable.as_str().into()),
        (
            ",\"working_directory\":",
            process.working_directory.as_str().into(),
        ),
        (",\"host\":", process.host.as_str().into()),
        (",\n\"python_version\":", python_version(process).into()),
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
        (",\n\"total\":", amount(&process.total)),
        (",\"peak\":", amount(&process.peak)),
        (",\"peak_elapsed_ns\":", process.peak_elapsed_ns.into()),
        (",\"leaked\":", amount(&process.leaked)),
        (
            ",\n\"resident_peak_bytes\":",
            summary.resident_peak_bytes.into(),
        ),
        (",\"limit_bytes\":", summary.limit_bytes.into()),
        (",\"own_memory_bytes\":", summary.own_memory_bytes.into()),
        (",\n\"main_thread_id\":", process.main_thread.into()),
    ] {
        out.write_all(before.as_bytes())?;
        lines::value(out, &value)?;
    }
    out.write_all(b",\n\"threads\":")?;
    let threads = process.threads.iter().map(|thread| {
        Json::Object(vec![
            ("id", thread.os_id.into()),
            ("name", thread.name.as_deref().into()),
            ("started_ns", thread.started_ns.into()),
        ])
    });
    lines::array(out, threads)?;
    out.write_all(b",\n\"sites\":")?;
    let sites = process.sites.iter().map(|site| {
        Json::Object(vec![
            ("stack", index(site.stack)),
            ("thread", index(Some(site.thread))),
            ("allocator", site.allocator.name().into()),
            ("total", amount(&site.total)),
            ("peak", amount(&site.peak)),
            ("leaked", amount(&site.leaked)),
            ("temporary", amount(&site.temporary)),
            ("block_time_ns", site.block_time_ns.into()),
        ])
    });
    lines::array(out, sites)?;
    for (before, readings) in [
        (",\n\"heap\":", &process.heap),
        (",\n\"resident\":", &process.resident),
    ] {
        out.write_all(before.as_bytes())?;
        lines::value(out, &series(readings))?;
    }
    out.write_all(b"}")
}

fn index(index: Option<usize>) -> Json {
    index.map(|at| at as u64).into()
}

/// The error is there only where it is not nothing: in sampled captures.
fn amount(amount: &Amount) -> Json {
    let mut members = vec![
        ("bytes", Json::from(amount.bytes)),
        ("count", amount.count.into()),
    ];
    if amount.variance > 0.0 {
        let error = Json::Fraction(amount.error_bytes().round());
        members.push(("error_bytes_95", error));
    }
    Json::Object(members)
}

/// Two columns, because a list of pairs would be twice as long.
fn series(readings: &[Reading]) -> Json {
    let column = |number: fn(&Reading) -> u64| {
        let numbers = readings.iter().map(number);
        numbers.map(Json::from).collect::<Json>()
    };
    Json::Object(vec![
        ("elapsed_ns", column(|reading| reading.elapsed_ns)),
        ("bytes", column(|reading| reading.bytes)),
    ])
}

fn texts(texts: &[String]) -> Json {
    texts.iter().map(|text| text.as_str().into()).collect()
}

fn mode(process: &ProcessStacks) -> Json {
    let mode = process.mode;
    let sample_bytes = (mode.sample_bytes > 0).then_some(mode.sample_bytes);
    Json::Object(vec![
        ("objects", mode.objects.into()),
        ("sample_bytes", sample_bytes.into()),
        ("native", mode.native.into()),
        ("aggregate", mode.aggregate.into()),
        ("follow_fork", mode.follow_fork.into()),
    ])
}

/// `sys.hexversion` as people write it: `3.12.1`, `3.15.0b2`.
fn python_version(process: &ProcessStacks) -> String {
    let [major, minor, micro, level] = process.python_version.to_be_bytes();
    let serial = level & 0xf;
    let stage = match level >> 4 {
        0xa => format!("a{serial}"),
        0xb => format!("b{serial}"),
        0xc => format!("rc{serial}"),
        _ => String::new(),
    };
    format!("{major}.{minor}.{micro}{stage}")
}

fn sampling(quality: &Quality) -> Json {
    let sampling = quality.sampling.map(|sampling| {
        Json::Object(vec![
            ("mean_bytes", sampling.mean_bytes.into()),
            (
                "total_error_bytes_95",
                Json::Fraction(sampling.total_error_bytes.round()),
            ),
            (
                "peak_error_bytes_95",
                Json::Fraction(sampling.peak_error_bytes.round()),
            ),
            (
                "leaked_error_bytes_95",
                Json::Fraction(sampling.live_error_bytes.round()),
            ),
        ])
    });
    sampling.into()
}

fn lost(quality: &Quality) -> Json {
    let lost = quality.lost.iter().map(|&(reason, count)| {
        Json::Object(vec![
            ("what", reason.describe().into()),
            ("count", count.into()),
        ])
    });
    lost.collect()
}

fn damage(quality: &Quality) -> Json {
    let damage = quality.damage.iter().map(|(path, damage)| {
        Json::Object(vec![
            ("file", path.display().to_string().into()),
            ("offset", damage.offset.into()),
            ("note", damage.to_string().into()),
        ])
    });
    damage.collect()
}

fn notes(quality: &Quality) -> Json {
    let notes = warnings(quality).into_iter().chain(remarks(quality));
    notes.map(Json::from).collect()
}
