//! Captures whose mode changed while they were recorded.
//!
//! A block is weighed by the mode in which its allocation was recorded, even if it is freed in another mode. The mode is
//! therefore part of its site. Sums of all modes share one unit: as soon as one of the modes is sampled, all counts are
//! fixed-point numbers.
//!
//! When a mode starts to record Python objects, existing arenas leave the sums: otherwise new objects in them would count
//! twice. Objects that were allocated earlier are then in no sum.

use heaptide_capture::{Capture, Mode, ModeChange, PYTHON_ARENA_FILE};

use super::{StackDetail, Tally};
use crate::amount::{Raw, Weigher};
use crate::encoding::{Decoder, Encoder};
use crate::live_blocks::Block;
use crate::sizes::SizeCounts;

/// A number of consecutive sizes in a list, and their weigher.
pub(super) type SizeGroup = (usize, Weigher);

/// Maximum number of distinct sampling distances; further ones share the last.
const MAX_MEANS: usize = 1 << 12;

/// The modes of a capture. Without changes, only the first one.
#[derive(Default)]
pub(super) struct Modes {
    /// By the number of a mode: the position of its sampling distance in `means`.
    index: Vec<u16>,
    /// By the number of a mode: whether it records Python objects.
    objects: Vec<bool>,
    /// Distinct sampling distances; 0 is exact. Sites refer to them by position.
    means: Vec<u64>,
    /// Sizes counted in the modes that are not current, by position in `means`.
    sizes: Vec<Option<SizeCounts>>,
    /// The frames of Python's arenas.
    arena_codes: Vec<u32>,
    /// Number of the mode in which the last operations were recorded.
    current: u32,
    /// The last mode whose effect on arenas is applied; see [`Tally::release_arenas`].
    arenas_released: u32,
}

impl Modes {
    #[inline(always)]
    pub fn are_mixed(&self) -> bool {
        !self.index.is_empty()
    }

    /// Returns the position of the current sampling distance; 0 unless the mode has changed.
    #[inline(always)]
    pub fn current_mean(&self) -> u16 {
        let current = self.index.get(self.current as usize);
        current.copied().unwrap_or(0)
    }

    pub fn means(&self) -> &[u64] {
        &self.means
    }

    fn position(&mut self, mean: u64) -> u16 {
        let known = self.means.iter().position(|&known| known == mean);
        let position = known.unwrap_or_else(|| {
            if self.means.len() < MAX_MEANS {
                self.means.push(mean);
                self.sizes.push(None);
            }
            self.means.len() - 1
        });
        position as u16
    }

    /// Writes the modes into a checkpoint.
    pub fn write(&self, out: &mut Encoder) {
        out.number(self.current.into());
        out.number(self.arenas_released.into());
        out.number(self.means.len() as u64);
        for (&mean, sizes) in self.means.iter().zip(&self.sizes) {
            out.number(mean);
            out.byte(u8::from(sizes.is_some()));
            if let Some(sizes) = sizes {
                sizes.write(out);
            }
        }
        out.number(self.index.len() as u64);
        for (&position, &objects) in self.index.iter().zip(&self.objects) {
            out.number(position.into());
            out.byte(objects.into());
        }
    }

    /// Reads the modes of a checkpoint, and the sampling distance of the current one.
    pub fn read(input: &mut Decoder) -> Option<(Modes, u64)> {
        let mut modes = Modes {
            current: input.number32()?,
            arenas_released: input.number32()?,
            ..Modes::default()
        };
        for _ in 0..input.length(2)? {
            modes.means.push(input.number()?);
            modes.sizes.push(match input.byte()? {
                0 => None,
                1 => Some(SizeCounts::read(input)?),
                _ => return None,
            });
        }
        for _ in 0..input.length(2)? {
            let position = u16::try_from(input.number()?).ok()?;
            modes.means.get(usize::from(position))?;
            modes.index.push(position);
            modes.objects.push(input.byte()? != 0);
        }
        let is_valid = modes.means.len() <= MAX_MEANS
            && (modes.current as usize) < modes.index.len()
            && modes.arenas_released <= modes.current;
        let mean = modes.means.get(usize::from(modes.current_mean())).copied();
        mean.filter(|_| is_valid).map(|mean| (modes, mean))
    }

    /// Forgets the sizes of the modes that are not current.
    pub fn forget_sizes(&mut self) {
        self.sizes.fill_with(|| None);
    }

    /// Returns the sizes of all modes, and how many belong to each weigher.
    pub fn finish_sizes(
        &mut self,
        current: SizeCounts,
        weigher: Weigher,
    ) -> (Vec<(u64, u64)>, Vec<SizeGroup>) {
        let mut sizes = current.finish();
        let mut weighers = vec![(sizes.len(), weigher)];
        for (counts, &mean) in self.sizes.iter_mut().zip(&self.means) {
            if let Some(counts) = counts.take() {
                let counts = counts.finish();
                weighers.push((counts.len(), weigher.with_mean(mean)));
                sizes.extend(counts);
            }
        }
        (sizes, weighers)
    }
}

