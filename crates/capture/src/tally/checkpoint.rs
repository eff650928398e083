//! A tally as bytes, and back: what a bounded capture keeps in place of the events it has removed.
//!
//! A tally that was written, read and continued gives the same sums as one that never stopped. Numbers of stacks and
//! sites are kept. What can be found again from the events themselves, such as each thread's place in its chunk, is left out.
//!
//! The bytes come from a file, so reading them trusts nothing: every length is held against the bytes that are left,
//! every number that names something against what there is, and every count leaves room for more to be counted.

use super::Tally;
use super::amount::{Raw, Weigher};
use super::live::LiveBlocks;
use super::ranges::Ranges;
use super::series::HeapSeries;
use super::sites::Sites;
use super::sizes::SizeCounts;
use super::stacks::Stacks;
use super::threads::Threads;
use crate::wire::{Reader, unzigzag, zigzag};

/// The first byte. Another number is a tally that this reader does not understand.
const VERSION: u8 = 1;
/// Counts beyond this come from no program, and would overflow when one more is counted.
const MAX_COUNT: u64 = 1 << 60;

impl Tally {
    /// All sums so far. Not of a tally that watches more: it is not continued from bytes. `with_blocks`: also what is alive and what each thread freed last, without which no further events can
    /// be added.
    pub fn to_bytes(&self, with_blocks: bool) -> Vec<u8> {
        let mut out = Encoder { bytes: Vec::new() };
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
        out.bytes
    }

    /// The tally that [`Tally::to_bytes`] wrote; `None` if these bytes are none.
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
            time,
            bytes_before,
            bytes_highest,
            n_events,
            n_frees,
            n_unknown_frees,
            n_overlaps,
            has_totals: true,
            n_recent: 0,
            has_stacks: true,
            next_edge: None,
            epoch: 0,
            has_begun: true,
            is_over: false,
            knows_births: n_events == 0,
        })
    }
}

/// Bytes that grow. Numbers are varints.
pub(super) struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    pub fn reserve(&mut self, n_bytes: usize) {
        self.bytes.reserve(n_bytes);
    }

    pub fn byte(&mut self, value: u8) {
        self.bytes.push(value);
    }

    #[inline]
    pub fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// A number that is probably near a known one.
    #[inline]
    pub fn difference(&mut self, value: u64, known: u64) {
        self.number(zigzag(value.wrapping_sub(known) as i64));
    }

    pub fn amount(&mut self, amount: Raw) {
        self.number(amount.bytes);
        self.number(amount.count);
        self.number(amount.variance);
    }
}

/// What an [`Encoder`] wrote, or anything else.
pub(super) struct Decoder<'a> {
    input: Reader<'a>,
    len: usize,
}

impl<'a> Decoder<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Decoder {
            input: Reader::new(bytes),
            len: bytes.len(),
        }
    }

    fn is_at_end(&self) -> bool {
        self.input.is_at_end()
    }

    pub fn byte(&mut self) -> Option<u8> {
        self.input.u8()
    }

    #[inline]
    pub fn number(&mut self) -> Option<u64> {
        self.input.varint()
    }

    pub fn number32(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    /// Something that was counted one by one, and may be counted further.
    pub fn count(&mut self) -> Option<u64> {
        self.number().filter(|&count| count <= MAX_COUNT)
    }

    /// How many elements follow, each of at least `least` bytes.
    pub fn length(&mut self, least: usize) -> Option<usize> {
        let length = usize::try_from(self.number()?).ok()?;
        let n_left = self.len.saturating_sub(self.input.position());
        (length <= n_left / least).then_some(length)
    }

    pub fn site(&mut self, n_sites: usize) -> Option<u32> {
        let site = self.number32()?;
        ((site as usize) < n_sites).then_some(site)
    }

    #[inline]
    pub fn difference(&mut self, known: u64) -> Option<u64> {
        Some(known.wrapping_add(unzigzag(self.number()?) as u64))
    }

    pub fn amount(&mut self) -> Option<Raw> {
        Some(Raw {
            bytes: self.number()?,
            count: self.number()?,
            variance: self.number()?,
        })
    }
}
