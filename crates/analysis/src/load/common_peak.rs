//! The common peak of several processes: the moment at which the sum of their heaps was highest, and each site's share of it.
//!
//! Each process peaks at its own time, so the sum of the peaks is more than the machine ever held. The heaps are
//! aligned by the wall-clock start of each recording. Within one clock unit the order of events of two processes is
//! unknown; each process counts with its highest size in that unit. Otherwise the result is exact. If a bin is
//! too coarse to give the moment, further replays split the bins that may contain it into single clock units.
//!
//! A last replay up to the moment gives each site its share. It replaces [`heaptide_tally::Sums::peak`], so every view of the
//! session shows the same moment. Some captures lack events before a checkpoint; if the moment may lie there, each process
//! stays at its own peak.

use std::cmp::Reverse;
use std::ops::Range;

use heaptide_capture::{Allocator, Capture};
use heaptide_tally::{Amount, JobKey, SiteSums, StackDetail, StackId, TallyOptions};
use rustc_hash::FxHashMap;

use super::height_curve::{HeightCurve, Step, sums};
use super::{Process, tally_until};
use crate::filter::Filter;
use crate::model::PeakMoment;

/// Once a replay of all processes records this many clock units exactly, no more are chosen. Each takes up to 32 bytes.
const MAX_EXACT_UNITS: u64 = 1 << 20;
/// Almost every session needs one replay; more than this many would take too long.
const MAX_REPLAYS: usize = 32;

/// Moves the peak of each process to the common peak. `spans` are the clock units of each process that the filter chooses.
pub(super) fn align(
    processes: &mut [Process],
    captures: &[Capture],
    filter: &Filter,
    by_job: bool,
    spans: Vec<Range<u64>>,
) -> PeakMoment {
    if processes.len() <= 1 {
        return PeakMoment::OfProcess;
    }
    // Without totals, the sizes over time were sampled and do not reach the peak.
    if !processes.iter().all(|process| process.sums.has_totals) {
        return PeakMoment::EachOwn;
    }
    let Some((unix_ns, steps)) = find(processes, captures, spans) else {
        return PeakMoment::EachOwn;
    };
    let parts = processes.iter().zip(captures).zip(steps);
    let shares: Option<Vec<Shares>> = parts
        .map(|((process, capture), step)| shares(process, capture, filter, by_job, step))
        .collect();
    let Some(shares) = shares else {
        return PeakMoment::EachOwn;
    };
    for (process, shares) in processes.iter_mut().zip(shares) {
        shares.apply(process);
    }
    let starts = processes.iter();
    let starts = starts.map(|process| process.header.started_unix_ns);
    PeakMoment::Common(unix_ns.saturating_sub(starts.min().unwrap_or(0)))
}

/// The time of the common peak, and the step of each process that runs then. `None` if it cannot be found.
fn find(
    processes: &[Process],
    captures: &[Capture],
    spans: Vec<Range<u64>>,
) -> Option<(u64, Vec<Option<Step>>)> {
    let parts = processes.iter().zip(spans);
    let mut curves: Vec<HeightCurve> = parts
        .map(|(process, span)| HeightCurve::new(process, span))
        .collect();
    for n_replays in 0..=MAX_REPLAYS {
        let mut sums = sums(&curves);
        // The highest sum first; among equal sums, exact ones before others, then the earliest.
        sums.sort_by_key(|sum| (Reverse((sum.bytes, sum.is_exact)), sum.unix_ns));
        let highest = sums.first()?;
        if highest.is_exact {
            let at = highest.unix_ns;
            let steps = curves.iter().map(|curve| curve.at(at)).collect();
            return Some((at, steps));
        }
        if n_replays == MAX_REPLAYS {
            break;
        }
        // Sums below an exact one cannot be the highest.
        let candidates = sums.iter().take_while(|sum| !sum.is_exact);
        let spans = coarse_spans(processes, &curves, candidates.map(|sum| sum.unix_ns))?;
        for (number, spans) in spans.into_iter().enumerate() {
            let (Some(first), Some(last)) = (spans.first(), spans.last()) else {
                continue;
            };
            let options = TallyOptions {
                edges: vec![first.start, last.end],
                stacks: StackDetail::Nothing,
                exact_spans: spans.clone(),
                ..TallyOptions::default()
            };
            let exact = tally_until(&captures[number], &Filter::default(), options);
            curves[number].refine(&processes[number], &spans, &exact.heap_steps);
        }
    }
    None
}

