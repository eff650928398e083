//! One step of a walk: from a frame to its caller's, by the rule of the code that it is in.
//!
//! A step notes in the frame where it read what leads to the caller, so that the next event can compare these words instead
//! of taking the step again.

use super::{NativeFrame, NativeStack, Position, word};
use crate::native::rules::{CallerRule, Rule};

/// Where a step leads.
pub(super) enum Step {
    To { next: Position, is_exact: bool },
    End,
    Cut,
}

impl NativeStack {
    /// Leaves a frame, and notes in it where that was read.
    ///
    /// # Safety
    /// `fresh[at]` is on the live stack, and the bounds are those of that stack.
    #[inline(always)]
    pub(super) unsafe fn step(&mut self, at: usize, rule: Rule) -> Step {
        let NativeFrame { sp, bp, .. } = self.fresh[at];
        let mut end_at = 0;
        let end = match rule.caller {
            CallerRule::FromStack => sp.wrapping_add_signed(rule.offset as isize),
            CallerRule::FromBase => bp.wrapping_add_signed(rule.offset as isize),
            CallerRule::AtBase => {
                end_at = bp.wrapping_add_signed(rule.offset as isize);
                if !self.is_readable(end_at, sp) || !self.is_readable(bp, sp) {
                    return Step::Cut;
                }
                // SAFETY: checked against the stack's bounds.
                unsafe { word(end_at) }
            }
            CallerRule::End => return Step::End,
            // SAFETY: as our caller says.
            CallerRule::Signal => return unsafe { self.step_over_signal(at) },
            // SAFETY: as our caller says.
            CallerRule::Unknown => return unsafe { self.step_by_base(at) },
        };
        if end <= sp {
            return Step::Cut;
        }
        let ip_at = end.wrapping_sub(8);
        let bp_at = match rule.caller {
            _ if rule.base_offset == Rule::NOT_SAVED => 0,
            CallerRule::AtBase => bp,
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
        if self.cached(ip.wrapping_sub(1)).rule.caller == CallerRule::Unknown {
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
}
