//! The native frames of the calling thread, found by call-frame information and remembered from event to event.
//!
//! A frame is (ip, sp, bp): the address at which it continues, the start of its stack, and its base pointer. The walk goes
//! from the innermost frame outwards until it reaches a frame of the last event. That alone does not prove that the frames
//! further out are unchanged: another function may call the same one at the same depth. But each step depends only on the
//! frame and on two or three words whose addresses were remembered. These are the return address, the saved base pointer,
//! and for a function that aligned its stack the saved frame address. If the frame and these words are unchanged, so is the
//! next frame, and so on outwards. Comparing them takes about a nanosecond per frame, because no load waits for another.
//!
//! Most functions use the base pointer as a general register, and the interpreter's evaluation keeps a value there that
//! differs in every call. So a base pointer is compared only if it is needed to find this frame's caller, or the caller of a
//! frame further out that has not loaded it again.
//!
//! ```text
//! remembered:  _start … call  build  reserve  malloc-hook
//! now:                        build  push     malloc-hook       walked: 2 frames; compared: from build on
//! ```
//! Every address is checked against the bounds of the stack before it is read. Wrong or missing information ends the walk:
//! the stack is then *cut*, which is counted and reported.
//!
//! [`step`] goes from one frame to its caller; [`addresses`] remembers rule and library of code addresses.

mod addresses;
mod step;

use self::addresses::{Cached, N_CACHED};
use self::step::Step;
use super::{bounds, mixed, modules};
use crate::record::stack::cut::{KEPT_INNERMOST, LEAST_CUT};
use crate::session;

/// Frames that are remembered and written; the outermost of a deeper stack are cut. The remaining window moves as rarely as
/// the window of `record::stack`, for the same reason.
pub const MAX_DEPTH: usize = 4096;

/// One remembered frame.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct NativeFrame {
    ip: usize,
    pub sp: usize,
    bp: usize,
    /// The start of the caller's stack.
    pub end: usize,
    /// The addresses from which the return address, the caller's base pointer and `end` were read. 0 if a value was not
    /// read from memory, or if the caller does not need the base pointer.
    ip_at: usize,
    bp_at: usize,
    end_at: usize,
    /// The number of the library; 0 for frames of Heaptide, which are not written.
    pub module: u32,
    /// The address in the library's file.
    pub offset: u32,
    /// Frames of the mixed stack written up to and including this one and the Python frames that it evaluates.
    pub n_written: u32,
    /// For a frame that evaluates Python: frames of the mixed stack before the first Python frame; otherwise `u32::MAX`.
    pub n_before: u32,
    /// Whether `bp` is needed to find the caller of this frame or of one further out. If not, `bp` may be outdated.
    needs_base: bool,
}

/// The native stack of one thread as of its last event. Zero bytes are the empty stack.
#[repr(C)]
pub struct NativeStack {
    /// Number of valid entries, outermost first.
    pub depth: usize,
    /// Whether the outer frames are missing.
    pub is_cut: bool,
    /// A stack with fewer entries is walked again: [`LEAST_CUT`] if the stack was too deep, otherwise 0.
    least_depth: usize,
    /// Frames of the mixed stack in the chunk.
    pub n_total: u32,
    generation: u64,
    /// The memory of the stack that was walked last.
    low: usize,
    high: usize,
    cut_id: u32,
    /// The current walk passed a frame without a rule, so it may have left the real call stack.
    after_guess: bool,
    cache: [Cached; N_CACHED],
    pub entries: [NativeFrame; MAX_DEPTH],
    /// Frames of the current walk that are not remembered, innermost first.
    fresh: [NativeFrame; MAX_DEPTH],
    /// By Python frame: an address in the native frame that evaluates it; 0 if the native frame of the previous Python
    /// frame also evaluates this one.
    pub marks: [usize; mixed::MAX_PYTHON_DEPTH],
}

/// A point in a walk.
#[derive(Clone, Copy)]
pub struct Position {
    ip: usize,
    sp: usize,
    bp: usize,
}

/// The position of the function into which this is inlined.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn here() -> Position {
    let (ip, sp, bp): (usize, usize, usize);
    // SAFETY: the instructions only copy registers.
    unsafe {
        core::arch::asm!(
            "lea {ip}, [rip]",
            "mov {sp}, rsp",
            "mov {bp}, rbp",
            ip = out(reg) ip,
            sp = out(reg) sp,
            bp = out(reg) bp,
            options(nomem, nostack, preserves_flags)
        );
    }
    Position { ip, sp, bp }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn here() -> Position {
    // `start` refuses sessions with native stacks on such a machine.
    Position {
        ip: 0,
        sp: 0,
        bp: 0,
    }
}

/// The result of a walk.
pub struct Walked {
    /// Entries before this one are unchanged.
    pub first_changed: usize,
    pub is_changed: bool,
}

impl NativeStack {
    /// Makes the next event write its whole stack, as the first event of a chunk must.
    pub fn forget(&mut self) {
        self.depth = 0;
        self.n_total = 0;
    }

    /// The number of the frame that replaces missing frames.
    pub fn cut_id(&mut self) -> u32 {
        if self.cut_id == 0 {
            self.cut_id = modules::cut_id();
        }
        self.cut_id
    }

    /// Prepares the stack for another session, whose libraries have other numbers.
    pub fn join_session(&mut self) {
        self.forget();
        self.is_cut = false;
        self.least_depth = 0;
        self.cut_id = 0;
        self.generation = 0;
    }