impl Tally {
    /// Returns an empty tally for a capture without a checkpoint.
    pub fn empty_for(capture: &Capture) -> Tally {
        let mut tally = Tally::new(capture.header.mode.sample_bytes);
        tally.take_modes_of(capture);
        tally
    }

    /// Adds the modes of a capture that are not known yet.
    pub fn take_modes_of(&mut self, capture: &Capture) {
        let changes = &capture.registry.mode_changes;
        let is_new = changes.len() >= self.modes.index.len().max(1);
        if is_new || (self.modes.are_mixed() && self.modes.arena_codes.is_empty()) {
            let codes = capture.registry.codes.iter();
            let arenas = codes.filter(|(_, code)| code.file == PYTHON_ARENA_FILE);
            let arenas = arenas.map(|(&id, _)| id).collect();
            self.set_modes(capture.header.mode, changes, arenas);
        }
    }

    /// Sets the modes by number: the mode in the header and all later modes. Frames with `arena_codes` are Python's arenas.
    pub fn set_modes(&mut self, first: Mode, changes: &[ModeChange], arena_codes: Vec<u32>) {
        if changes.is_empty() {
            return;
        }
        if !self.modes.are_mixed() {
            self.modes.position(first.sample_bytes);
        }
        self.modes.arena_codes = arena_codes;
        (self.modes.index, self.modes.objects) = (Vec::new(), Vec::new());
        for mode in [first]
            .into_iter()
            .chain(changes.iter().map(|change| change.mode))
        {
            let position = self.modes.position(mode.sample_bytes);
            self.modes.index.push(position);
            self.modes.objects.push(mode.objects);
        }
        let unit = self.modes.means.iter().copied().find(|&mean| mean != 0);
        if let Some(unit) = unit.filter(|_| !self.weigher.has_unit()) {
            self.begin_fixed_point();
            self.weigher = self.weigher.in_unit(unit);
        }
        let objects = &self.modes.objects;
        let has_arenas = objects.contains(&true) && objects.contains(&false);
        if has_arenas && self.stack_detail == StackDetail::Nothing {
            self.stack_detail = StackDetail::Innermost;
        }
    }

    /// Switches to the mode in which the following operations were recorded.
    #[cold]
    pub(super) fn enter_mode(&mut self, number: u32) {
        let before = usize::from(self.modes.current_mean());
        let known = self.modes.index.len() as u32 - 1;
        self.modes.current = number.min(known);
        let now = usize::from(self.modes.current_mean());
        if before != now {
            let next = self.modes.sizes[now].take();
            let next = next.unwrap_or_else(SizeCounts::new);
            self.modes.sizes[before] = Some(std::mem::replace(&mut self.sizes, next));
            self.weigher = self.weigher.with_mean(self.modes.means[now]);
        }
        for number in self.modes.arenas_released + 1..=self.modes.current {
            self.modes.arenas_released = number;
            let objects = &self.modes.objects;
            if objects[number as usize] && !objects[number as usize - 1] {
                self.release_arenas();
            }
        }
    }

    #[inline(always)]
    pub(super) fn is_in_mode(&self, number: u32) -> bool {
        !self.modes.are_mixed() || self.modes.current == number
    }

    /// Removes the live arenas of Python's object allocator from the heap.
    fn release_arenas(&mut self) {
        let is_arena = |site: u32| {
            let frame = self.stacks.get(self.sites.stack(site));
            frame.is_some_and(|stack| self.modes.arena_codes.contains(&stack.frame.code))
        };
        for (start, length) in self.ranges.pieces_of(is_arena) {
            self.release(start, length);
        }
    }

    /// Returns the amount of a live block, by the mode of its allocation.
    #[inline(always)]
    pub(super) fn weigh_block(&self, block: &Block) -> Raw {
        if self.modes.are_mixed() {
            return self.weigher_of(block.site).weigh(block.size);
        }
        self.weigher.weigh(block.size)
    }

    #[cold]
    fn weigher_of(&self, site: u32) -> Weigher {
        let mean = self.modes.means.get(usize::from(self.sites.mean(site)));
        self.weigher.with_mean(mean.copied().unwrap_or(0))
    }

    /// Makes the counts of all sums so far fixed-point numbers. Bins of time must not have begun.
    fn begin_fixed_point(&mut self) {
        for amount in [
            &mut self.now,
            &mut self.peak,
            &mut self.files_now,
            &mut self.files_highest,
        ] {
            amount.make_fixed_point();
        }
        self.sites.make_fixed_point();
        self.ranges.make_fixed_point();
        self.threads.make_fixed_point();
        if let Some(jobs) = &mut self.jobs {
            jobs.make_fixed_point();
        }
    }
}
