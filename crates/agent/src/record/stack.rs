//! The Python stack of the calling thread, read at each recorded event and written as the change since the last one.
//!
//! The next call reuses a frame's address, so an equal address does not prove an equal frame. Each event therefore compares
//! the remembered chain, as (frame, code, instruction). This is cheap because the addresses to load next come from the
//! remembered entries, not from the frames, so the loads do not wait for one another. A comparison costs about a nanosecond
//! per frame, and about seven instructions in a deep stack.
//!
//! ```text
//! remembered:   main  load  parse           now:  main  load  emit      written: pop 1, push emit
//!                 ▲ equal ▲   ✗                     `hints` finds remembered frames by their address
//! ```
//! A remembered frame is read only after a live frame has pointed to it, so a freed frame is never read. This code takes no
//! references and calls no Python function. The frames of a thread cannot be freed while the thread executes this code, with
//! or without the GIL. [`cut`] bounds the cost of an event with a deep stack.
//!
//! Runs on: the thread whose stack it is. Allocates: never. Locks: only to number a new code object. During fork/exit:
//! nothing to do.

pub mod cut;

use heaptide_capture::Frame;
use heaptide_capture::event::MAX_RECORD_BYTES;

use crate::cpython::interpreter::{innermost, is_shim, word};
use crate::cpython::{Layout, instr_offset};
use crate::record::Room;
use crate::record::codes;

/// Maximum number of frames that are remembered and written. A chunk must have room for a push record of each.
pub const MAX_DEPTH: usize = 4096;
const N_HINTS: usize = 256;
const N_CACHED_CODES: usize = 256;
/// Entries that are compared with the live chain at a time.
const BLOCK: usize = 8;

/// One remembered frame.
#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    frame: usize,
    code: usize,
    instruction: usize,
    /// Frames written up to and including this one; shims between C and Python are compared but not written.
    n_written: u32,
    written_as: WrittenAs,
}

/// The record that is written for a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum WrittenAs {
    Frame,
    /// No record: a shim between C and Python.
    Nothing,
    /// The frame that replaces this one and all frames outside of it.
    Cut,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct CachedCode {
    code: usize,
    id: u32,
}

/// The current chain is `entries[..known]` followed by `fresh[..n_fresh]` backwards.
struct Change {
    /// Entries before this one are unchanged.
    first_changed: usize,
    known: usize,
    n_fresh: usize,
}

/// The stack of one thread as of its last event. Zero bytes are the empty stack.
#[repr(C)]
pub struct Stack {
    /// Number of valid entries, outermost first.
    depth: usize,
    /// The value of `codes::n_deaths` for which `codes` and `entries` are valid.
    deaths_seen: u64,
    /// The caller of the outermost entry: 0, or the innermost frame that a cut stack leaves out.
    caller: usize,
    /// A stack with fewer entries is read again: [`cut::LEAST_CUT`] if the stack is cut, otherwise 0.
    least_depth: usize,
    /// The index of a frame's entry, by a hash of the frame's address. May be stale: checked before it is used.
    hints: [u16; N_HINTS],
    codes: [CachedCode; N_CACHED_CODES],
    entries: [Entry; MAX_DEPTH],
    /// Frames of the current chain that no hint found, innermost first.
    fresh: [usize; MAX_DEPTH],
}

