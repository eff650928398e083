//! Sums that were not made here: a file that holds no events, but what they came to.

use super::Tally;
use super::amount::Raw;
use super::sites::SiteKey;
use super::stacks::StackId;
use crate::allocator::Allocator;
use crate::event::Frame;

/// Bytes, and how many blocks they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    pub bytes: u64,
    pub count: u64,
}

impl From<Given> for Raw {
    fn from(given: Given) -> Raw {
        Raw {
            bytes: given.bytes,
            count: given.count,
            variance: 0,
        }
    }
}

impl Tally {
    /// An empty tally for sums that say what was alive at the peak and at the end, and nothing of totals.
    pub fn without_totals() -> Tally {
        Tally {
            has_totals: false,
            ..Tally::new(0)
        }
    }

    /// Adds what one site held at the peak and at the end. `stack` is told from the outermost frame on.
    pub fn give(
        &mut self,
        stack: impl Iterator<Item = Frame>,
        stream: u32,
        allocator: Allocator,
        at_peak: Given,
        at_end: Given,
    ) {
        let stack = stack.fold(StackId::EMPTY, |parent, frame| {
            self.stacks.intern(parent, frame)
        });
        let site = self.sites.intern(SiteKey {
            stack,
            stream,
            allocator: allocator as u8,
        });
        let sums = self.sites.change(site);
        sums.peak += at_peak.into();
        sums.live += at_end.into();
        self.peak += at_peak.into();
        self.now += at_end.into();
    }

    /// The height of the heap at some moment. Times ascend.
    pub fn give_height(&mut self, time: u64, bytes: u64) {
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
    fn what_is_given_for_a_site_comes_out_as_its_peak_and_its_rest() {
        let mut tally = Tally::without_totals();
        let frame = |code| Frame {
            code,
            instruction: 1,
        };
        let given = |bytes, count| Given { bytes, count };
        let stack = || [frame(1), frame(2)].into_iter();
        tally.give(stack(), 1, Allocator::Malloc, given(100, 2), given(10, 1));
        tally.give(stack(), 1, Allocator::Malloc, given(50, 1), given(0, 0));
        tally.give_height(7, 120);
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
