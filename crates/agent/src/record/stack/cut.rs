//! Stacks that are too deep to be read at each event.
//!
//! A stack deeper than [`MAX_DEPTH`] is *cut*: only its innermost frames are read, so an event costs the same at any depth.
//! The entries are then a window. Its outer end stays at one frame while the stack grows and shrinks within
//! [`LEAST_CUT`]`..=`[`MAX_DEPTH`] entries. Beyond these bounds the window moves to the innermost [`KEPT_INNERMOST`]
//! frames. A recursion therefore writes a whole window only once in about 1,500 calls. One frame with a reserved name,
//! written for the outermost entry, replaces all frames that are not recorded.

use super::{Change, MAX_DEPTH, Stack};
use crate::cpython::Layout;
use crate::cpython::interpreter::{is_shim, word};
use crate::session;

/// Entries of a stack that has just been cut: halfway between the depths at which the window moves.
pub const KEPT_INNERMOST: usize = 2560;
/// A cut stack with fewer entries is read again, after which it has more entries or is complete.
pub const LEAST_CUT: usize = 1024;
/// Frames outside of a cut stack that `shim_outside` searches.
const MAX_SEARCHED: usize = 1 << 20;

impl Stack {
    /// Whether the outer frames are left out.
    #[inline(always)]
    pub fn is_cut(&self) -> bool {
        self.least_depth != 0
    }

    #[inline(always)]
    pub(super) fn count_if_cut(&self) {
        if self.is_cut() {
            session::count_lost(heaptide_capture::Lost::DeepStack, 1);
        }
    }

    /// The shim of the evaluation that runs the outermost entry of a cut stack; 0 if there is none. Called only when the
    /// window has moved, so that many events share its cost.
    ///
    /// # Safety
    /// The entries were compared with the live chain of the calling thread in this event.
    #[cold]
    pub unsafe fn shim_outside(&self, layout: &Layout) -> usize {
        let mut frame = self.entries[0].frame;
        for _ in 0..MAX_SEARCHED {
            // SAFETY: the first frame is in the live chain, and each later one is the caller of the one before it.
            if frame == 0 || unsafe { is_shim(layout, frame) } {
                break;
            }
            // SAFETY: as above.
            frame = unsafe { word(frame, layout.frame_previous) };
        }
        frame
    }

    /// Sets the caller of the outermost frame of the current chain.
    #[inline(always)]
    pub(super) fn set_caller(&mut self, caller: usize) {
        if (caller != 0) != self.is_cut() {
            // The record of the outermost frame changes, even if it is the same frame, so it must be written again.
            self.entries[0].frame = 0;
        }
        self.caller = caller;
        self.least_depth = if caller == 0 { 0 } else { LEAST_CUT };
    }

    /// Treats the whole chain as fresh, or its innermost frames if it is too deep. `narrow` finds later how much of its outer
    /// end is unchanged.
    ///
    /// # Safety
    /// `leaf` is 0 or the calling thread's innermost frame.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn whole_chain(&mut self, layout: &Layout, leaf: usize) -> Change {
        let mut n_fresh = 0;
        let mut frame = leaf;
        while frame != 0 && n_fresh < MAX_DEPTH {
            self.fresh[n_fresh] = frame;
            n_fresh += 1;
            // SAFETY: the frame is in the live chain.
            frame = unsafe { word(frame, layout.frame_previous) };
        }
        if frame != 0 {
            n_fresh = KEPT_INNERMOST;
            // SAFETY: the frame is in the live chain.
            frame = unsafe { word(self.fresh[n_fresh - 1], layout.frame_previous) };
        }
        self.set_caller(frame);
        Change {
            first_changed: 0,
            known: 0,
            n_fresh,
        }
    }
}
