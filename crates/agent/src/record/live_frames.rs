//! Reads the live frames of the calling thread by the interpreter's layout.

use crate::cpython::{CurrentFrame, Layout};

/// # Safety
/// A live struct of the interpreter lies at `address` and has a word at `offset`.
#[inline(always)]
pub(super) unsafe fn word(address: usize, offset: usize) -> usize {
    // SAFETY: the caller promises a readable, aligned word there.
    unsafe { (address.wrapping_add(offset) as *const usize).read() }
}

/// Whether a frame is a shim between C and Python, which has no code of the program.
///
/// # Safety
/// `frame` is a live frame of the interpreter that `layout` describes.
#[inline(always)]
pub(super) unsafe fn is_shim(layout: &Layout, frame: usize) -> bool {
    layout.frame_owner.is_some_and(|owner| {
        // SAFETY: the owner is one byte of the frame, which the caller promises to be live.
        let owner = unsafe { (frame.wrapping_add(owner) as *const u8).read() };
        owner >= layout.first_shim_owner
    })
}

/// The innermost frame of a thread; 0 if it has none.
///
/// # Safety
/// `thread_state` is 0 or a live thread state of the interpreter that `layout` describes.
#[inline(always)]
pub(super) unsafe fn innermost(layout: &Layout, thread_state: usize) -> usize {
    if thread_state == 0 {
        return 0;
    }
    match layout.current_frame {
        // SAFETY: the caller promises a live thread state, and the layout gives the offset of this field.
        CurrentFrame::Direct(offset) => unsafe { word(thread_state, offset) },
        CurrentFrame::ViaCFrame {
            cframe,
            current_frame,
        } => {
            // SAFETY: the caller promises a live thread state, and the layout gives the offset of this field.
            let record = unsafe { word(thread_state, cframe) };
            if record == 0 {
                return 0;
            }
            // SAFETY: a C frame record that a live thread state points to is live.
            unsafe { word(record, current_frame) }
        }
    }
}

/// Fills `out` with the code object and the raw instruction of the innermost frames, without shims. Returns the number of
/// frames that it wrote.
///
/// # Safety
/// `thread_state` is 0 or the calling thread's own `PyThreadState`, and `layout` fits the interpreter.
pub unsafe fn innermost_frames(
    layout: &Layout,
    thread_state: usize,
    out: &mut [(usize, usize)],
) -> usize {
    // SAFETY: the caller's promise about `thread_state` and `layout` is that of `innermost`.
    let mut frame = unsafe { innermost(layout, thread_state) };
    let mut n_frames = 0;
    while frame != 0 && n_frames < out.len() {
        // SAFETY: the frame is in the calling thread's live chain, and the layout gives the offsets of its fields.
        unsafe {
            if !is_shim(layout, frame) {
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
