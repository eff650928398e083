//! The innermost frames of the calling thread as of its last event in a job, and the number of their allocation site.
//!
//! An event compares these frames with the live ones, from the innermost outwards: each must have the instruction and the
//! caller that it had. Usually only the innermost frames have changed, and only these are hashed again. The hash of a site
//! is the difference of two running sums, so it does not depend on frames outside of the site.
//!
//! ```text
//! entries:    main   load   parse   item                  sum of an entry = sum of its caller × BASE + hash of the frame
//!             └─────── site: up to MAX_FRAMES ───────┘    site = sum of item − sum of main's caller × BASE^frames
//! ```
//! As in `record::stack`, a remembered frame is read only after a live frame has pointed to it. In versions where the
//! instruction is a pointer, an equal instruction proves an equal code object: if a known one is freed, the chain forgets
//! all entries.
//!
//! Runs on: the thread whose stack it is. Allocates: for a new site, bypassing the hooks. Locks: to number a new site.

use std::ops::Range;

use super::sites::{MAX_FRAMES, Sites};
use crate::cpython::Layout;
use crate::cpython::interpreter::{innermost, is_shim, word};
use crate::record::codes;

const MAX_ENTRIES: usize = 512;
/// The maximum number of frames, including shims between C and Python, to read if none is remembered.
const MAX_FRESH: usize = 4 * MAX_FRAMES;
const N_HINTS: usize = 256;
const N_CACHED: usize = 256;

/// This number and all its powers are odd, so a product with one of them loses no information.
const BASE: u64 = 0xd134_2543_de82_ef95;
const BASE_POWER: u64 = {
    let mut power = 1u64;
    let mut i = 0;
    while i < MAX_FRAMES {
        power = power.wrapping_mul(BASE);
        i += 1;
    }
    power
};

#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    frame: usize,
    code: usize,
    instruction: usize,
    /// The sum of the hashes of the frames up to and including this one; a shim adds nothing.
    sum: u64,
    /// Frames without shims up to and including this one.
    n_frames: u32,
    /// The first entry of the site whose innermost frame this is.
    start: u32,
    /// The number of that site; 0 if it is unknown.
    site: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CachedSite {
    key: u64,
    site: u32,
}

/// Zero bytes are the empty chain.
#[repr(C)]
pub struct Chain {
    /// Number of valid entries, outermost first.
    depth: usize,
    /// The value of `codes::n_deaths` for which entries and sites are valid.
    deaths_seen: u64,
    /// The caller of the outermost entry; 0 if it has none.
    caller: usize,
    hints: [u16; N_HINTS],
    sites: [CachedSite; N_CACHED],
    fresh: [usize; MAX_FRESH],
    entries: [Entry; MAX_ENTRIES],
}

