//! Notes about the reliability of the numbers.

use std::collections::BTreeMap;

use heaptide_analysis::job_runs::JobRuns;
use heaptide_analysis::model::{
    Measure, ModeInterval, PeakMoment, ProcessSummary, Quality, Stopped,
};
use heaptide_capture::Lost;

use super::findings::seconds;
use super::mode::modes;
use crate::units::{binary_size, count, percent, size};

/// Notes that every report must print before its numbers: captures whose recording failed before the end.
pub fn incomplete(quality: &Quality) -> Vec<String> {
    let processes = quality.processes.iter();
    let stopped = processes.filter_map(|process| {
        let note = missing_rest(
            process.stopped.as_ref()?,
            "from then until the process ended",
        );
        Some(format!("process {}: {note}", process.shown))
    });
    stopped.collect()
}

/// The same notes for a table of jobs; `worker` names a process by its number.
pub fn incomplete_jobs(runs: &JobRuns, worker: &dyn Fn(u32) -> String) -> Vec<String> {
    let processes = (0u32..).zip(&runs.processes);
    let stopped = processes.filter_map(|(number, process)| {
        let stopped = process.stopped.as_ref()?;
        let note = missing_rest(stopped, "from then until the process ended");
        Some(format!("process {}: {note}", worker(number)))
    });
    stopped.collect()
}

/// The sentence about a recording that failed; `until` names the end of the time whose dropped events were counted.
pub fn missing_rest(stopped: &Stopped, until: &str) -> String {
    let dropped = match stopped.n_dropped {
        1 => "one event was dropped".to_owned(),
        n => format!("{} events were dropped", count(n)),
    };
    format!(
        "the capture is incomplete: recording stopped after {} ({}), and {dropped} {until}",
        seconds(stopped.elapsed_ns),
        stopped.reason
    )
}

/// All notes that every report must print: incomplete captures first.
pub fn warnings(quality: &Quality) -> Vec<String> {
    let mut notes = incomplete(quality);
    notes.extend(other_warnings(quality));
    notes
}

/// All warnings except those about incomplete captures: filters, sampling, loss, damage.
pub fn other_warnings(quality: &Quality) -> Vec<String> {
    let mut notes = Vec::new();
    if !quality.filters.is_empty() {
        notes.push(format!("filtered by {}", quality.filters.join(" ")));
    }
    notes.extend(unknown_times(quality));
    if let Some(sampling) = &quality.sampling {
        let sum = |number| sum_of(quality, number);
        let share = |error: f64, of: u64| percent(error.round() as u64, of);
        let is_mixed = quality
            .processes
            .iter()
            .any(|process| process.modes.len() > 1);
        let parts = if is_mixed { "partly " } else { "" };
        notes.push(format!(
            "{parts}sampled every {} on average: total ± {:.1}%, peak ± {:.1}% (95%)",
            binary_size(sampling.mean_bytes),
            share(
                sampling.total_error_bytes,
                sum(|process| process.total_bytes)
            ),
            share(
                sampling.peak_error_bytes,
                sum(|process| process.at_peak_bytes)
            ),
        ));
    }
    notes.extend(mode_changes(quality));
    if quality.n_runs > 1 {
        notes.push(format!(
            "the captures are of {} different runs; the report shows their sum, `heaptide diff` compares two",
            quality.n_runs
        ));
    }
    notes.extend(clock_difference(quality));
    for process in &quality.processes {
        if let Some(bytes) = process.attached_at_bytes {
            notes.push(format!(
                "attached to process {} at a resident size of {}; earlier allocations are not in the capture",
                process.shown,
                size(bytes)
            ));
        }
    }
    if quality.lacks_totals {
        notes.push(
            "an aggregated capture of memray has no totals; the blocks at the peak are shown instead"
                .to_owned(),
        );
    }
    for &(reason, count) in &quality.lost {
        notes.push(format!(
            "missing: {count} {}; {}",
            reason.describe(),
            effect(reason)
        ));
    }
    if !quality.damage.is_empty() {
        let n = quality.damage.len();
        let parts = if n == 1 { "one part" } else { "several parts" };
        notes.push(format!(
            "the capture is damaged in {parts}; the rest is shown, and sums lack the damaged events"
        ));
    }
    if quality.n_overlaps > 0 {
        notes.push(format!(
            "{} blocks were allocated at the address of a live block; some frees were not recorded, so the peak may \
             include up to that many freed blocks",
            count(quality.n_overlaps)
        ));
    }
    notes
}

