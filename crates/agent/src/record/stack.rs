//! The Python stack of the calling thread, read when an event is recorded, written as what changed since the last one.
//!
//! A frame's address is used again by the next call, so "the same address" proves nothing: the whole chain is compared
//! each time, as (frame, code, instruction). What makes that cheap: as soon as a frame's pointer to its caller equals
//! the remembered address, the next loads can take their addresses from memory that is already at hand, so they do not
//! wait for one another. A comparison costs about a nanosecond a frame.
//!
//! ```text
//! remembered:   main  load  parse           now:  main  load  emit      written: pop 1, push emit
//!                 ▲ equal ▲   ✗                     leaf is found by its address in `places`
//! ```
//! A remembered frame is only read after a live frame has pointed to it, so a frame that has been freed is never
//! touched. No reference is taken and nothing of Python is called: the frames of a thread that is executing this very
//! function cannot go away meanwhile, with or without the GIL.
//!
//! Runs on: the thread whose stack it is. Allocates: never. Locks: only to learn a new code object. During fork/exit:
//! nothing to do.

use heaptide_capture::Frame;
use heaptide_capture::event::MAX_RECORD_BYTES;

use crate::cpython::{CurrentFrame, Layout, instr_offset};
use crate::record::Room;
use crate::record::codes;
use crate::session;

/// Frames that are remembered and written. A chunk must hold a push for each.
pub const MAX_DEPTH: usize = 4096;
/// Of a deeper stack: so many innermost frames are kept, and the outermost ones; the middle is left out.
const KEPT_INNERMOST: usize = 64;
const N_PLACES: usize = 256;
const N_CACHED_CODES: usize = 256;

/// One remembered frame.
#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    frame: usize,
    code: usize,
    instruction: usize,
    /// Frames written up to and including this one; shims between C and Python are compared but not written.
    n_written: u32,
    is_shim: bool,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct CachedCode {
    code: usize,
    id: u32,
}

/// The present chain is `entries[..known]` followed by `fresh[..n_fresh]` backwards.
struct Change {
    /// Entries before this one are as they were.
    first_changed: usize,
    known: usize,
    n_fresh: usize,
}

/// What one thread remembers. Zero bytes are the empty stack.
#[repr(C)]
pub struct Stack {
    /// Entries in force, outermost first.
    depth: usize,
    /// Deaths of known code objects that have been taken into account.
    deaths_seen: u64,
    /// A stack deeper than `MAX_DEPTH` is remembered with a hole and never compared entry by entry.
    has_hole: bool,
    /// Where a frame was seen last, by a hash of its address; a hint that is checked before it is used.
    places: [u16; N_PLACES],
    codes: [CachedCode; N_CACHED_CODES],
    entries: [Entry; MAX_DEPTH],
    /// Frames of the present chain that are not known to be remembered, innermost first.
    fresh: [usize; MAX_DEPTH],
}

#[inline(always)]
unsafe fn word(address: usize, offset: usize) -> usize {
    // SAFETY: the caller knows that a live interpreter struct stands at `address` with a word at `offset`.
    unsafe { (address.wrapping_add(offset) as *const usize).read() }
}

