//! The heap of one process over time as steps, and the sum of several such curves.
//!
//! A step is the highest size of the heap from its time until the next step. Steps of one clock unit are exact. A step that
//! covers a bin of several clock units is an upper bound, until [`HeightCurve::refine`] replaces it.

use std::ops::Range;

use super::Process;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Clock units of the process.
    pub units: u64,
    pub unix_ns: u64,
    pub bytes: u64,
    /// Whether the heap had this size at `units`. Otherwise the size is an upper bound for the whole step.
    pub is_exact: bool,
}

/// Ascending by time. The last step is the end of the process or of the span, and has no memory.
pub struct HeightCurve {
    steps: Vec<Step>,
}

impl HeightCurve {
    /// The curve of a process within a span of time.
    pub fn new(process: &Process, span: Range<u64>) -> HeightCurve {
        let sums = &process.sums;
        let series = &sums.heap;
        let after_last_event = sums.last_time.saturating_add(1);
        let end = process.end_units().max(after_last_event).min(span.end);
        let is_bin_exact = series.bin_units == 1;
        let bins = series.highest.iter().enumerate();
        let bins = bins.map(|(bin, &bytes)| (series.bin_start(bin), bytes, is_bin_exact));
        let after_bins = match series.highest.len() {
            0 => None,
            n => Some((series.bin_start(n), sums.whole_end_bytes, true)),
        };
        let mut steps: Vec<(u64, u64, bool)> = Vec::new();
        for (units, bytes, is_exact) in bins.chain(after_bins) {
            if units.max(span.start) >= end {
                break;
            }
            let (units, is_exact) = match units < span.start {
                // Part of the step lies before the span, and its highest size may lie there.
                true => (span.start, is_exact && units >= after_last_event),
                false => (units, is_exact),
            };
            if steps.last().is_some_and(|last| last.0 == units) {
                steps.pop();
            }
            steps.push((units, bytes, is_exact));
        }
        steps.push((end, 0, true));
        let step = |(units, bytes, is_exact)| Step {
            units,
            unix_ns: process.unix_ns(units),
            bytes,
            is_exact,
        };
        HeightCurve {
            steps: steps.into_iter().map(step).collect(),
        }
    }

    /// The step that applies at this time. If several begin then, because the clock is too coarse, it is the highest of
    /// them.
    pub fn at(&self, unix_ns: u64) -> Option<Step> {
        let n_begun = self.steps.partition_point(|step| step.unix_ns <= unix_ns);
        let last = *self.steps.get(n_begun.checked_sub(1)?)?;
        let begun = self.steps[..n_begun].iter().rev();
        let same_time = begun.take_while(|step| step.unix_ns == last.unix_ns);
        let highest = same_time.copied().max_by_key(|step| step.bytes)?;
        Some(if last.unix_ns == unix_ns {
            highest
        } else {
            last
        })
    }

    /// The clock units of the step that applies at this time, if it is not exact.
    pub fn coarse_span_at(&self, unix_ns: u64) -> Option<Range<u64>> {
        let n_begun = self.steps.partition_point(|step| step.unix_ns <= unix_ns);
        let step = self.steps.get(n_begun.checked_sub(1)?)?;
        let next = self.steps.get(n_begun)?;
        (!step.is_exact).then_some(step.units..next.units)
    }

    /// Replaces the steps in these spans by exact ones. The spans begin and end at steps, and ascend.
    pub fn refine(&mut self, process: &Process, spans: &[Range<u64>], exact: &[(u64, u64)]) {
        let is_replaced = |units: u64| {
            let at = spans.partition_point(|span| span.end <= units);
            spans.get(at).is_some_and(|span| span.start <= units)
        };
        let mut steps: Vec<Step> = std::mem::take(&mut self.steps);
        steps.retain(|step| !is_replaced(step.units));
        let wanted = exact.iter().filter(|&&(units, _)| is_replaced(units));
        steps.extend(wanted.map(|&(units, bytes)| Step {
            units,
            unix_ns: process.unix_ns(units),
            bytes,
            is_exact: true,
        }));
        // Stable: of two steps at the same time, the later one applies.
        steps.sort_by_key(|step| step.units);
        steps.dedup_by(|later, earlier| {
            let is_same = later.units == earlier.units;
            if is_same {
                *earlier = *later;
            }
            is_same
        });
        self.steps = steps;
    }
}

/// The sum of the curves from a time until the next sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    pub unix_ns: u64,
    pub bytes: u64,
    /// Whether all steps in it are exact.
    pub is_exact: bool,
}

/// The sums of all curves whenever one of them changes, ascending by time.
pub fn sums(curves: &[HeightCurve]) -> Vec<Sum> {
    let mut changes: Vec<(u64, usize, usize)> = Vec::new();
    for (number, curve) in curves.iter().enumerate() {
        let steps = curve.steps.iter().enumerate();
        changes.extend(steps.map(|(at, step)| (step.unix_ns, number, at)));
    }
    changes.sort_unstable();
    let mut now: Vec<(u64, bool)> = vec![(0, true); curves.len()];
    let (mut bytes, mut n_coarse) = (0u64, 0usize);
    let mut sums = Vec::new();
    for same_time in changes.chunk_by(|one, other| one.0 == other.0) {
        let mut set = |number: usize, height: u64, is_exact: bool| {
            let before = std::mem::replace(&mut now[number], (height, is_exact));
            bytes = bytes.saturating_sub(before.0).saturating_add(height);
            n_coarse = n_coarse + usize::from(!is_exact) - usize::from(!before.1);
            (bytes, n_coarse)
        };
        let mut highest = (0, 0);
        for of_process in same_time.chunk_by(|one, other| one.1 == other.1) {
            let steps = of_process.iter();
            let steps = steps.map(|&(_, number, at)| curves[number].steps[at]);
            if let Some(step) = steps.max_by_key(|step| step.bytes) {
                highest = set(of_process[0].1, step.bytes, step.is_exact);
            }
        }
        sums.push(Sum {
            unix_ns: same_time[0].0,
            bytes: highest.0,
            is_exact: highest.1 == 0,
        });
        // If several steps have the same time, the last one applies from then on.
        for &(_, number, at) in same_time {
            let step = curves[number].steps[at];
            set(number, step.bytes, step.is_exact);
        }
    }
    sums
}