/// The largest difference between the clocks of hosts that the report combines, if it is known.
fn clock_difference(quality: &Quality) -> Option<String> {
    let hosts = &quality.hosts;
    if hosts.len() < 2 {
        return None;
    }
    let names = hosts.join(", ");
    Some(match quality.clock_difference_ns {
        Some(ns) => format!(
            "processes of {} hosts ({names}) are aligned by their clocks, which differ by up to {}",
            hosts.len(),
            seconds(ns)
        ),
        None => format!(
            "processes of {} hosts ({names}) are aligned by their clocks; the difference of the clocks is unknown",
            hosts.len()
        ),
    })
}

/// The part of an interval that bounded captures cannot tell from the time before it.
fn unknown_times(quality: &Quality) -> Option<String> {
    let processes = quality.processes.iter().filter(|_| quality.has_interval);
    let unknown = processes.filter_map(|it| Some((it.shown.as_str(), it.times_unknown_until_ns?)));
    let unknown: Vec<(&str, u64)> = unknown.collect();
    match unknown.as_slice() {
        [] => None,
        [(shown, ns)] => Some(format!(
            "the bounded capture of process {shown} has no times before {}: the interval includes all its earlier allocations",
            seconds(*ns)
        )),
        several => Some(format!(
            "{} bounded captures have no times before their last checkpoints: the interval includes all their earlier \
             allocations",
            several.len()
        )),
    }
}

/// How each process was recorded, if its mode changed.
fn mode_changes(quality: &Quality) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let changed = quality.processes.iter().filter(|it| it.modes.len() > 1);
    for process in changed.clone().take(MAX_CHANGED) {
        let mut note = format!(
            "process {} was recorded {}",
            process.name,
            modes(&process.modes)
        );
        let turned_on = |pair: &[ModeInterval]| pair[1].mode.objects && !pair[0].mode.objects;
        if process.modes.windows(2).any(turned_on) {
            note.push_str("; objects created before Python objects were recorded are not counted");
        }
        notes.push(note);
    }
    let n_more = changed.count().saturating_sub(MAX_CHANGED);
    if n_more > 0 {
        notes.push(format!(
            "the mode of {n_more} more processes changed; see --json"
        ));
    }
    if !notes.is_empty() {
        notes.extend(unchanged_modes(quality));
    }
    notes
}

/// One note for each mode: how many processes it recorded from start to end.
fn unchanged_modes(quality: &Quality) -> Vec<String> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for process in quality.processes.iter().filter(|it| it.modes.len() == 1) {
        *counts.entry(modes(&process.modes)).or_default() += 1;
    }
    let note = |(mode, n): (String, u64)| match n {
        1 => format!("1 other process was recorded {mode}"),
        n => format!("{n} other processes were recorded {mode}"),
    };
    counts.into_iter().map(note).collect()
}

/// The maximum number of processes whose modes are listed.
const MAX_CHANGED: usize = 4;

/// The sum of a number over all processes.
fn sum_of(quality: &Quality, number: fn(&ProcessSummary) -> u64) -> u64 {
    let numbers = quality.processes.iter().map(number);
    numbers.fold(0, u64::saturating_add)
}

/// The numbers that lost records change.
fn effect(reason: Lost) -> &'static str {
    match reason {
        Lost::WriteFailed | Lost::Reentered | Lost::NoThreadState | Lost::SampleTableFull => {
            "totals, peak and leaks lack them"
        }
        Lost::DeepStack | Lost::UnreadableCode | Lost::CutNativeStack => {
            "sums are complete, but lack callers"
        }
    }
}

/// Arenas get a note from this share of the heap and this size on: every program has a few.
const MIN_ARENA_SHARE: f64 = 0.2;
const MIN_ARENA_BYTES: u64 = 4 << 20;

/// A note that part of `whole` bytes lies in arenas of Python's object allocator, if that matters. `when` is the text
/// after the sizes.
pub fn arenas(bytes: u64, whole: u64, when: &str) -> Option<String> {
    let is_much = bytes >= MIN_ARENA_BYTES && bytes as f64 >= whole as f64 * MIN_ARENA_SHARE;
    is_much.then(|| {
        format!(
            "{} of {} {when} are Python object arenas; record with --objects to see what is in them",
            size(bytes),
            size(whole)
        )
    })
}

/// As [`arenas`], for the blocks of a measure.
pub fn arenas_of(quality: &Quality, measure: Measure) -> Option<String> {
    let sum = |bytes| sum_of(quality, bytes);
    let known = quality.arenas;
    match measure {
        Measure::Leaked => {
            let whole = sum(|process| process.live_bytes);
            arenas(known.live_bytes, whole, "alive at the end")
        }
        _ => {
            let whole = sum(|process| process.at_peak_bytes);
            arenas(known.peak_bytes, whole, "at the peak")
        }
    }
}

