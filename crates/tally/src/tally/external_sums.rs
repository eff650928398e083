//! Sums that Heaptide did not compute: those of a foreign file that holds no events.

use heaptide_capture::foreign::{BlockSum, SumSink};
use heaptide_capture::{Allocator, Frame};

use super::Tally;
use crate::amount::Raw;
use crate::jobs::JobKey;
use crate::sites::SiteKey;
use crate::stacks::StackId;

/// Larger than any sum of a real process. The sums of a damaged file are limited to it, so that no sum over sites overflows.
const MAX_SUM: u64 = 1 << 56;

/// Returns a site's sum, limited so that the sum over all sites, which is `whole` before, does not exceed [`MAX_SUM`].
fn raw(sum: BlockSum, whole: Raw) -> Raw {
    Raw {
        bytes: sum.bytes.min(MAX_SUM.saturating_sub(whole.bytes)),
        count: sum.count.min(MAX_SUM.saturating_sub(whole.count)),
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
            job: JobKey::NONE,
            mean: 0,
        });
        let (at_peak, at_end) = (raw(at_peak, self.peak), raw(at_end, self.now));
        let sums = self.sites.change(site);
        sums.peak += at_peak;
        sums.live += at_end;
        self.peak += at_peak;
        self.now += at_end;
    }

    fn add_heap_size(&mut self, time: u64, bytes: u64) {
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
        tally.add_heap_size(7, 120);
        let sums = tally.finish();
        assert_eq!((sums.peak.bytes, sums.peak.count), (150, 3));
        assert_eq!((sums.live.bytes, sums.live.count), (10, 1));
        assert_eq!(sums.sites.len(), 1);
        assert_eq!(sums.sites[0].peak, sums.peak);
        assert_eq!(sums.sites[0].live, sums.live);
        assert_eq!(sums.peak_time, 7);
        assert!(!sums.has_totals);
    }

    #[test]
    fn sums_of_a_damaged_file_do_not_overflow() {
        let mut tally = Tally::without_totals();
        let frame = |code| Frame {
            code,
            instruction: 1,
        };
        let huge = BlockSum {
            bytes: u64::MAX,
            count: u64::MAX,
        };
        for code in 0..3 {
            tally.add_site(&[frame(code)], 1, Allocator::Malloc, huge, huge);
        }
        let sums = tally.finish();
        let by_site = sums.sites.iter().map(|site| u128::from(site.peak.bytes));
        assert_eq!(by_site.sum::<u128>(), u128::from(sums.peak.bytes));
        assert_eq!(sums.peak.bytes, MAX_SUM);
    }
}