#[inline(always)]
fn hint_of(frame: usize) -> usize {
    ((frame >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) % N_HINTS
}

impl Stack {
    /// Makes the next event write its whole stack, as the first event of a chunk must.
    pub fn forget(&mut self) {
        self.depth = 0;
    }

    /// Frames written for the outermost `depth` entries.
    pub fn n_written(&self, depth: usize) -> u32 {
        if depth == 0 {
            0
        } else {
            self.entries[depth - 1].n_written
        }
    }

    /// Writes the change of the calling thread's stack since the last event. Returns `false` if the chunk is full: the caller
    /// must begin a new one and call again.
    ///
    /// # Safety
    /// `thread_state` is 0 or the calling thread's own `PyThreadState`, and `layout` fits the interpreter.
    #[inline(always)]
    pub unsafe fn sync(&mut self, layout: &Layout, thread_state: usize, room: &mut Room) -> bool {
        if codes::n_deaths() != self.deaths_seen {
            self.pop_all_and_forget_codes(room);
        }
        // SAFETY: the caller promises about `thread_state` and `layout` what `find_change` requires.
        let change = unsafe { self.find_change(layout, thread_state) };
        if change.first_changed == self.depth && change.n_fresh == 0 {
            return true;
        }
        // SAFETY: `find_change` has just found the entries below `known` and the fresh frames in the live chain.
        unsafe { self.write_change(layout, change, room) }
    }

    /// Compares the calling thread's stack with the remembered one.
    ///
    /// # Safety
    /// As for [`Stack::sync`].
    #[inline(always)]
    unsafe fn find_change(&mut self, layout: &Layout, thread_state: usize) -> Change {
        // SAFETY: the caller promises about `thread_state` and `layout` what `innermost` requires.
        let leaf = unsafe { innermost(layout, thread_state) };

        // The new part: from the leaf up to the first frame that is remembered.
        let mut n_fresh = 0;
        let mut frame = leaf;
        let known;
        loop {
            if frame == 0 {
                known = 0;
                self.set_caller(0);
                break;
            }
            let hint = usize::from(self.hints[hint_of(frame)]);
            if hint < self.depth && self.entries[hint].frame == frame {
                known = hint + 1;
                break;
            }
            if n_fresh == MAX_DEPTH {
                // SAFETY: `innermost` returned the leaf of the calling thread.
                return unsafe { self.whole_chain(layout, leaf) };
            }
            self.fresh[n_fresh] = frame;
            n_fresh += 1;
            // SAFETY: the frame is in the live chain.
            frame = unsafe { word(frame, layout.frame_previous) };
        }
        let depth = known + n_fresh;
        if depth > MAX_DEPTH || depth < self.least_depth {
            // SAFETY: `innermost` returned the leaf of the calling thread.
            return unsafe { self.whole_chain(layout, leaf) };
        }

        // SAFETY: the innermost of these frames was found in the live chain.
        let first_changed = unsafe {
            if layout.instr_is_index {
                self.first_changed::<true>(layout, known)
            } else {
                self.first_changed::<false>(layout, known)
            }
        };
        let Some(first_changed) = first_changed else {
            // For example a generator that another function resumed.
            // SAFETY: `innermost` returned the leaf of the calling thread.
            return unsafe { self.whole_chain(layout, leaf) };
        };
        Change {
            first_changed,
            known,
            n_fresh,
        }
    }

    /// Compares the outermost `known` entries with the live chain: each frame must still have the caller, the code and the
    /// instruction it had. Returns the first that changed, or `known`; `None` if a frame has another caller.
    ///
    /// An instruction that is a pointer lies in the bytecode of its code object. Two code objects that are alive do not share
    /// bytecode, and `sync` forgets all entries when a recorded code object has died. So an equal instruction proves an equal
    /// code object, and the code is compared only where the instruction is an index (`BY_CODE`).
    ///
    /// # Safety
    /// The frame of entry `known - 1` is in the calling thread's live chain.
    #[inline(always)]
    unsafe fn first_changed<const BY_CODE: bool>(
        &self,
        layout: &Layout,
        known: usize,
    ) -> Option<usize> {
        let entries = &self.entries[..known];
        // SAFETY: the first of these frames is in the live chain. Each later one is the caller of the one before it, as the
        // comparison of callers has just shown.
        let is_unchanged = |entry: &Entry| unsafe {
            word(entry.frame, layout.frame_instr) == entry.instruction
                && (!BY_CODE || word(entry.frame, layout.frame_code) == entry.code)
        };
        // SAFETY: as in `is_unchanged`.
        let has_caller =
            |entry: &Entry, caller| unsafe { word(entry.frame, layout.frame_previous) } == caller;

        let mut first_changed = known;
        // The entries from `end` on have been compared: one that may have changed, then blocks that have not.
        let mut end = known;
        while end > BLOCK {
            end -= 1;
            if !is_unchanged(&entries[end]) {
                first_changed = end;
            }
            if !has_caller(&entries[end], entries[end - 1].frame) {
                return None;
            }
            while let Some((block, outside)) = entries[..end]
                .split_last_chunk::<BLOCK>()
                .and_then(|(rest, block)| Some((block, rest.last()?)))
            {
                let caller = |i: usize| if i == 0 { outside } else { &block[i - 1] };
                let is_same = |i| is_unchanged(&block[i]) && has_caller(&block[i], caller(i).frame);
                if !(0..BLOCK).rev().all(is_same) {
                    break;
                }
                end -= BLOCK;
            }
        }
        // The outermost entries are too few for a block.
        for (i, pair) in entries[..end].windows(2).enumerate().rev() {
            let [caller, entry] = pair else { break };
            if !is_unchanged(entry) {
                first_changed = i + 1;
            }
            if !has_caller(entry, caller.frame) {
                return None;
            }
        }
        if let Some(outermost) = entries.first() {
            if !is_unchanged(outermost) {
                first_changed = 0;
            }
            if !has_caller(outermost, self.caller) {
                return None;
            }
        }
        Some(first_changed)
    }

    /// Pops down to `first_changed`, then writes the frames from there to the leaf. Returns `false` if the chunk is full.
    ///
    /// # Safety
    /// The chain is `entries[..known]` followed by `fresh[..n_fresh]` backwards, and all of it is live.
    unsafe fn write_change(&mut self, layout: &Layout, change: Change, room: &mut Room) -> bool {
        // SAFETY: the caller promises about the chain what `narrow` requires.
        let (first_changed, depth) = unsafe { self.narrow(layout, &change) };
        let known = change.known;
        let n_before = self.n_written(self.depth);
        let mut n_written = self.n_written(first_changed);
        if n_before > n_written {
            room.pop((n_before - n_written) as usize);
        }
        self.depth = first_changed;
        for i in first_changed..depth {
            let frame = if i < known {
                self.entries[i].frame
            } else {
                self.fresh[depth - 1 - i]
            };
            if room.left() < 2 * MAX_RECORD_BYTES {
                return false;
            }
            // SAFETY: the frame belongs to the chain, which the caller promises to be live.
            unsafe { self.remember(layout, frame, i) };
            // SAFETY: the frame of this entry belongs to the live chain, so its code object is alive.
            if let Some(written) = unsafe { self.frame_to_write(layout, i) } {
                room.push(written);
                n_written += 1;
            }
            self.entries[i].n_written = n_written;
            self.depth = i + 1;
        }
        self.count_if_cut();
        true
    }

    /// The first entry that must be written again, and the depth of the new chain.
    ///
    /// # Safety
    /// As for [`Stack::write_change`].
    #[inline(always)]
    unsafe fn narrow(&self, layout: &Layout, change: &Change) -> (usize, usize) {
        let Change {
            mut first_changed,
            known,
            n_fresh,
        } = *change;
        // A fresh frame may be an old one that its hint missed. A new call may also equal the entry in address, code and
        // instruction; then nothing needs to be written for it either.
        let depth = known + n_fresh;
        while first_changed >= known && first_changed < depth && first_changed < self.depth {
            let frame = self.fresh[depth - 1 - first_changed];
            let entry = &self.entries[first_changed];
            // SAFETY: fresh frames belong to the chain, which the caller promises to be live.
            let same = entry.frame == frame
                && unsafe { word(frame, layout.frame_code) } == entry.code
                && unsafe { word(frame, layout.frame_instr) } == entry.instruction;
            if !same {
                break;
            }
            first_changed += 1;
        }
        (first_changed, depth)
    }

    /// Updates the entries without writing, for stacks with native frames, which `native::mixed` writes. Returns the first
    /// entry that changed, or `None`.
    ///
    /// # Safety
    /// As for [`Stack::sync`].
    pub unsafe fn refresh(&mut self, layout: &Layout, thread_state: usize) -> Option<usize> {
        if codes::n_deaths() != self.deaths_seen {
            self.forget_codes();
        }
        // SAFETY: the caller promises about `thread_state` and `layout` what `find_change` requires.
        let change = unsafe { self.find_change(layout, thread_state) };
        if change.first_changed == self.depth && change.n_fresh == 0 {
            return None;
        }
        // SAFETY: `find_change` has just found this change in the live chain.
        let (first_changed, depth) = unsafe { self.narrow(layout, &change) };
        for i in first_changed..depth {
            let frame = if i < change.known {
                self.entries[i].frame
            } else {
                self.fresh[depth - 1 - i]
            };
            // SAFETY: `find_change` has just found the frame in the live chain.
            unsafe { self.remember(layout, frame, i) };
        }
        self.count_if_cut();
        self.depth = depth;
        Some(first_changed)
    }

    pub fn depth(&self) -> usize {
        self.depth
    }

    pub fn frame(&self, i: usize) -> usize {
        self.entries[i].frame
    }

    pub fn set_written(&mut self, i: usize, n_written: u32) {
        self.entries[i].n_written = n_written;
    }

    /// Returns the index of the first entry after the written frame number `n_written`, which may be a shim.
    pub fn first_not_written(&self, n_written: u32) -> usize {
        let entries = &self.entries[..self.depth];
        let mut at = entries.partition_point(|entry| entry.n_written <= n_written);
        while at > 0
            && entries[at - 1].written_as == WrittenAs::Nothing
            && entries[at - 1].n_written == n_written
        {
            at -= 1;
        }
        at
    }

    /// Remembers one frame as entry `i`.
    ///
    /// # Safety
    /// `frame` is in the calling thread's live chain.
    #[inline(always)]
    unsafe fn remember(&mut self, layout: &Layout, frame: usize, i: usize) {
        // SAFETY: the caller promises a live frame, and the layout gives the offsets of its fields.
        let (raw_code, instruction) = unsafe {
            (
                word(frame, layout.frame_code),
                word(frame, layout.frame_instr),
            )
        };
        let written_as = if i == 0 && self.is_cut() {
            WrittenAs::Cut
        // SAFETY: the caller promises a live frame.
        } else if unsafe { is_shim(layout, frame) } {
            WrittenAs::Nothing
        } else {
            WrittenAs::Frame
        };
        self.entries[i] = Entry {
            frame,
            code: raw_code,
            instruction,
            n_written: u32::MAX,
            written_as,
        };
        self.hints[hint_of(frame)] = i as u16;
    }

    /// Whether entry `i` is a shim between C and Python.
    pub fn is_shim(&self, i: usize) -> bool {
        self.entries[i].written_as == WrittenAs::Nothing
    }

    /// The frame to write for entry `i`; `None` for a shim and for `codes::NOT_WRITTEN`.
    ///
    /// # Safety
    /// The frame of the entry is in the calling thread's live chain, and `layout` fits the interpreter.
    #[inline(always)]
    pub unsafe fn frame_to_write(&mut self, layout: &Layout, i: usize) -> Option<Frame> {
        let Entry {
            code: raw_code,
            instruction,
            written_as,
            ..
        } = self.entries[i];
        if written_as != WrittenAs::Frame {
            return (written_as == WrittenAs::Cut).then(codes::cut_frame);
        }
        let code = raw_code & layout.frame_code_mask;
        let cached = self.codes
            [(code >> 5).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56 & (N_CACHED_CODES - 1)];
        let id = if cached.code == code {
            cached.id
        } else {
            // SAFETY: the live frame refers to this code object.
            unsafe { self.learn_code(layout, code) }
        };
        if id == codes::NOT_WRITTEN {
            return None;
        }
        let offset = instr_offset(layout, code, instruction);
        Some(Frame {
            code: id,
            instruction: if offset == u32::MAX {
                Frame::AT_START
            } else {
                offset / 2
            },
        })
    }

    /// # Safety
    /// As for [`codes::id_of`].
    #[cold]
    #[inline(never)]
    unsafe fn learn_code(&mut self, layout: &Layout, code: usize) -> u32 {
        // SAFETY: passed on from the caller.
        let id = unsafe { codes::id_of(layout, code) };
        self.codes[(code >> 5).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56 & (N_CACHED_CODES - 1)] =
            CachedCode { code, id };
        id
    }

    /// Drops all data that is cached by address, because a recorded code object was freed: its address may now belong to
    /// another one.
    #[cold]
    #[inline(never)]
    fn pop_all_and_forget_codes(&mut self, room: &mut Room) {
        let n_written = self.n_written(self.depth);
        if n_written > 0 {
            room.pop(n_written as usize);
        }
        self.forget_codes();
    }

    #[cold]
    #[inline(never)]
    fn forget_codes(&mut self) {
        self.deaths_seen = codes::n_deaths();
        self.codes = [CachedCode { code: 0, id: 0 }; N_CACHED_CODES];
        self.depth = 0;
    }
}