/// Returns, for each process, the inexact spans that contain one of these times, in ascending order. The first time is
/// always included, further ones until [`MAX_EXACT_UNITS`] is reached. `None` if events of the first time are missing.
fn coarse_spans(
    processes: &[Process],
    curves: &[HeightCurve],
    times: impl Iterator<Item = u64>,
) -> Option<Vec<Vec<Range<u64>>>> {
    let mut chosen: Vec<Vec<Range<u64>>> = vec![Vec::new(); processes.len()];
    let mut n_units = 0u64;
    for (at, unix_ns) in times.enumerate() {
        let spans = curves.iter().map(|curve| curve.coarse_span_at(unix_ns));
        let spans: Vec<Option<Range<u64>>> = spans.collect();
        let has_events = |(process, span): (&Process, &Option<Range<u64>>)| {
            span.as_ref()
                .is_none_or(|span| has_events(process, span.start))
        };
        if !processes.iter().zip(&spans).all(has_events) {
            match at {
                0 => return None,
                _ => continue,
            }
        }
        for (chosen, span) in chosen.iter_mut().zip(spans) {
            if let Some(span) = span.filter(|span| !chosen.contains(span)) {
                n_units = n_units.saturating_add(span.end - span.start);
                chosen.push(span);
            }
        }
        if n_units >= MAX_EXACT_UNITS {
            break;
        }
    }
    for spans in &mut chosen {
        spans.sort_unstable_by_key(|span| span.start);
    }
    Some(chosen)
}

/// Whether the events of this clock unit are in the capture, and not only in the sums of a checkpoint.
fn has_events(process: &Process, units: u64) -> bool {
    process
        .times_unknown_until()
        .is_none_or(|until| units > until)
}

/// The memory of a process at the common peak.
enum Shares {
    OfOwnPeak,
    Nothing,
    /// The amount of each site, their sum, and the step of the whole process.
    Sites(Vec<Amount>, Amount, Step),
}

fn shares(
    process: &Process,
    capture: &Capture,
    filter: &Filter,
    by_job: bool,
    step: Option<Step>,
) -> Option<Shares> {
    let Some(step) = step.filter(|step| step.bytes > 0) else {
        return Some(Shares::Nothing);
    };
    let sums = &process.sums;
    if (step.units, step.bytes) == (sums.peak_time, sums.whole_peak_bytes) {
        return Some(Shares::OfOwnPeak);
    }
    if !has_events(process, step.units) {
        return None;
    }
    let options = TallyOptions {
        edges: vec![step.units, step.units.saturating_add(1)],
        jobs: filter.job_detail(capture, by_job),
        ..TallyOptions::default()
    };
    let then = tally_until(capture, filter, options);
    // A running program may have changed its capture in the meantime.
    if then.whole_peak_bytes != step.bytes {
        return None;
    }
    let known: FxHashMap<_, Amount> = then
        .sites
        .iter()
        .map(|site| (key(site), site.peak))
        .collect();
    let sites = sums.sites.iter();
    let sites = sites.map(|site| known.get(&key(site)).copied().unwrap_or_default());
    Some(Shares::Sites(sites.collect(), then.peak, step))
}

/// Both replays number stacks in the order of their first allocation, so equal numbers mean equal stacks.
fn key(site: &SiteSums) -> (StackId, u32, Allocator, JobKey) {
    (site.stack, site.stream, site.allocator, site.job)
}

impl Shares {
    fn apply(self, process: &mut Process) {
        let sums = &mut process.sums;
        let (amounts, sum, (units, whole_bytes)) = match self {
            Shares::OfOwnPeak => return,
            Shares::Nothing => {
                let nothing = vec![Amount::default(); sums.sites.len()];
                (nothing, Amount::default(), (sums.peak_time, 0))
            }
            Shares::Sites(amounts, sum, step) => (amounts, sum, (step.units, step.bytes)),
        };
        let sites = sums.sites.iter_mut().zip(amounts);
        let own = sites.map(|(site, amount)| std::mem::replace(&mut site.peak, amount));
        process.own_site_peaks = own.collect();
        sums.peak = sum;
        sums.peak_time = units;
        sums.whole_peak_bytes = whole_bytes;
    }
}
