//! The native frames of the calling thread, followed by call-frame information, remembered from event to event.
//!
//! A frame is (ip, sp, bp): where it goes on, where its stack begins, and its base pointer. The walk goes from the
//! innermost frame outwards until it meets a frame that was there at the last event, too. That alone proves nothing for
//! the frames further out: a function may be called again at the same depth by another. But each step of a walk depends on
//! the frame and on two or three words of memory, whose places were remembered: where the return address lies, where the
//! base pointer was saved, where a function that aligned its stack keeps the rest. If the frame is the same and
//! these words are the same, so is the next frame, and so on outwards. Comparing them takes about a nanosecond a frame,
//! because no load waits for another.
//!
//! Most functions use the base pointer as a register like any other, and the interpreter's evaluation keeps something there
//! that is new with every call. So a base pointer counts only where it is needed on the way out: where this frame's caller, or
//! one further out before it is loaded again, is found by it.
//!
//! ```text
//! remembered:  _start … call  build  reserve  malloc-hook
//! now:                        build  push     malloc-hook       walked: 2 frames; compared: from build on
//! ```
//! Every address is checked against the bounds of the stack before it is read, so wrong or missing information ends the
//! walk: the stack is then *cut*, which is counted and shown.

use super::modules::{self, Owner};
use super::rules::{Kind, Rule, rule_of};
use super::{bounds, mixed};
use crate::session;

/// Frames that are remembered and written; the outermost of a deeper stack are cut.
pub const MAX_DEPTH: usize = 4096;
const N_CACHED: usize = 2048;

/// One remembered frame.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct NativeFrame {
    ip: usize,
    pub sp: usize,
    bp: usize,
    /// Where the caller's stack begins.
    pub end: usize,
    /// Where the return address, the caller's base pointer and `end` were read; 0 where memory was not asked, and for a base
    /// pointer that the caller does not need.
    ip_at: usize,
    bp_at: usize,
    end_at: usize,
    /// The number of the library, or 0 for frames of ours, which are not written.
    pub module: u32,
    /// The address in the library's file.
    pub offset: u32,
    /// Frames of the mixed stack written up to and including this one and what it evaluates.
    pub n_written: u32,
    /// Of a frame that evaluates Python: frames of the mixed stack before the first it runs; otherwise `u32::MAX`.
    pub n_before: u32,
    /// `bp` decides where this frame's caller is, or that of one further out. If not, `bp` may be an old one.
    needs_base: bool,
}

/// What is known of an address.
#[derive(Clone, Copy)]
#[repr(C)]
struct Cached {
    pc: usize,
    rule: Rule,
    module: u32,
    offset: u32,
}

/// What one thread remembers. Zero bytes are the empty stack.
#[repr(C)]
pub struct NativeStack {
    /// Entries in force, outermost first.
    pub depth: usize,
    /// The outer frames are missing.
    pub is_cut: bool,
    /// So many frames of the mixed stack are in the chunk.
    pub n_total: u32,
    generation: u64,
    /// The memory of the stack that was walked last.
    low: usize,
    high: usize,
    cut_id: u32,
    cache: [Cached; N_CACHED],
    pub entries: [NativeFrame; MAX_DEPTH],
    /// Frames that are not known to be remembered, innermost first.
    fresh: [NativeFrame; MAX_DEPTH],
    /// By Python frame: an address in the native frame that evaluates it and those behind it; 0 if that is the one before.
    pub marks: [usize; mixed::MAX_PYTHON_DEPTH],
}

/// A point in a walk.
#[derive(Clone, Copy)]
pub struct Position {
    ip: usize,
    sp: usize,
    bp: usize,
}

/// Where the function is that this is inlined into.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn here() -> Position {
    let (ip, sp, bp): (usize, usize, usize);
    // SAFETY: only reads registers.
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
    // Sessions with native stacks do not begin on such a machine.
    Position {
        ip: 0,
        sp: 0,
        bp: 0,
    }
}

/// Where a step leads.
enum Step {
    To { next: Position, is_exact: bool },
    End,
    Cut,
}

/// What a walk found out.
pub struct Walked {
    /// Entries before this one are as they were.
    pub first_changed: usize,
    pub is_changed: bool,
}

impl NativeStack {
    /// Forgets everything: the next event writes its whole stack. Needed where a chunk begins.
    pub fn forget(&mut self) {
        self.depth = 0;
        self.n_total = 0;
    }

