//! A simple walk from a thread state through its frames, for the self-check, the heap walk and tests.
//!
//! The allocation hooks have a separate, faster walker (`record::stack`); both follow the same [`Layout`].

use super::layout::{CurrentFrame, Layout, instr_offset};
use super::memory::{Direct, Memory};
use std::ops::ControlFlow;

/// Called with a frame, its code object and the instruction's offset in bytes, innermost frame first.
pub type Visit<'a> = dyn FnMut(usize, usize, u32) -> ControlFlow<()> + 'a;

/// The chain of frames contains an address that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenChain;

/// Visits the Python frames of a thread without shim frames, until the chain ends or the visitor breaks.
///
/// # Safety
/// `tstate` must be a live thread state for which `layout` is right. Its thread must not run during the call: it is the
/// calling thread, or the caller holds the GIL.
pub unsafe fn thread_frames(
    layout: &Layout,
    tstate: usize,
    visit: &mut Visit<'_>,
) -> Result<(), BrokenChain> {
    // SAFETY: the caller promises that the thread state and its frames are alive and do not change.
    unsafe { frames_from(&mut Direct, layout, tstate, visit) }
}

/// Does the same as [`thread_frames`] in any memory; the self-check reads memory through the kernel.
///
/// # Safety
/// As for [`thread_frames`], unless `memory` checks addresses.
pub unsafe fn frames_from<M: Memory>(
    memory: &mut M,
    layout: &Layout,
    tstate: usize,
    visit: &mut Visit<'_>,
) -> Result<(), BrokenChain> {
    // SAFETY: passed on from the caller.
    let mut frame = unsafe { innermost(memory, layout, tstate) }.ok_or(BrokenChain)?;
    while frame != 0 {
        // SAFETY: `frame` is a frame of the thread, and the layout says where its fields are.
        let mut field = |offset| unsafe { memory.word(frame.wrapping_add(offset)) };
        let previous = field(layout.frame_previous).ok_or(BrokenChain)?;
        let code = field(layout.frame_code).ok_or(BrokenChain)? & layout.frame_code_mask;
        let instr = field(layout.frame_instr).ok_or(BrokenChain)?;
        // SAFETY: as for the fields above.
        if !unsafe { is_shim(memory, layout, frame) }.ok_or(BrokenChain)?
            && visit(frame, code, instr_offset(layout, code, instr)).is_break()
        {
            break;
        }
        frame = previous;
    }
    Ok(())
}

/// # Safety
/// As for [`frames_from`].
unsafe fn innermost<M: Memory>(memory: &mut M, layout: &Layout, tstate: usize) -> Option<usize> {
    // SAFETY: the thread state has a pointer at this offset, and so has the C frame record that it refers to.
    let mut word = |base: usize, offset| unsafe { memory.word(base.wrapping_add(offset)) };
    match layout.current_frame {
        CurrentFrame::Direct(offset) => word(tstate, offset),
        CurrentFrame::ViaCFrame {
            cframe,
            current_frame,
        } => {
            let record = word(tstate, cframe)?;
            word(record, current_frame)
        }
    }
}

/// # Safety
/// `frame` is a live frame for which `layout` is right, unless `memory` checks addresses.
unsafe fn is_shim<M: Memory>(memory: &mut M, layout: &Layout, frame: usize) -> Option<bool> {
    let Some(offset) = layout.frame_owner else {
        return Some(false);
    };
    // SAFETY: the frame has its owner byte at this offset.
    let owner = unsafe { memory.byte(frame.wrapping_add(offset)) }?;
    Some(owner >= layout.first_shim_owner)
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
    fn a_frame_before_its_first_instruction_is_marked() {
        for layout in LAYOUTS {
            let thread = FakeThread::new(layout, &[FakeFrame::python(CODE, -2)]);
            assert_eq!(visited(&thread, layout, 9), [(CODE, BEFORE_START)]);
        }
    }

    #[test]
    fn the_walk_stops_when_the_visitor_breaks() {
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
