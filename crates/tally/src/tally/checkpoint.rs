//! A tally as bytes, and back. A bounded capture replaces events by these bytes.
//!
//! A tally that was written, read and continued gives the same sums as one that never stopped. Numbers of stacks and
//! sites are kept. State that later events restore, such as each thread's position in its chunk, is left out.
//!
//! The bytes come from a file, so reading checks every length against the remaining bytes and every index against the
//! length of its list. It refuses counts so large that further counting would overflow.

use super::{StackDetail, Tally};
use crate::amount::Weigher;
use crate::encoding::{Decoder, Encoder};
use crate::heap_steps::HeapSteps;
use crate::live_blocks::LiveBlocks;
use crate::ranges::Ranges;
use crate::series::HeapSeries;
use crate::sites::Sites;
use crate::sizes::SizeCounts;
use crate::stacks::Stacks;
use crate::threads::Threads;

/// The first byte. Tallies of another version cannot be read.
const VERSION: u8 = 1;

impl Tally {
    /// Returns all sums so far as bytes, without the results of [`Tally::configure`]. `with_blocks` adds live blocks and
    /// the last free of each thread, which a tally needs to take further events.
    pub fn to_bytes(&self, with_blocks: bool) -> Vec<u8> {
        let mut out = Encoder::default();
        out.byte(VERSION);
        out.byte(u8::from(with_blocks));
        out.number(self.weigher.sample_bytes());
        for count in [
            self.n_events,
            self.n_frees,
            self.n_unknown_frees,
            self.n_overlaps,
        ] {
            out.number(count);
        }
        for amount in [self.now, self.peak, self.files_now, self.files_highest] {
            out.amount(amount);
        }
        for number in [
            self.peak_time,
            self.time,
            self.bytes_before,
            self.bytes_highest,
        ] {
            out.number(number);
        }
        self.stacks.write(&mut out);
        self.sites.write(&mut out);
        self.sizes.write(&mut out);
        self.series.write(&mut out);
        if with_blocks {
            self.ranges.write(&mut out);
            self.threads.write(&self.ranges, &mut out);
            self.blocks.write(&mut out);
        }
        out.into_bytes()
    }

    /// Reads a tally that [`Tally::to_bytes`] wrote; `None` if the bytes are invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Tally> {
        let mut input = Decoder::new(bytes);
        if input.byte()? != VERSION {
            return None;
        }
        let with_blocks = match input.byte()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let weigher = Weigher::new(input.number()?);
        let n_events = input.count()?;
        let n_frees = input.count()?;
        let n_unknown_frees = input.count()?;
        let n_overlaps = input.count()?;
        let (now, peak) = (input.amount()?, input.amount()?);
        let (files_now, files_highest) = (input.amount()?, input.amount()?);
        let (peak_time, time) = (input.number()?, input.number()?);
        let (bytes_before, bytes_highest) = (input.number()?, input.number()?);
        let stacks = Stacks::read(&mut input)?;
        let sites = Sites::read(&mut input, stacks.n_stacks())?;
        let sizes = SizeCounts::read(&mut input)?;
        let series = HeapSeries::read(&mut input)?;
        let mut ranges = Ranges::default();
        let mut threads = Threads::default();
        let mut blocks = LiveBlocks::new();
        if with_blocks {
            ranges = Ranges::read(&mut input, sites.len())?;
            let n_may_undo;
            (threads, n_may_undo) = Threads::read(&mut input, &ranges, sites.len())?;
            if n_may_undo > n_frees {
                return None;
            }
            blocks = LiveBlocks::read(&mut input, sites.len())?;
        }
        input.is_at_end().then_some(Tally {
            weigher,
            stacks,
            sites,
            blocks,
            ranges,
            sizes,
            threads,
            now,
            peak,
            peak_time,
            files_now,
            files_highest,
            series,
            steps: HeapSteps::default(),
            time,
            first_time: time,
            bytes_before,
            bytes_highest,
            n_events,
            n_frees,
            n_unknown_frees,
            n_overlaps,
            has_totals: true,
            n_recent: 0,
            stack_detail: StackDetail::Whole,
            next_edge: None,
            epoch: 0,
            has_begun: true,
            is_over: false,
            knows_births: n_events == 0,
        })
    }
}