/// Notes below a table or a tree of this measure. Those about [`incomplete`] captures are printed above it.
pub fn footer(quality: &Quality, measure: Measure) -> Vec<String> {
    let mut notes = other_warnings(quality);
    notes.extend(arenas_of(quality, measure));
    notes
}

/// Notes on the meaning of the numbers, for reports with room for them.
pub fn remarks(quality: &Quality) -> Vec<String> {
    let mut notes = Vec::new();
    if quality.is_part {
        notes.push(
            "the report shows the filter's share of the peak of the whole process; the heap over time is not filtered"
                .to_owned(),
        );
    }
    if quality.peak_moment == PeakMoment::EachOwn {
        notes.push(
            "the common peak of the processes is unknown, because the captures have sums instead of events for that time"
                .to_owned(),
        );
    }
    notes
}

/// Notes that change no number and need no action. Reports show them in one line at the end.
pub fn asides(quality: &Quality) -> Vec<String> {
    let mut notes = Vec::new();
    if quality.mapped_files_bytes > 0 {
        notes.push(format!(
            "up to {} of files were mapped at a time, which are not part of the heap",
            size(quality.mapped_files_bytes)
        ));
    }
    if quality.n_unknown_frees > 0 {
        notes.push(match quality.n_unknown_frees {
            1 => "one free of a block allocated before recording began".to_owned(),
            n => format!(
                "{} frees of blocks allocated before recording began",
                count(n)
            ),
        });
    }
    let processes = quality.processes.iter();
    let not_ended =
        processes.filter(|process| !process.ended_in_order && process.stopped.is_none());
    let not_ended: Vec<&str> = not_ended.map(|process| process.shown.as_str()).collect();
    match not_ended.as_slice() {
        [] => {}
        [one] => notes.push(format!(
            "process {one} did not end its recording: it was killed, called os._exit(), replaced itself with another program, or \
             is still running"
        )),
        [first, .., last] => notes.push(format!(
            "{} processes, {first} to {last}, did not end their recordings: they were killed, called os._exit(), replaced \
             themselves with other programs, or are still running",
            not_ended.len()
        )),
    }
    notes
}

/// The notes without effect as one line, or `None` if there are none.
pub fn folded(quality: &Quality) -> Option<String> {
    let notes = asides(quality);
    let text = notes.join("; ");
    match notes.len() {
        0 => None,
        1 => Some(format!("without effect on the numbers: {text}")),
        n => Some(format!("{n} notes without effect on the numbers: {text}")),
    }
}

/// The moment of all numbers at the peak, if the report covers several processes.
pub fn peak_heading(quality: &Quality) -> Option<String> {
    let n_processes = quality.processes.len();
    match quality.peak_moment {
        PeakMoment::OfProcess => None,
        PeakMoment::Common(ns) => Some(format!(
            "{n_processes} processes at their common peak, {} after the start",
            seconds(ns)
        )),
        PeakMoment::EachOwn => Some(format!("{n_processes} processes, each at its own peak")),
    }
}

/// The moment of all live blocks, if the report covers several processes to their ends.
pub fn end_heading(quality: &Quality) -> Option<String> {
    let n_processes = quality.processes.len();
    let is_needed = n_processes > 1 && !quality.has_interval;
    is_needed.then(|| format!("{n_processes} processes, each at its own end"))
}

/// The heading of a table or a tree of this measure, if it needs one.
pub fn heading(quality: &Quality, measure: Measure) -> Option<String> {
    match measure {
        Measure::Peak => peak_heading(quality),
        Measure::Leaked => end_heading(quality),
        Measure::Total | Measure::Temporary => None,
    }
}

#[cfg(test)]
mod tests {
    use heaptide_capture::Mode;

    use super::*;

    fn process(name: &str, sample_bytes: &[u64]) -> ProcessSummary {
        let interval = |(at, &sample_bytes): (usize, &u64)| ModeInterval {
            from_ns: at as u64 * 1_000_000_000,
            mode: Mode {
                sample_bytes,
                ..Mode::default()
            },
        };
        ProcessSummary {
            name: name.to_owned(),
            modes: sample_bytes.iter().enumerate().map(interval).collect(),
            ..ProcessSummary::default()
        }
    }

    #[test]
    fn notes_on_changed_modes_also_name_the_modes_of_other_processes() {
        let mut quality = Quality {
            processes: vec![process("7", &[0, 65536]), process("8", &[65536])],
            ..Quality::default()
        };
        assert_eq!(
            mode_changes(&quality),
            [
                "process 7 was recorded exact; from 1.000 s on sampled every 64 KiB",
                "1 other process was recorded sampled every 64 KiB"
            ]
        );
        quality.processes.remove(0);
        assert!(mode_changes(&quality).is_empty());
    }
}
