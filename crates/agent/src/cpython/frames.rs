//! The walk from a thread state through its frames, in its plainest form.
//!
//! It serves the self-check and the tests. The walker in the allocation hooks is its own code, made for speed; both
//! follow the same [`Layout`].

use super::layout::{CurrentFrame, Layout, instr_offset};
use super::memory::{Direct, Memory};
use std::ops::ControlFlow;

/// Called with a frame, its code object and the instruction's offset in bytes, innermost frame first.
pub type Visit<'a> = dyn FnMut(usize, usize, u32) -> ControlFlow<()> + 'a;

/// The walk met an address that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenChain;

/// Visits the Python frames of a thread, shim frames left out, until the chain ends or the visitor breaks off.
///
/// # Safety
/// `tstate` must be a live thread state for which `layout` is right, and its thread must not run meanwhile: it is the
/// calling thread's own, or the GIL is held.
pub unsafe fn thread_frames(
    layout: &Layout,
    tstate: usize,
    visit: &mut Visit<'_>,
) -> Result<(), BrokenChain> {
    // SAFETY: the thread state and its frames are alive and at rest, and the layout says where their pointers are.
    let mut memory = unsafe { Direct::trusting() };
    frames_from(&mut memory, layout, tstate, visit)
}

/// The same over any memory; the self-check reads through the kernel.
pub fn frames_from<M: Memory>(
    memory: &mut M,
    layout: &Layout,
    tstate: usize,
    visit: &mut Visit<'_>,
) -> Result<(), BrokenChain> {
    let mut frame = innermost(memory, layout, tstate).ok_or(BrokenChain)?;
    while frame != 0 {
        let previous = memory
            .word(frame.wrapping_add(layout.frame_previous))
            .ok_or(BrokenChain)?;
        if !is_shim(memory, layout, frame).ok_or(BrokenChain)? {
            let code = memory
                .word(frame.wrapping_add(layout.frame_code))
                .ok_or(BrokenChain)?
                & layout.frame_code_mask;
            let instr = memory
                .word(frame.wrapping_add(layout.frame_instr))
                .ok_or(BrokenChain)?;
            if visit(frame, code, instr_offset(layout, code, instr)).is_break() {
                break;
            }
        }
        frame = previous;
    }
    Ok(())
}

fn innermost<M: Memory>(memory: &mut M, layout: &Layout, tstate: usize) -> Option<usize> {
    match layout.current_frame {
        CurrentFrame::Direct(offset) => memory.word(tstate.wrapping_add(offset)),
        CurrentFrame::ViaCFrame {
            cframe,
            current_frame,
        } => {
            let record = memory.word(tstate.wrapping_add(cframe))?;
            memory.word(record.wrapping_add(current_frame))
        }
    }
}

fn is_shim<M: Memory>(memory: &mut M, layout: &Layout, frame: usize) -> Option<bool> {
    match layout.frame_owner {
        Some(offset) => Some(memory.byte(frame.wrapping_add(offset))? >= layout.first_shim_owner),
        None => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake_objects::{FakeFrame, FakeThread, LAYOUTS};
    use super::super::layout::BEFORE_START;
    use super::*;

    const CODE: usize = 0x7000_0000;

    fn visited(thread: &FakeThread, layout: &Layout, at_most: usize) -> Vec<(usize, u32)> {
        let mut seen = Vec::new();
        // SAFETY: the fake thread and its frames are alive and laid out as the layout says.
        let walk = unsafe {
            thread_frames(layout, thread.address(), &mut |_, code, instr| {
                seen.push((code, instr));
                if seen.len() < at_most {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })
        };
        assert_eq!(walk, Ok(()));
        seen
    }

    #[test]
    fn frames_come_innermost_first_in_every_layout() {
        for layout in LAYOUTS {
            let frames = [(CODE, 4), (CODE + 0x1000, 18), (CODE, 0)]
                .map(|(code, at)| FakeFrame::python(code, at));
            let thread = FakeThread::new(layout, &frames);
            assert_eq!(
                visited(&thread, layout, 9),
                [(CODE, 4), (CODE + 0x1000, 18), (CODE, 0)]
            );
        }
    }

    #[test]
    fn shim_frames_are_left_out_where_they_exist() {
        for layout in LAYOUTS.iter().filter(|layout| layout.frame_owner.is_some()) {
            let frames = [
                FakeFrame::shim(),
                FakeFrame::python(CODE, 2),
                FakeFrame::shim(),
                FakeFrame::python(CODE, 6),
            ];
            let thread = FakeThread::new(layout, &frames);
            assert_eq!(visited(&thread, layout, 9), [(CODE, 2), (CODE, 6)]);
        }
    }

    #[test]
    fn a_frame_that_has_not_begun_says_so() {
        for layout in LAYOUTS {
            let thread = FakeThread::new(layout, &[FakeFrame::python(CODE, -2)]);
            assert_eq!(visited(&thread, layout, 9), [(CODE, BEFORE_START)]);
        }
    }

    #[test]
    fn the_visitor_can_break_off() {
        let frames = [
            FakeFrame::python(CODE, 2),
            FakeFrame::python(CODE, 4),
            FakeFrame::python(CODE, 6),
        ];
        let thread = FakeThread::new(LAYOUTS[0], &frames);
        assert_eq!(visited(&thread, LAYOUTS[0], 2), [(CODE, 2), (CODE, 4)]);
    }

    #[test]
    fn a_thread_without_frames_visits_nothing() {
        for layout in LAYOUTS {
            assert_eq!(visited(&FakeThread::new(layout, &[]), layout, 9), []);
        }
    }
}