    /// Walks the stack from `from`, a position in a function that has not returned.
    ///
    /// # Safety
    /// `from` comes from [`here`] in a function that is on the stack.
    #[inline(always)]
    pub unsafe fn walk(&mut self, from: Position) -> Walked {
        if modules::generation() != self.generation {
            self.forget_addresses();
        }
        if !(self.low..self.high).contains(&from.sp) {
            self.learn_bounds(from.sp);
        }
        let Position {
            mut ip,
            mut sp,
            mut bp,
        } = from;
        let mut is_exact = true;
        self.after_guess = false;
        let mut n_fresh = 0;
        // The walk may still reach entries before this one.
        let mut reach = self.depth;
        loop {
            while reach > 0 && self.entries[reach - 1].sp < sp {
                reach -= 1;
            }
            if reach > 0 {
                let entry = &self.entries[reach - 1];
                if entry.sp == sp && entry.ip == ip && (!entry.needs_base || entry.bp == bp) {
                    // SAFETY: the walk has just reached this entry on the live stack.
                    let n_wrong = unsafe { self.compare_outwards(reach) };
                    let depth = reach + n_fresh;
                    if n_wrong == 0 && (self.least_depth..=MAX_DEPTH).contains(&depth) {
                        break;
                    }
                    reach = n_wrong;
                }
            }
            if n_fresh == MAX_DEPTH {
                self.is_cut = true;
                self.least_depth = LEAST_CUT;
                n_fresh = KEPT_INNERMOST;
                reach = 0;
                break;
            }
            let pc = if is_exact { ip } else { ip.wrapping_sub(1) };
            // SAFETY: the walk has just reached a frame that returns to this address, or `after_guess` is set.
            let cached = unsafe { self.cached(pc) };
            let frame = &mut self.fresh[n_fresh];
            *frame = NativeFrame {
                ip,
                sp,
                bp,
                end: sp,
                ip_at: 0,
                bp_at: 0,
                end_at: 0,
                module: cached.module,
                offset: cached.offset,
                n_written: 0,
                n_before: u32::MAX,
                needs_base: cached.rule.uses_base(),
            };
            n_fresh += 1;
            // SAFETY: the walk has just reached this frame on the live stack, whose bounds were found above.
            match unsafe { self.step(n_fresh - 1, cached.rule) } {
                Step::To {
                    next,
                    is_exact: exact,
                } => {
                    (ip, sp, bp) = (next.ip, next.sp, next.bp);
                    is_exact = exact;
                }
                Step::End => {
                    self.is_cut = false;
                    self.least_depth = 0;
                    reach = 0;
                    break;
                }
                Step::Cut => {
                    self.is_cut = true;
                    self.least_depth = 0;
                    reach = 0;
                    break;
                }
            }
        }
        self.take_over(reach, n_fresh)
    }

    /// Stores the fresh frames after the first `known` entries.
    #[inline(always)]
    fn take_over(&mut self, known: usize, n_fresh: usize) -> Walked {
        let (old, depth) = (self.depth, known + n_fresh);
        let mut first_changed = known;
        let mut is_needed_outside = known > 0 && self.entries[known - 1].needs_base;
        for i in known..depth {
            let mut fresh = self.fresh[depth - 1 - i];
            fresh.needs_base |= fresh.bp_at == 0 && is_needed_outside;
            if !is_needed_outside {
                fresh.bp_at = 0;
            }
            is_needed_outside = fresh.needs_base;
            let entry = &mut self.entries[i];
            let is_same = first_changed == i
                && i < old
                && entry.ip == fresh.ip
                && entry.sp == fresh.sp
                && entry.end == fresh.end;
            let (n_written, n_before) = (entry.n_written, entry.n_before);
            *entry = fresh;
            if is_same {
                (entry.n_written, entry.n_before) = (n_written, n_before);
                first_changed = i + 1;
            } else {
                entry.n_written = u32::MAX;
            }
        }
        self.depth = depth;
        Walked {
            first_changed,
            is_changed: first_changed < depth || depth != old,
        }
    }

    /// Compares the words that lead from entry `n - 1` to entry 0. Returns 0 if all are unchanged; otherwise the entries
    /// before the returned one may still be valid.
    ///
    /// # Safety
    /// Entry `n - 1` is on the live stack.
    #[inline(always)]
    unsafe fn compare_outwards(&self, n: usize) -> usize {
        for i in (1..n).rev() {
            let (entry, caller) = (&self.entries[i], &self.entries[i - 1]);
            // SAFETY: the entry is on the live stack: the first one by the caller's promise, each later one because the words
            // that lead to it were just found unchanged. So the addresses of its own words are still in its frame.
            let is_same = unsafe {
                word(entry.ip_at) == caller.ip
                    && (entry.bp_at == 0 || word(entry.bp_at) == caller.bp)
                    && (entry.end_at == 0 || word(entry.end_at) == caller.sp)
            };
            if !is_same {
                return i;
            }
        }
        0
    }

    /// Whether the address lies in the stack that was walked last.
    pub fn is_on_stack(&self, address: usize) -> bool {
        (self.low..self.high).contains(&address)
    }

    #[cold]
    #[inline(never)]
    fn learn_bounds(&mut self, sp: usize) {
        let range = bounds::around(sp).unwrap_or(0..0);
        (self.low, self.high) = (range.start, range.end);
        self.depth = 0;
    }

    /// Counts a stack that is written without its outer frames.
    pub fn count_cut(&self) {
        session::count_lost(heaptide_capture::Lost::CutNativeStack, 1);
    }
}

/// # Safety
/// The word lies within the live stack of this thread.
#[inline(always)]
unsafe fn word(address: usize) -> usize {
    // SAFETY: the caller promises a readable word. The read is volatile because the memory belongs to other functions, whose
    // variables it may hold.
    unsafe { (address as *const usize).read_volatile() }
}
