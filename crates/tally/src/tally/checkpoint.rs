//! A tally as bytes, and back. A bounded capture replaces events by these bytes.
//!
//! A tally that was written, read and continued gives the same sums as one that never stopped. Stacks and sites keep
//! their numbers. State that later events restore, such as each thread's position in its chunk, is left out.
//!
//! The bytes come from a file, so reading checks every length against the remaining bytes and every index against the
//! length of its list. It refuses counts so large that further counting would overflow.

use super::{Modes, Tally};
use crate::amount::Weigher;
use crate::encoding::{Decoder, Encoder};
use crate::jobs::JobStates;
use crate::live_blocks::LiveBlocks;
use crate::ranges::Ranges;
use crate::series::HeapSeries;
use crate::sites::Sites;
use crate::sizes::SizeCounts;
use crate::stacks::Stacks;
use crate::threads::Threads;

/// The first byte. Tallies of another version cannot be read.
const VERSION: u8 = 1;
/// A flag in the first byte, next to the version: sites have jobs, and the sums of jobs follow at the end.
const WITH_JOBS: u8 = 2;
/// Another flag: sites have sampling distances, because the mode has changed.
const WITH_MODES: u8 = 4;

impl Tally {
    /// Returns all sums so far as bytes. Of the results that [`Tally::configure`] adds, only sums of jobs are included.
    /// `with_blocks` adds live blocks and the last free of each thread, which a tally needs to take further events.
    pub fn to_bytes(&self, with_blocks: bool) -> Vec<u8> {
        let mut out = Encoder::default();
        let jobs = self.jobs.as_ref().filter(|jobs| !jobs.states.is_empty());
        let with_jobs = jobs.is_some() || self.sites.has_jobs();
        let is_mixed = self.modes.are_mixed();
        out.byte(VERSION | flag(with_jobs, WITH_JOBS) | flag(is_mixed, WITH_MODES));
        out.byte(u8::from(with_blocks));
        if is_mixed {
            out.number(self.weigher.unit());
            self.modes.write(&mut out);
        } else {
            out.number(self.weigher.sample_bytes());
        }
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
        self.sites.write(&mut out, with_jobs, is_mixed);
        self.sizes.write(&mut out);
        self.series.write(&mut out);
        if with_blocks {
            self.ranges.write(&mut out);
            self.threads.write(&self.ranges, &mut out);
            self.blocks.write(&mut out);
        }
        if with_jobs {
            let none = JobStates::default();
            let jobs = jobs.map_or(&none, |jobs| jobs);
            jobs.write(&mut out, |site| self.sites.key_and_sums(site).1.live.bytes);
        }
        out.into_bytes()
    }

    /// Reads a tally that [`Tally::to_bytes`] wrote; `None` if the bytes are invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Tally> {
        let mut input = Decoder::new(bytes);
        let version = input.byte()?;
        if version & !(WITH_JOBS | WITH_MODES) != VERSION {
            return None;
        }
        let with_jobs = version & WITH_JOBS != 0;
        let with_blocks = match input.byte()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let (weigher, modes) = match version & WITH_MODES {
            0 => (Weigher::new(input.number()?), Modes::default()),
            _ => read_modes(&mut input)?,
        };
        let n_events = input.count()?;
        let n_frees = input.count()?;
        let n_unknown_frees = input.count()?;
        let n_overlaps = input.count()?;
        let (now, peak) = (input.amount()?, input.amount()?);
        let (files_now, files_highest) = (input.amount()?, input.amount()?);
        let (peak_time, time) = (input.number()?, input.number()?);
        let (bytes_before, bytes_highest) = (input.number()?, input.number()?);
        let stacks = Stacks::read(&mut input)?;
        let sites = Sites::read(
            &mut input,
            stacks.n_stacks(),
            with_jobs,
            modes.means().len(),
        )?;
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
        let mut jobs = None;
        if with_jobs {
            let states = JobStates::read(&mut input, stacks.n_stacks(), sites.len())?;
            jobs = Some(Box::new(states));
        }
        input.is_at_end().then_some(Tally {
            weigher,
            modes,
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
            time,
            first_time: time,
            bytes_before,
            bytes_highest,
            n_events,
            n_frees,
            n_unknown_frees,
            n_overlaps,
            knows_births: n_events == 0,
            jobs,
            ..Tally::new(0)
        })
    }
}

fn flag(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

/// Reads the modes of a tally whose mode has changed, and the weigher of the current one.
fn read_modes(input: &mut Decoder) -> Option<(Weigher, Modes)> {
    let unit = input.number()?;
    let (modes, mean) = Modes::read(input)?;
    // A sampled mode without a unit would divide by zero.
    let is_sampled = modes.means().iter().any(|&mean| mean != 0);
    (unit != 0 || !is_sampled).then(|| (Weigher::new(mean).in_unit(unit), modes))
}
