//! `heaptide transform memray`: writes a capture that memray reads.
//!
//! An exact capture becomes a file with all its events. A bounded, sampled or filtered one becomes an aggregated file,
//! which has only sums: memray has no record for a sampled event, which represents several allocations.

use std::io;

use clap::ArgMatches;
use heaptide_analysis::Process;
use heaptide_analysis::events::{Change, Event};
use heaptide_analysis::model::{ProcessStacks, Reading, StackModel};
use heaptide_capture::Allocator;
use heaptide_capture::foreign::BlockSum;
use heaptide_foreign::memray::write::{
    EventWriter, FORMAT_OF_1_19, FORMAT_OF_1_20, Line, MemoryRecord, Preface, StackNode, SumSite,
    Thread, write_sums,
};

use crate::exit::Failure;
use crate::input;
use crate::input::replayed_capture::{ReplayedCapture, Step};
use crate::messages::message;
use crate::output::destination::Destination;

/// The releases of memray that introduced a format: name of the export, its format, and its description.
pub(crate) const RELEASES: [(&str, u32, &str); 2] = [
    (
        "memray",
        FORMAT_OF_1_20,
        "capture for memray 1.20: all events, or sums",
    ),
    ("memray-1.19", FORMAT_OF_1_19, "the same for memray 1.19"),
];
const EXTENSION: &str = "bin";

/// Returns the format of an export with this name.
pub(crate) fn format_named(name: &str) -> Option<u32> {
    let found = RELEASES.iter().find(|release| release.0 == name);
    found.map(|release| release.1)
}

pub(crate) fn write(matches: &ArgMatches, name: &str, format: u32) -> Result<(), Failure> {
    let destination = Destination::choose(matches, input::first(matches)?, name, EXTENSION)?;
    let capture = ReplayedCapture::load(matches)?;
    let (process, stacks) = (capture.process(), capture.stacks());
    let threads = ThreadNumbers::of(process, stacks);
    let parts = PrefaceParts::of(&capture.model, stacks, &threads);
    let preface = parts.preface(format, process, stacks, capture.has_events());
    let mut output = destination.open()?;
    if output.is_terminal() {
        return Err(Failure::Usage(
            "memray's captures are binary: write one to a file or a pipe".into(),
        ));
    }
    if process.header.mode.sample_bytes > 0 {
        message!("the capture is sampled: memray shows its estimates as if they were exact");
    }
    output.write(|mut out| {
        if !capture.has_events() {
            return write_sums(
                &mut out,
                &preface,
                memory_records(stacks),
                sites(stacks, &threads),
            );
        }
        let mut writer = EventWriter::begin(&mut out, &preface)?;
        let written = capture.replay(&mut |step| match step {
            Step::Resident(sample) => writer.resident(sample.elapsed_ns / 1_000_000, sample.bytes),
            Step::Event(event) => write_event(&mut writer, event, threads.number(event.stream)),
        });
        // The replay fails only if the file was removed after loading.
        written.unwrap_or_else(|_| Err(io::ErrorKind::NotFound.into()))?;
        writer.finish()
    })?;
    output.finish()
}

fn write_event<W: io::Write>(
    writer: &mut EventWriter<W>,
    event: Event,
    thread: u64,
) -> io::Result<()> {
    match event.change {
        // A mapped file is not part of the heap, and memray would count it as anonymous memory.
        Change::Alloc {
            allocator: Allocator::MmapFile,
            ..
        } => Ok(()),
        Change::Alloc {
            size,
            allocator,
            stack,
        } => writer.alloc(thread, stack, allocator, event.address, size),
        Change::Free => writer.free(thread, event.address),
        Change::FreeRange { length } => writer.free_range(thread, event.address, length),
    }
}

/// The number of each thread in the file: the operating system's ID, and for a reused ID also the thread's position.
struct ThreadNumbers {
    /// In the order of the model's threads.
    numbers: Vec<u64>,
    /// Stream and number, by stream.
    of_streams: Vec<(u32, u64)>,
}

