//! The size of the heap in chosen spans of time, clock unit by clock unit.
//!
//! [`crate::HeapSeries`] covers the whole run in a bounded number of bins. Within a chosen span, no bin hides a short rise.
//! Memory grows with the number of clock units of the spans in which something happened, so callers choose short spans.

use std::ops::Range;

/// Records the heap in the chosen spans.
#[derive(Default)]
pub(crate) struct HeapSteps {
    /// Clock units; ascending and disjoint.
    spans: Vec<Range<u64>>,
    /// Number of spans that are over.
    n_over: usize,
    /// The first step of the current span is recorded.
    has_begun: bool,
    /// Clock units, and the highest number of bytes from then until the next step.
    steps: Vec<(u64, u64)>,
}

impl HeapSteps {
    pub fn new(spans: Vec<Range<u64>>) -> HeapSteps {
        HeapSteps {
            spans,
            ..HeapSteps::default()
        }
    }

    pub fn is_wanted(&self) -> bool {
        !self.spans.is_empty()
    }

    /// The heap had `before` bytes until `time`, at most `highest` in that clock unit, and `after` at its end.
    pub fn add(&mut self, time: u64, before: u64, highest: u64, after: u64) {
        while let Some(span) = self.spans.get(self.n_over).filter(|it| it.start <= time) {
            if !std::mem::replace(&mut self.has_begun, true) {
                self.steps.push((span.start, before));
            }
            if time < span.end {
                self.steps.push((time, highest));
                self.steps.push((time.saturating_add(1), after));
                return;
            }
            self.n_over += 1;
            self.has_begun = false;
        }
    }

    /// Returns all steps. `after` is the size of the heap after the last event.
    pub fn finish(mut self, after: u64) -> Vec<(u64, u64)> {
        let first = self.n_over + usize::from(self.has_begun);
        let later = self.spans.get(first..).unwrap_or_default();
        self.steps
            .extend(later.iter().map(|span| (span.start, after)));
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_without_events_have_the_size_before_or_after_them() {
        let mut heap = HeapSteps::new(vec![2..4, 6..9, 20..30]);
        heap.add(1, 0, 50, 10);
        heap.add(7, 10, 90, 20);
        heap.add(12, 20, 30, 30);
        let steps = [(2, 10), (6, 10), (7, 90), (8, 20), (20, 30)];
        assert_eq!(heap.finish(30), steps);
    }
}
