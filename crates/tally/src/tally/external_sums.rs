//! Sums that Heaptide did not compute: those of a foreign file that holds no events.

use heaptide_capture::foreign::{BlockSum, SumSink};
use heaptide_capture::{Allocator, Frame};

use super::Tally;
use crate::amount::Raw;
use crate::sites::SiteKey;
use crate::stacks::StackId;

fn raw(sum: BlockSum) -> Raw {
    Raw {
        bytes: sum.bytes,
        count: sum.count,
        variance: 0,
    }
}

impl Tally {
    /// Returns an empty tally for sums that cover the peak and the end, without totals.
    pub(super) fn without_totals() -> Tally {
        Tally {
            has_totals: false,
            ..Tally::new(0)
        }
    }
}

impl SumSink for Tally {
    fn add_site(
        &mut self,
        stack: &[Frame],
        stream: u32,
        allocator: Allocator,
        at_peak: BlockSum,
        at_end: BlockSum,
    ) {
        let stack = stack.iter().fold(StackId::EMPTY, |parent, &frame| {
            self.stacks.intern(parent, frame)
        });
        let site = self.sites.intern(SiteKey {
            stack,
            stream,
            allocator: allocator as u8,
        });
        let sums = self.sites.change(site);
        sums.peak += raw(at_peak);
        sums.live += raw(at_end);
        self.peak += raw(at_peak);
        self.now += raw(at_end);
    }

    fn add_height(&mut self, time: u64, bytes: u64) {
        if bytes > self.bytes_highest {
            self.bytes_highest = bytes;
            self.peak_time = time;
        }
        self.series.add(time, self.bytes_before, bytes);
        self.bytes_before = bytes;
        self.time = self.time.max(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_a_site_become_its_peak_and_its_live_bytes() {
        let mut tally = Tally::without_totals();
        let frame = |code| Frame {
            code,
            instruction: 1,
        };
        let sum = |bytes, count| BlockSum { bytes, count };
        let stack = [frame(1), frame(2)];
        tally.add_site(&stack, 1, Allocator::Malloc, sum(100, 2), sum(10, 1));
        tally.add_site(&stack, 1, Allocator::Malloc, sum(50, 1), sum(0, 0));
        tally.add_height(7, 120);
        let sums = tally.finish();
        assert_eq!((sums.peak.bytes, sums.peak.count), (150, 3));
        assert_eq!((sums.live.bytes, sums.live.count), (10, 1));
        assert_eq!(sums.sites.len(), 1);
        assert_eq!(sums.sites[0].peak, sums.peak);
        assert_eq!(sums.sites[0].live, sums.live);
        assert_eq!(sums.peak_time, 7);
        assert!(!sums.has_totals);
    }
}