    /// The number that stands for missing frames.
    pub fn cut_id(&mut self) -> u32 {
        if self.cut_id == 0 {
            self.cut_id = modules::cut_id();
        }
        self.cut_id
    }

    /// Begins anew for another session, whose libraries have other numbers.
    pub fn join_session(&mut self) {
        self.forget();
        self.is_cut = false;
        self.cut_id = 0;
        self.generation = 0;
    }

    #[cold]
    #[inline(never)]
    fn forget_addresses(&mut self) {
        self.generation = modules::generation();
        for cached in &mut self.cache {
            cached.pc = 0;
        }
        self.depth = 0;
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
        let mut n_fresh = 0;
        // Entries before this one may still be met.
        let mut reach = self.depth;
        loop {
            while reach > 0 && self.entries[reach - 1].sp < sp {
                reach -= 1;
            }
            if reach > 0 {
                let entry = &self.entries[reach - 1];
                if entry.sp == sp && entry.ip == ip && (!entry.needs_base || entry.bp == bp) {
                    // SAFETY: the entry was just reached on the live stack.
                    let n_wrong = unsafe { self.compare_outwards(reach) };
                    if n_wrong == 0 && reach + n_fresh <= MAX_DEPTH {
                        break;
                    }
                    reach = n_wrong;
                }
            }
            if n_fresh == MAX_DEPTH {
                self.is_cut = true;
                reach = 0;
                break;
            }
            let pc = if is_exact { ip } else { ip.wrapping_sub(1) };
            let cached = self.cached(pc);
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
            // SAFETY: the frame is on the live stack, whose bounds are known.
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
                    reach = 0;
                    break;
                }
                Step::Cut => {
                    self.is_cut = true;
                    reach = 0;
                    break;
                }
            }
        }
        self.take_over(reach, n_fresh)
    }

    /// Puts the fresh frames behind the first `known` entries.
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

    /// Compares the words that lead from entry `n - 1` to entry 0. Returns 0 if all are as they were; otherwise the
    /// entries before the returned one may still be right.
    ///
    /// # Safety
    /// Entry `n - 1` is on the live stack.
    #[inline(always)]
    unsafe fn compare_outwards(&self, n: usize) -> usize {
        for i in (1..n).rev() {
            let (entry, caller) = (&self.entries[i], &self.entries[i - 1]);
            // SAFETY: the entry is on the live stack: the first one as our caller says, each following one because the
            // words that lead there were just found to be the same. So are the places of these words.
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

    /// Leaves a frame, and notes in it where that was read.
    ///
    /// # Safety
    /// `fresh[at]` is on the live stack, and the bounds are those of that stack.
    #[inline(always)]
    unsafe fn step(&mut self, at: usize, rule: Rule) -> Step {
        let NativeFrame { sp, bp, .. } = self.fresh[at];
        let mut end_at = 0;
        let end = match rule.kind {
            Kind::FromStack => sp.wrapping_add_signed(rule.offset as isize),
            Kind::FromBase => bp.wrapping_add_signed(rule.offset as isize),
            Kind::AtBase => {
                end_at = bp.wrapping_add_signed(rule.offset as isize);
                if !self.is_readable(end_at, sp) || !self.is_readable(bp, sp) {
                    return Step::Cut;
                }
                // SAFETY: checked against the stack's bounds.
                unsafe { word(end_at) }
            }
            Kind::End => return Step::End,
            // SAFETY: as our caller says.
            Kind::Signal => return unsafe { self.step_over_signal(at) },
            // SAFETY: as our caller says.
            Kind::Unknown => return unsafe { self.step_by_base(at) },
        };
        if end <= sp {
            return Step::Cut;
        }
        let ip_at = end.wrapping_sub(8);
        let bp_at = match rule.kind {
            _ if rule.base_offset == Rule::NOT_SAVED => 0,
            Kind::AtBase => bp,
            _ => end.wrapping_add_signed(rule.base_offset as isize),
        };
        if !self.is_readable(ip_at, sp) || (bp_at != 0 && !self.is_readable(bp_at, sp)) {
            return Step::Cut;
        }
        // SAFETY: checked against the stack's bounds.
        let (ip, bp) = unsafe { (word(ip_at), if bp_at == 0 { bp } else { word(bp_at) }) };
        let frame = &mut self.fresh[at];
        frame.end = end;
        frame.ip_at = ip_at;
        frame.bp_at = bp_at;
        frame.end_at = end_at;
        if ip == 0 {
            return Step::End;
        }
        Step::To {
            next: Position { ip, sp: end, bp },
            is_exact: false,
        }
    }

    /// Leaves a frame of which nothing is known, by the base pointer, if that leads to code that is known.
    #[cold]
    #[inline(never)]
    unsafe fn step_by_base(&mut self, at: usize) -> Step {
        let NativeFrame { sp, bp, .. } = self.fresh[at];
        if bp < sp || !self.is_readable(bp, sp) || !self.is_readable(bp.wrapping_add(8), sp) {
            return Step::Cut;
        }
        // SAFETY: checked against the stack's bounds.
        let (ip, caller_bp) = unsafe { (word(bp + 8), word(bp)) };
        if self.cached(ip.wrapping_sub(1)).rule.kind == Kind::Unknown {
            return Step::Cut;
        }
        let frame = &mut self.fresh[at];
        frame.end = bp + 16;
        frame.ip_at = bp + 8;
        frame.bp_at = bp;
        Step::To {
            next: Position {
                ip,
                sp: bp + 16,
                bp: caller_bp,
            },
            is_exact: false,
        }
    }

    /// Leaves the frame that the kernel puts under a signal handler: the registers are in a struct, in a fixed order.
    #[cold]
    #[inline(never)]
    unsafe fn step_over_signal(&mut self, at: usize) -> Step {
        const BP: usize = 120;
        const SP: usize = 160;
        const IP: usize = 168;
        let sp = self.fresh[at].sp;
        if !self.is_readable(sp + IP, sp) {
            return Step::Cut;
        }
        // SAFETY: checked against the stack's bounds.
        let next = unsafe {
            Position {
                ip: word(sp + IP),
                sp: word(sp + SP),
                bp: word(sp + BP),
            }
        };
        if next.sp <= sp || !self.is_readable(next.sp, sp) {
            return Step::Cut;
        }
        let frame = &mut self.fresh[at];
        frame.end = next.sp;
        frame.ip_at = sp + IP;
        frame.bp_at = sp + BP;
        frame.end_at = sp + SP;
        Step::To {
            next,
            is_exact: true,
        }
    }

    /// Whether there is a word of the stack at an address, not below `sp`.
    #[inline(always)]
    fn is_readable(&self, address: usize, sp: usize) -> bool {
        address >= sp && address & 7 == 0 && address < self.high.saturating_sub(7)
    }

    #[inline(always)]
    fn cached(&mut self, pc: usize) -> Cached {
        let cached = self.cache[place_of(pc)];
        if cached.pc == pc {
            cached
        } else {
            self.learn(pc)
        }
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, pc: usize) -> Cached {
        let _errno = crate::sys::KeepErrno::now();
        let mut cached = Cached {
            pc,
            rule: Rule::default(),
            module: 0,
            offset: 0,
        };
        match modules::owner_of(pc) {
            Owner::Module(module) => {
                // SAFETY: a frame of this thread is in the library, so it is loaded.
                cached.rule = unsafe { rule_of(&module, pc) };
                let own = modules::on_unload as *const () as usize;
                if !(module.start..module.end).contains(&own) {
                    cached.module = module.id;
                    cached.offset =
                        u32::try_from(pc.wrapping_sub(module.base)).unwrap_or(u32::MAX - 1);
                }
            }
            Owner::Nowhere(id) => cached.module = id,
            // Not remembered: the next event asks again.
            Owner::Busy => cached.pc = 0,
        }
        self.cache[place_of(pc)] = cached;
        cached
    }

    #[cold]
    #[inline(never)]
    /// Whether the address lies in the stack that was walked last.
    pub fn is_on_stack(&self, address: usize) -> bool {
        (self.low..self.high).contains(&address)
    }

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

#[inline(always)]
fn place_of(pc: usize) -> usize {
    pc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53 & (N_CACHED - 1)
}

/// # Safety
/// The word lies within the live stack of this thread.
#[inline(always)]
unsafe fn word(address: usize) -> usize {
    // SAFETY: as the caller says; whatever a compiler keeps there, it is read as a number.
    unsafe { (address as *const usize).read_volatile() }
}
