//! One step of a walk: from a frame to its caller, by the rule of the frame's code.
//!
//! A step stores in the frame the addresses from which it read, so that the next event can compare the words there instead of
//! repeating the step.

use super::{NativeFrame, NativeStack, Position, word};
use crate::native::rules::{CallerRule, Rule};

/// The result of a step.
pub(super) enum Step {
    /// The caller. `is_exact`: its `ip` is the interrupted instruction itself, not a return address after a call.
    To { next: Position, is_exact: bool },
    /// The frame was the outermost one.
    End,
    /// The caller cannot be found.
    Cut,
}

impl NativeStack {
    /// Goes from a frame to its caller.
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
                // SAFETY: `is_readable` checked the address against the stack's bounds.
                unsafe { word(end_at) }
            }
            CallerRule::End => return Step::End,
            // SAFETY: the caller promises what `step_over_signal` requires.
            CallerRule::Signal => return unsafe { self.step_over_signal(at) },
            // SAFETY: the caller promises what `step_by_base` requires.
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
        // SAFETY: `is_readable` checked both addresses against the stack's bounds.
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

    /// Goes from a frame without a rule to its caller by the base pointer, if that leads to code with a rule.
    ///
    /// # Safety
    /// As for [`NativeStack::step`].
    #[cold]
    #[inline(never)]
    unsafe fn step_by_base(&mut self, at: usize) -> Step {
        let NativeFrame { sp, bp, .. } = self.fresh[at];
        if bp < sp || !self.is_readable(bp, sp) || !self.is_readable(bp.wrapping_add(8), sp) {
            return Step::Cut;
        }
        // SAFETY: `is_readable` checked both addresses against the stack's bounds.
        let (ip, caller_bp) = unsafe { (word(bp + 8), word(bp)) };
        self.after_guess = true;
        // SAFETY: `after_guess` is set.
        let cached = unsafe { self.cached(ip.wrapping_sub(1)) };
        if cached.rule.caller == CallerRule::Unknown {
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

    /// Goes from the frame that the kernel puts under a signal handler to the interrupted function. The kernel's frame holds
    /// the registers in a fixed order.
    ///
    /// # Safety
    /// As for [`NativeStack::step`].
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
        // SAFETY: `is_readable` checked the highest of the three addresses, and the others lie between it and `sp`.
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

    /// Whether an address is that of an aligned word of the stack, not below `sp`.
    #[inline(always)]
    fn is_readable(&self, address: usize, sp: usize) -> bool {
        address >= sp && address & 7 == 0 && address < self.high.saturating_sub(7)
    }
}