impl ThreadNumbers {
    fn of(process: &Process, stacks: &ProcessStacks) -> ThreadNumbers {
        let mut numbers: Vec<u64> = Vec::new();
        for (at, thread) in stacks.threads.iter().enumerate() {
            let id = u64::from(thread.os_id);
            let is_taken = id == 0 || numbers.contains(&id);
            let position = if is_taken { at as u64 + 1 } else { 0 };
            numbers.push(position << 32 | id);
        }
        let streams = process.registry.threads.iter();
        let streams = streams.map(|thread| thread.stream);
        ThreadNumbers {
            of_streams: streams.zip(numbers.iter().copied()).collect(),
            numbers,
        }
    }

    fn number(&self, stream: u32) -> u64 {
        let found = self.of_streams.binary_search_by_key(&stream, |&(it, _)| it);
        // If the description of the thread was lost, use a number that no other thread has.
        found.map_or(u64::from(stream) << 32, |at| self.of_streams[at].1)
    }
}

/// The parts of a preface, which borrows them.
struct PrefaceParts<'a> {
    lines: Vec<Line<'a>>,
    nodes: Vec<StackNode>,
    threads: Vec<Thread<'a>>,
}

impl<'a> PrefaceParts<'a> {
    fn of(model: &'a StackModel, stacks: &'a ProcessStacks, numbers: &ThreadNumbers) -> Self {
        let lines = model.locations.iter().map(|at| Line {
            function: &at.function,
            file: &at.file,
            line: at.line,
        });
        let nodes = model.stacks.iter().map(|node| StackNode {
            parent: node.parent,
            line: node.location,
        });
        let threads = stacks.threads.iter().zip(&numbers.numbers);
        let threads = threads.map(|(thread, &number)| Thread {
            number,
            name: thread.name.as_deref().unwrap_or_default(),
        });
        PrefaceParts {
            lines: lines.collect(),
            nodes: nodes.collect(),
            threads: threads.collect(),
        }
    }

    fn preface(
        &'a self,
        format: u32,
        process: &'a Process,
        stacks: &ProcessStacks,
        has_events: bool,
    ) -> Preface<'a> {
        let sums = &process.sums;
        // Without a list of events, their number is computed: every block was allocated, and every block that is not
        // live at the end was freed.
        let n_summed = sums.total.count.saturating_mul(2);
        Preface {
            format,
            header: &process.header,
            n_events: if has_events {
                sums.n_events
            } else {
                n_summed.saturating_sub(sums.live.count)
            },
            duration_ms: stacks.duration_ns / 1_000_000,
            main_thread: process.header.main_thread.into(),
            lines: &self.lines,
            stacks: &self.nodes,
            threads: &self.threads,
        }
    }
}

fn sites<'a>(
    stacks: &'a ProcessStacks,
    threads: &'a ThreadNumbers,
) -> impl Iterator<Item = SumSite> + 'a {
    let sum = |bytes, count| BlockSum { bytes, count };
    let sites = stacks.sites.iter().map(move |site| SumSite {
        thread: threads.numbers.get(site.thread).copied().unwrap_or(0),
        stack: site.stack,
        allocator: site.allocator,
        at_peak: sum(site.peak.bytes, site.peak.count),
        at_end: sum(site.leaked.bytes, site.leaked.count),
    });
    sites.filter(|site| site.at_peak.bytes > 0 || site.at_end.bytes > 0)
}

/// The sizes of process and heap, whenever one of them is known.
fn memory_records(stacks: &ProcessStacks) -> impl Iterator<Item = MemoryRecord> {
    let mut memory_records: Vec<MemoryRecord> = Vec::new();
    let mut resident = &stacks.resident[..];
    let mut heap = &stacks.heap[..];
    let mut sizes = (0, 0);
    let time = |readings: &[Reading]| readings.first().map_or(u64::MAX, |it| it.elapsed_ns);
    while !resident.is_empty() || !heap.is_empty() {
        let now = time(resident).min(time(heap));
        for (readings, size) in [(&mut resident, &mut sizes.0), (&mut heap, &mut sizes.1)] {
            if let Some((first, rest)) = readings.split_first()
                && first.elapsed_ns == now
            {
                *size = first.bytes;
                *readings = rest;
            }
        }
        memory_records.push(MemoryRecord {
            elapsed_ms: now / 1_000_000,
            resident: sizes.0,
            heap: sizes.1,
        });
    }
    memory_records.into_iter()
}