#[inline(always)]
fn hint_of(frame: usize) -> usize {
    ((frame >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) % N_HINTS
}

#[inline(always)]
fn mix(value: u64) -> u64 {
    let product = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

/// Returns the sum of a frame, given that of its caller.
#[inline(always)]
fn add_to_sum(sum: u64, code: usize, instruction: usize) -> u64 {
    let hash = mix((code.rotate_left(32) ^ instruction) as u64);
    sum.wrapping_mul(BASE).wrapping_add(hash)
}

/// Returns a frame's code object (only with `BY_CODE`, else 0) and instruction, and whether the frame is a shim.
///
/// # Safety
/// `frame` is in the calling thread's live chain.
#[inline(always)]
unsafe fn read_frame<const BY_CODE: bool>(layout: &Layout, frame: usize) -> (usize, usize, bool) {
    // SAFETY: the caller promises a live frame, and the layout gives the offsets of its fields.
    unsafe {
        (
            match BY_CODE {
                true => word(frame, layout.frame_code),
                false => 0,
            },
            word(frame, layout.frame_instr),
            is_shim(layout, frame),
        )
    }
}

impl Chain {
    /// Returns the number of the calling thread's stack; 0 if it has no frames.
    ///
    /// # Safety
    /// `thread_state` is 0 or the calling thread's own, and `layout` was checked for the interpreter.
    #[inline(always)]
    pub unsafe fn site(&mut self, layout: &Layout, thread_state: usize, sites: &mut Sites) -> u32 {
        // SAFETY: the caller promises what both functions require, and the constant fits the layout.
        unsafe {
            match layout.instr_is_index {
                false => self.find::<false>(layout, thread_state, sites),
                true => self.find::<true>(layout, thread_state, sites),
            }
        }
    }

    /// `BY_CODE` is true if the instruction is an index. Then only the code object distinguishes two functions.
    ///
    /// # Safety
    /// As for [`Chain::site`].
    #[inline(always)]
    unsafe fn find<const BY_CODE: bool>(
        &mut self,
        layout: &Layout,
        thread_state: usize,
        sites: &mut Sites,
    ) -> u32 {
        if codes::n_deaths() != self.deaths_seen {
            self.forget();
        }
        // SAFETY: passed on from the caller.
        let leaf = unsafe { innermost(layout, thread_state) };
        if leaf == 0 {
            return 0;
        }
        let is_remembered = self.depth > 0 && self.entries[self.depth - 1].frame == leaf;
        // SAFETY: `innermost` returned the leaf of the calling thread, so its whole chain is alive.
        unsafe {
            let first_changed = match is_remembered {
                true => self.first_changed::<BY_CODE>(layout, self.depth),
                false => self.find_known::<BY_CODE>(layout, leaf),
            };
            match first_changed {
                Some(first_changed) => self.update::<BY_CODE>(layout, first_changed..self.depth),
                None => self.read_again::<BY_CODE>(layout, leaf),
            }
            self.number::<BY_CODE>(layout, sites)
        }
    }

    /// Drops all data that is cached by address, because a code object was freed or the accounts are new.
    #[cold]
    #[inline(never)]
    fn forget(&mut self) {
        self.deaths_seen = codes::n_deaths();
        self.depth = 0;
        self.sites = [CachedSite { key: 0, site: 0 }; N_CACHED];
    }

    /// Compares the entries of the site whose innermost frame is entry `known - 1` with the live frames. Returns the first
    /// one that has changed, or `known`; `None` if a frame has another caller, so that the stack must be read again.
    ///
    /// # Safety
    /// The frame of entry `known - 1` is in the calling thread's live chain.
    #[inline(never)]
    unsafe fn first_changed<const BY_CODE: bool>(
        &self,
        layout: &Layout,
        known: usize,
    ) -> Option<usize> {
        let top = self.entries.get(known.wrapping_sub(1))?;
        let start = top.start as usize;
        let site = self.entries.get(start..known)?;
        // SAFETY: the first of these frames is in the live chain. Each later one is the caller of the one before it, as the
        // comparison below has shown. The layout gives the offsets of the fields.
        let is_changed = |entry: &Entry, frame| unsafe {
            word(frame, layout.frame_instr) != entry.instruction
                || BY_CODE && word(frame, layout.frame_code) != entry.code
        };
        // SAFETY: as above.
        let caller_of = |frame| unsafe { word(frame, layout.frame_previous) };
        let (mut entry, callers) = site.split_last()?;
        let mut frame = entry.frame;
        let mut changed: Option<&Entry> = None;
        for caller in callers.iter().rev() {
            if is_changed(entry, frame) {
                changed = Some(entry);
            }
            frame = caller_of(frame);
            if frame != caller.frame {
                return None;
            }
            entry = caller;
        }
        if is_changed(entry, frame) {
            changed = Some(entry);
        }
        // Frames outside of the site do not matter.
        if start == 0 && caller_of(frame) != self.caller {
            return None;
        }
        // Not counted in the loop, whose instructions make up most of the time.
        let position = |entry| {
            let bytes = std::ptr::from_ref::<Entry>(entry).addr() - self.entries.as_ptr().addr();
            bytes / size_of::<Entry>()
        };
        Some(changed.map_or(known, position))
    }

    /// Remembers the instructions of entries that may have changed, whose frames are the same as before.
    ///
    /// # Safety
    /// The frames of these entries are in the calling thread's live chain. The entries before them are valid.
    #[inline(always)]
    unsafe fn update<const BY_CODE: bool>(&mut self, layout: &Layout, changed: Range<usize>) {
        for i in changed.clone() {
            // SAFETY: passed on from the caller.
            if !unsafe { self.update_entry::<BY_CODE>(layout, i) } {
                for i in i..changed.end {
                    // SAFETY: passed on from the caller.
                    unsafe { self.remember::<BY_CODE>(layout, self.entries[i].frame, i) };
                }
                return;
            }
        }
    }

    /// Does the same as `remember` if the frame of entry `i` is a shim as before, or no shim as before. Then the number of
    /// frames and the start of the site are the same. Otherwise it returns `false`.
    ///
    /// # Safety
    /// As for [`Chain::remember`].
    #[inline(always)]
    unsafe fn update_entry<const BY_CODE: bool>(&mut self, layout: &Layout, i: usize) -> bool {
        let (sum, n_frames) = match i.checked_sub(1) {
            Some(caller) => (self.entries[caller].sum, self.entries[caller].n_frames),
            None => (0, 0),
        };
        let entry = &mut self.entries[i];
        // SAFETY: passed on from the caller.
        let (code, instruction, is_shim) = unsafe { read_frame::<BY_CODE>(layout, entry.frame) };
        if is_shim != (entry.n_frames == n_frames) {
            return false;
        }
        entry.code = code;
        entry.instruction = instruction;
        entry.sum = match is_shim {
            true => sum,
            false => add_to_sum(sum, code, instruction),
        };
        entry.site = 0;
        true
    }

    /// Finds the innermost live frame that is remembered, and remembers the frames that it called. Returns the first entry
    /// that has changed, or the new depth; `None` if the stack must be read again.
    ///
    /// # Safety
    /// `leaf` is the innermost frame of the calling thread.
    #[inline(never)]
    unsafe fn find_known<const BY_CODE: bool>(
        &mut self,
        layout: &Layout,
        leaf: usize,
    ) -> Option<usize> {
        let mut frame = leaf;
        let mut n_fresh = 0;
        let known = loop {
            if frame == 0 {
                return None;
            }
            let hint = usize::from(self.hints[hint_of(frame)]);
            if hint < self.depth && self.entries[hint].frame == frame {
                break hint + 1;
            }
            *self.fresh.get_mut(n_fresh)? = frame;
            n_fresh += 1;
            // SAFETY: the frame is in the live chain.
            frame = unsafe { word(frame, layout.frame_previous) };
        };
        // SAFETY: the frame of entry `known - 1` was found in the live chain.
        let first_changed = unsafe { self.first_changed::<BY_CODE>(layout, known)? };
        if known + n_fresh > MAX_ENTRIES {
            return None;
        }
        // SAFETY: `first_changed` has compared the callers from the live frame `known - 1` to these frames.
        unsafe { self.update::<BY_CODE>(layout, first_changed..known) };
        for i in 0..n_fresh {
            // SAFETY: these frames were found in the live chain.
            unsafe { self.remember::<BY_CODE>(layout, self.fresh[n_fresh - 1 - i], known + i) };
        }
        self.depth = known + n_fresh;
        // The entries do not reach the root of the stack, and the site would have too few frames.
        let is_short =
            self.caller != 0 && self.entries[self.depth - 1].n_frames < MAX_FRAMES as u32;
        (!is_short).then_some(self.depth)
    }

    /// Remembers only the innermost frames.
    ///
    /// # Safety
    /// `leaf` is the innermost frame of the calling thread.
    #[cold]
    #[inline(never)]
    unsafe fn read_again<const BY_CODE: bool>(&mut self, layout: &Layout, leaf: usize) {
        let mut frame = leaf;
        let mut n_fresh = 0;
        while frame != 0 && n_fresh < MAX_FRESH {
            self.fresh[n_fresh] = frame;
            n_fresh += 1;
            // SAFETY: the frame is in the live chain.
            frame = unsafe { word(frame, layout.frame_previous) };
        }
        self.caller = frame;
        for i in 0..n_fresh {
            // SAFETY: these frames were found in the live chain.
            unsafe { self.remember::<BY_CODE>(layout, self.fresh[n_fresh - 1 - i], i) };
        }
        self.depth = n_fresh;
    }

    /// Remembers one frame as entry `i`. The entries before it are valid.
    ///
    /// # Safety
    /// `frame` is in the calling thread's live chain.
    #[inline(always)]
    unsafe fn remember<const BY_CODE: bool>(&mut self, layout: &Layout, frame: usize, i: usize) {
        // SAFETY: passed on from the caller.
        let (code, instruction, is_shim) = unsafe { read_frame::<BY_CODE>(layout, frame) };
        let (mut sum, mut n_frames, mut start) = match i.checked_sub(1) {
            Some(caller) => {
                let caller = &self.entries[caller];
                (caller.sum, caller.n_frames, caller.start)
            }
            None => (0, 0, 0),
        };
        if !is_shim {
            sum = add_to_sum(sum, code, instruction);
            n_frames += 1;
            while n_frames - self.n_frames_before(start) > MAX_FRAMES as u32 {
                start += 1;
            }
        }
        self.entries[i] = Entry {
            frame,
            code,
            instruction,
            sum,
            n_frames,
            start,
            site: 0,
        };
        self.hints[hint_of(frame)] = i as u16;
    }

    /// Returns the number of frames without shims that are outside of entry `i`.
    #[inline(always)]
    fn n_frames_before(&self, i: u32) -> u32 {
        match i {
            0 => 0,
            _ => self.entries[i as usize - 1].n_frames,
        }
    }

    /// Returns the number of the site whose innermost frame is the last entry.
    ///
    /// # Safety
    /// All frames of that site are live frames of the calling thread, and `layout` was checked for the interpreter.
    #[inline(always)]
    unsafe fn number<const BY_CODE: bool>(&mut self, layout: &Layout, sites: &mut Sites) -> u32 {
        let Some(top) = self.depth.checked_sub(1) else {
            return 0;
        };
        let Entry {
            sum, start, site, ..
        } = self.entries[top];
        if site != 0 {
            return site;
        }
        let outside = match start {
            0 => 0,
            _ => self.entries[start as usize - 1].sum,
        };
        let key = mix(sum.wrapping_sub(outside.wrapping_mul(BASE_POWER)));
        let slot = key as usize % N_CACHED;
        let cached = self.sites[slot];
        let site = match cached.site {
            0 => None,
            site => (cached.key == key).then_some(site),
        };
        let site = site.unwrap_or_else(|| {
            let entries = &self.entries[start as usize..=top];
            let shims = entries.iter().enumerate().map(|(i, entry)| {
                let before = match i {
                    0 => self.n_frames_before(start),
                    _ => entries[i - 1].n_frames,
                };
                (entry, entry.n_frames == before)
            });
            let frames = shims
                .rev()
                .filter(|(_, is_shim)| !is_shim)
                .map(|(entry, _)| {
                    // SAFETY: the caller promises that the frame is alive, and the layout gives the offset of its code.
                    let code = unsafe { word(entry.frame, layout.frame_code) };
                    (code & layout.frame_code_mask, entry.instruction)
                });
            // SAFETY: these frames are alive, as the caller promises, and the layout was checked.
            unsafe { sites.number(layout, key, frames) }
        });
        self.sites[slot] = CachedSite { key, site };
        self.entries[top].site = site;
        site
    }
}

#[cfg(test)]
mod tests;
