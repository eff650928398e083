//! Trace events for Perfetto and Chrome: counters of the heap and the resident size, and a mark at the peak.
//!
//! A counter keeps its value until the next event, so Heaptide writes only the first reading, changes and the last one.

use std::io::{self, Write};

use heaptide_analysis::model::{ProcessStacks, ProcessSummary, Reading, StackModel};
use serde_json::{Value, json};

use super::lines;
use crate::json::number;
use crate::shell::command_line;
use crate::units::timestamp;

pub fn write(model: &StackModel, out: &mut dyn Write) -> io::Result<()> {
    let other = json!({
        "exporter": format!("heaptide {}", env!("CARGO_PKG_VERSION")),
        "start_time": timestamp(model.start_unix_ns),
    });
    out.write_all(b"{\"displayTimeUnit\":\"ms\",\"otherData\":")?;
    lines::value(out, &other)?;
    out.write_all(b",\n\"traceEvents\":")?;
    let processes = model.processes.iter().zip(&model.quality.processes);
    let numbers = numbers(&model.quality.processes);
    let events = processes
        .zip(numbers)
        .flat_map(|((process, summary), number)| {
            // Processes of a session share a time axis, which begins at the start of the first process.
            let offset = process.start_unix_ns.saturating_sub(model.start_unix_ns);
            events(process, summary, number, offset)
        });
    lines::array(out, events)?;
    out.write_all(b"}\n")
}

/// Larger than any process ID.
const MAX_PIDS: u64 = 1 << 22;

/// The number of each process in the trace. It is the process ID, unless an earlier process has the same ID: viewers
/// would draw both as one.
fn numbers(processes: &[ProcessSummary]) -> Vec<u64> {
    let mut known: Vec<(&str, u64)> = Vec::new();
    for process in processes {
        let mut number = u64::from(process.pid);
        while let Some((name, _)) = known.iter().find(|(_, taken)| *taken == number) {
            if *name == process.name {
                break;
            }
            number += MAX_PIDS;
        }
        known.push((&process.name, number));
    }
    known.into_iter().map(|(_, number)| number).collect()
}

fn events<'a>(
    process: &'a ProcessStacks,
    summary: &'a ProcessSummary,
    pid: u64,
    offset_ns: u64,
) -> impl Iterator<Item = Value> + 'a {
    let command = command_line(&summary.command);
    // Viewers show the process ID themselves.
    let label = match (
        summary.name == summary.pid.to_string(),
        summary.labels.is_empty(),
    ) {
        (true, true) => command,
        _ => format!("{}: {command}", summary.shown),
    };
    let name = json!({
        "name": "process_name",
        "ph": "M",
        "pid": pid,
        "args": { "name": label },
    });
    let mark = json!({
        "name": "peak of the heap",
        "ph": "i",
        "s": "p",
        "ts": micros(process.own_peak_elapsed_ns, offset_ns),
        "pid": pid,
        "tid": process.main_thread,
        "args": { "bytes": process.own_peak_bytes },
    });
    let counters = |name: &'static str, readings: &'a [Reading]| {
        let changed = readings.iter().enumerate().filter(|&(at, reading)| {
            at + 1 == readings.len() || at == 0 || readings[at - 1].bytes != reading.bytes
        });
        changed.map(move |(_, reading)| {
            json!({
                "name": name,
                "ph": "C",
                "ts": micros(reading.elapsed_ns, offset_ns),
                "pid": pid,
                "args": { "bytes": reading.bytes },
            })
        })
    };
    [name]
        .into_iter()
        .chain(counters("heap", &process.heap))
        .chain(counters("resident size", &process.resident))
        .chain([mark])
}

/// The format counts in microseconds.
fn micros(elapsed_ns: u64, offset_ns: u64) -> Value {
    let ns = elapsed_ns.saturating_add(offset_ns);
    number(ns as f64 / 1000.0)
}