#[inline(always)]
fn place_of(frame: usize) -> usize {
    ((frame >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) % N_PLACES
}

impl Stack {
    /// Forgets everything: the next event writes its whole stack. Needed where a chunk begins.
    pub fn forget(&mut self) {
        self.depth = 0;
    }

    pub fn n_written(&self, depth: usize) -> u32 {
        if depth == 0 {
            0
        } else {
            self.entries[depth - 1].n_written
        }
    }

    /// Writes what changed in the calling thread's stack since the last event. `false`: the chunk is full; begin a
    /// new one and ask again.
    ///
    /// # Safety
    /// `thread_state` is 0 or the calling thread's own `PyThreadState`, and `layout` fits the interpreter.
    #[inline(always)]
    pub unsafe fn sync(&mut self, layout: &Layout, thread_state: usize, room: &mut Room) -> bool {
        if codes::n_deaths() != self.deaths_seen {
            self.take_deaths_into_account(room);
        }
        // SAFETY: as our caller says.
        let change = unsafe { self.find_change(layout, thread_state) };
        if change.first_changed == self.depth && change.n_fresh == 0 {
            return true;
        }
        // SAFETY: entries below `known` are in the live chain, and so are the fresh frames.
        unsafe { self.write_change(layout, change, room) }
    }

    /// Compares the calling thread's stack with the remembered one.
    ///
    /// # Safety
    /// As [`Stack::sync`].
    #[inline(always)]
    unsafe fn find_change(&mut self, layout: &Layout, thread_state: usize) -> Change {
        // SAFETY: a thread state points to its innermost frame, directly or through one more struct.
        let leaf = unsafe { innermost(layout, thread_state) };

        // The part that is new: up from the leaf until a frame that is remembered.
        let mut n_fresh = 0;
        let mut frame = leaf;
        let known;
        loop {
            if frame == 0 {
                known = 0;
                break;
            }
            let place = usize::from(self.places[place_of(frame)]);
            if place < self.depth && self.entries[place].frame == frame {
                known = place + 1;
                break;
            }
            if n_fresh == MAX_DEPTH {
                // SAFETY: as our caller says.
                return unsafe { self.whole_chain(layout, leaf) };
            }
            self.fresh[n_fresh] = frame;
            n_fresh += 1;
            // SAFETY: the frame is in the live chain.
            frame = unsafe { word(frame, layout.frame_previous) };
        }
        if self.has_hole || known + n_fresh > MAX_DEPTH {
            // SAFETY: as our caller says.
            return unsafe { self.whole_chain(layout, leaf) };
        }

        // The part that is remembered: each frame must still have the caller, the code and the instruction it had.
        let mut first_changed = known;
        let mut i = known;
        while i > 0 {
            i -= 1;
            let entry = &self.entries[i];
            // SAFETY: the first of these was found in the live chain; each following one is the caller of the one
            // before, as the comparison below has just shown.
            let (previous, code, instruction) = unsafe {
                (
                    word(entry.frame, layout.frame_previous),
                    word(entry.frame, layout.frame_code),
                    word(entry.frame, layout.frame_instr),
                )
            };
            if (code ^ entry.code) | (instruction ^ entry.instruction) != 0 {
                first_changed = i;
            }
            let expected = if i == 0 { 0 } else { self.entries[i - 1].frame };
            if previous != expected {
                // A generator that was resumed by somebody else, for example.
                // SAFETY: as our caller says.
                return unsafe { self.whole_chain(layout, leaf) };
            }
        }
        Change {
            first_changed,
            known,
            n_fresh,
        }
    }

    /// Pops down to `first_changed`, then writes the frames from there to the leaf.
    ///
    /// # Safety
    /// The chain is `entries[..known]` followed by `fresh[..n_fresh]` backwards, and all of it is live.
    unsafe fn write_change(&mut self, layout: &Layout, change: Change, room: &mut Room) -> bool {
        // SAFETY: as our caller says.
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
            // SAFETY: the frame is live.
            unsafe { self.remember(layout, frame, i) };
            if let Some(written) = self.frame_to_write(layout, i) {
                room.push(written);
                n_written += 1;
            }
            self.entries[i].n_written = n_written;
            self.depth = i + 1;
        }
        true
    }

    /// The first entry that is to be written anew, and the depth of the new chain.
    ///
    /// # Safety
    /// As [`Stack::write_change`].
    #[inline(always)]
    unsafe fn narrow(&self, layout: &Layout, change: &Change) -> (usize, usize) {
        let Change {
            mut first_changed,
            known,
            n_fresh,
        } = *change;
        // A frame that only the hint failed to find is not new; and what was called again from the same place in the
        // same code at the same address is the same frame for us.
        let depth = known + n_fresh;
        while first_changed >= known && first_changed < depth && first_changed < self.depth {
            let frame = self.fresh[depth - 1 - first_changed];
            let entry = &self.entries[first_changed];
            // SAFETY: fresh frames are live.
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

    /// Brings the entries up to date without writing: what is written is decided together with the native frames. The
    /// first entry that changed, or `None`.
    ///
    /// # Safety
    /// As [`Stack::sync`].
    pub unsafe fn refresh(&mut self, layout: &Layout, thread_state: usize) -> Option<usize> {
        if codes::n_deaths() != self.deaths_seen {
            self.forget_codes();
        }
        // SAFETY: as our caller says.
        let change = unsafe { self.find_change(layout, thread_state) };
        if change.first_changed == self.depth && change.n_fresh == 0 {
            return None;
        }
        // SAFETY: the change was just found.
        let (first_changed, depth) = unsafe { self.narrow(layout, &change) };
        for i in first_changed..depth {
            let frame = if i < change.known {
                self.entries[i].frame
            } else {
                self.fresh[depth - 1 - i]
            };
            // SAFETY: the frame is live.
            unsafe { self.remember(layout, frame, i) };
        }
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

    /// The first entry that is not among the first `n_written` frames that were written, shims before it included.
    pub fn first_behind(&self, n_written: u32) -> usize {
        let entries = &self.entries[..self.depth];
        let mut at = entries.partition_point(|entry| entry.n_written <= n_written);
        while at > 0 && entries[at - 1].is_shim && entries[at - 1].n_written == n_written {
            at -= 1;
        }
        at
    }

    /// Remembers one frame as entry `i`.
    ///
    /// # Safety
    /// `frame` is in the calling thread's chain.
    #[inline(always)]
    unsafe fn remember(&mut self, layout: &Layout, frame: usize, i: usize) {
        // SAFETY: the frame is live, and these are its fields.
        let (raw_code, instruction) = unsafe {
            (
                word(frame, layout.frame_code),
                word(frame, layout.frame_instr),
            )
        };
        self.entries[i] = Entry {
            frame,
            code: raw_code,
            instruction,
            n_written: u32::MAX,
            is_shim: layout.frame_owner.is_some_and(|owner| {
                // SAFETY: the owner is one byte of the same live frame.
                let owner = unsafe { (frame.wrapping_add(owner) as *const u8).read() };
                owner >= layout.first_shim_owner
            }),
        };
        self.places[place_of(frame)] = i as u16;
    }

    /// Whether entry `i` is a shim between C and Python.
    pub fn is_shim(&self, i: usize) -> bool {
        self.entries[i].is_shim
    }

    /// What is written for entry `i`; `None` for a shim. The entry's code object is alive.
    #[inline(always)]
    pub fn frame_to_write(&mut self, layout: &Layout, i: usize) -> Option<Frame> {
        let Entry {
            code: raw_code,
            instruction,
            is_shim,
            ..
        } = self.entries[i];
        if is_shim {
            return None;
        }
        let code = raw_code & layout.frame_code_mask;
        let cached = self.codes
            [(code >> 5).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56 & (N_CACHED_CODES - 1)];
        let id = if cached.code == code {
            cached.id
        } else {
            self.learn_code(layout, code)
        };
        if id == codes::NOBODY {
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

    #[cold]
    #[inline(never)]
    fn learn_code(&mut self, layout: &Layout, code: usize) -> u32 {
        let id = codes::id_of(layout, code);
        self.codes[(code >> 5).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56 & (N_CACHED_CODES - 1)] =
            CachedCode { code, id };
        id
    }

    /// A code object that had been recorded was freed: its address may mean another one now.
    #[cold]
    #[inline(never)]
    fn take_deaths_into_account(&mut self, room: &mut Room) {
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

    /// The general way: walks the whole chain; what is equal at its outer end is found later.
    ///
    /// # Safety
    /// `leaf` is 0 or the calling thread's innermost frame.
    #[cold]
    #[inline(never)]
    unsafe fn whole_chain(&mut self, layout: &Layout, leaf: usize) -> Change {
        let mut n_frames = 0;
        let mut frame = leaf;
        while frame != 0 {
            n_frames += 1;
            // SAFETY: the frame is in the live chain.
            frame = unsafe { word(frame, layout.frame_previous) };
        }
        let n_left_out = n_frames - n_frames.min(MAX_DEPTH);
        let mut n_fresh = 0;
        let mut i = 0;
        frame = leaf;
        while frame != 0 {
            if i < KEPT_INNERMOST || i >= KEPT_INNERMOST + n_left_out {
                self.fresh[n_fresh] = frame;
                n_fresh += 1;
            }
            i += 1;
            // SAFETY: as above.
            frame = unsafe { word(frame, layout.frame_previous) };
        }
        if n_left_out > 0 {
            session::count_lost(heaptide_capture::Lost::DeepStack, 1);
        }
        self.has_hole = n_left_out > 0;
        Change {
            first_changed: 0,
            known: 0,
            n_fresh,
        }
    }
}

/// # Safety
/// `thread_state` is 0 or a live thread state of the interpreter that `layout` describes.
#[inline(always)]
unsafe fn innermost(layout: &Layout, thread_state: usize) -> usize {
    if thread_state == 0 {
        return 0;
    }
    match layout.current_frame {
        // SAFETY: as the caller says.
        CurrentFrame::Direct(offset) => unsafe { word(thread_state, offset) },
        CurrentFrame::ViaCFrame {
            cframe,
            current_frame,
        } => {
            // SAFETY: a live thread state always has a C frame record.
            let record = unsafe { word(thread_state, cframe) };
            if record == 0 {
                return 0;
            }
            // SAFETY: as above.
            unsafe { word(record, current_frame) }
        }
    }
}

/// Writes the code object and the raw instruction of the innermost frames, shims left out. Returns how many there are.
///
/// # Safety
/// As `Stack::sync`.
pub unsafe fn innermost_frames(
    layout: &Layout,
    thread_state: usize,
    out: &mut [(usize, usize)],
) -> usize {
    // SAFETY: as the caller says.
    let mut frame = unsafe { innermost(layout, thread_state) };
    let mut n_frames = 0;
    while frame != 0 && n_frames < out.len() {
        let is_shim = layout.frame_owner.is_some_and(|owner| {
            // SAFETY: the owner is one byte of a live frame.
            let owner = unsafe { (frame.wrapping_add(owner) as *const u8).read() };
            owner >= layout.first_shim_owner
        });
        // SAFETY: the frame is in the calling thread's live chain, and these are its fields.
        unsafe {
            if !is_shim {
                out[n_frames] = (
                    word(frame, layout.frame_code) & layout.frame_code_mask,
                    word(frame, layout.frame_instr),
                );
                n_frames += 1;
            }
            frame = word(frame, layout.frame_previous);
        }
    }
    n_frames
}
