//! The interpreter of this process as hooks use it: its layout, and the calling thread's state and frames.
//!
//! The layout is set once, before the first session; every event reads it.

use std::ffi::CStr;
use std::mem::transmute;
use std::ops::ControlFlow;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::cpython::frames::Visit;
use crate::cpython::{self, CurrentFrame, Layout, Symbols, Unsupported, thread_frames};

/// Null until the layout is known, then a leaked box.
static LAYOUT: AtomicPtr<Layout> = AtomicPtr::new(null_mut());
/// The address of a function that takes nothing and returns an address.
static GET_THREAD_STATE: AtomicPtr<()> = AtomicPtr::new(no_thread_state as *mut ());
/// The address of the function that returns the attached thread state. 0 before Python 3.12: there the function returns
/// the state of the thread that holds the GIL, which may be another thread.
static GET_ATTACHED: AtomicUsize = AtomicUsize::new(0);

/// Returns the interpreter's layout; `None` if it is unknown. Then no Python stacks are recorded.
#[inline(always)]
pub fn layout() -> Option<&'static Layout> {
    // SAFETY: null, or a box that `publish` leaked.
    unsafe { LAYOUT.load(Ordering::Acquire).as_ref() }
}

/// The function of an interpreter that is not known yet.
extern "C" fn no_thread_state() -> usize {
    0
}

/// Returns the calling thread's `PyThreadState`, whether or not it holds the GIL; 0 if it has none or the layout is
/// unknown.
#[inline(always)]
pub fn thread_state() -> usize {
    let function = GET_THREAD_STATE.load(Ordering::Relaxed);
    // SAFETY: the address of `no_thread_state`, or of PyGILState_GetThisThreadState, which `prepare` has stored. That
    // function reads a thread-specific value, has no preconditions, and returns null once the runtime has ended.
    let function: extern "C" fn() -> usize = unsafe { transmute(function) };
    function()
}

/// Returns the same as [`thread_state`], in fewer instructions while the thread holds the GIL.
#[inline(always)]
pub fn attached_thread_state() -> usize {
    let function = GET_ATTACHED.load(Ordering::Relaxed);
    if function == 0 {
        return thread_state();
    }
    // SAFETY: `prepare` stored the address of PyThreadState_GetUnchecked (in 3.12: _PyThreadState_UncheckedGet), which
    // has no preconditions. It reads a thread-local variable: the state that is attached to the calling thread, or
    // null.
    let function: extern "C" fn() -> usize = unsafe { transmute(function) };
    match function() {
        0 => thread_state(),
        state => state,
    }
}

/// # Safety
/// A live struct of the interpreter lies at `address` and has a word at `offset`.
#[inline(always)]
pub(crate) unsafe fn word(address: usize, offset: usize) -> usize {
    // SAFETY: the caller promises a readable, aligned word there.
    unsafe { (address.wrapping_add(offset) as *const usize).read() }
}

/// Whether a frame is a shim between C and Python, which has no code of the program.
///
/// # Safety
/// `frame` is a live frame of the interpreter that `layout` describes.
#[inline(always)]
pub(crate) unsafe fn is_shim(layout: &Layout, frame: usize) -> bool {
    layout.frame_owner.is_some_and(|owner| {
        // SAFETY: the owner is one byte of the frame, which the caller promises to be live.
        let owner = unsafe { (frame.wrapping_add(owner) as *const u8).read() };
        owner >= layout.first_shim_owner
    })
}

/// The field that points to the innermost frame of a thread; `None` if the thread runs no Python code.
///
/// # Safety
/// `thread_state` is a live thread state of the interpreter that `layout` describes.
#[inline(always)]
unsafe fn current_frame(layout: &Layout, thread_state: usize) -> Option<*mut usize> {
    match layout.current_frame {
        CurrentFrame::Direct(offset) => Some(thread_state.wrapping_add(offset) as *mut usize),
        CurrentFrame::ViaCFrame {
            cframe,
            current_frame,
        } => {
            // SAFETY: the caller promises a live thread state, and the layout gives the offset of this field.
            let record = unsafe { word(thread_state, cframe) };
            (record != 0).then(|| record.wrapping_add(current_frame) as *mut usize)
        }
    }
}

/// The innermost frame of a thread; 0 if it has none.
///
/// # Safety
/// `thread_state` is 0 or a live thread state of the interpreter that `layout` describes.
#[inline(always)]
pub(crate) unsafe fn innermost(layout: &Layout, thread_state: usize) -> usize {
    if thread_state == 0 {
        return 0;
    }
    // SAFETY: the caller promises a live thread state. The field belongs to it, or to the live C frame record that it
    // points to.
    unsafe { current_frame(layout, thread_state).map_or(0, |field| field.read()) }
}

/// Detects the interpreter's layout and verifies it with the interpreter's own API.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn prepare(symbols: &Symbols) -> Result<(), Unsupported> {
    if layout().is_some() {
        return Ok(());
    }
    let layout = cpython::detect()?;
    // The check may release the GIL, so another thread may be here at the same time, with the same result.
    // SAFETY: the caller holds the GIL.
    unsafe { cpython::self_check(&layout)? };
    GET_THREAD_STATE.store(symbols.this_thread_state as *mut (), Ordering::Relaxed);
    if layout.version >= (3, 12) {
        GET_ATTACHED.store(symbols.attached_thread_state, Ordering::Relaxed);
    }
    publish(&LAYOUT, layout);
    Ok(())
}

/// Stores a layout in `slot`, unless another thread has stored one there.
fn publish(slot: &AtomicPtr<Layout>, layout: Layout) {
    let layout = Box::into_raw(Box::new(layout));
    if slot
        .compare_exchange(null_mut(), layout, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        // SAFETY: leaked above, and no other thread knows the address.
        drop(unsafe { Box::from_raw(layout) });
    }
}

/// Returns the calling thread's innermost Python frame; 0 if it has none or the layout is unknown.
pub(crate) fn innermost_frame() -> usize {
    let mut innermost = 0;
    visit_frames(&mut |frame, _, _| {
        innermost = frame;
        ControlFlow::Break(())
    });
    innermost
}

/// Returns whether the calling thread is in a Python function that this frame of the thread called, directly or not.
pub(crate) fn is_below(caller: usize) -> bool {
    let mut n_frames = 0;
    let mut is_below = false;
    visit_frames(&mut |frame, _, _| {
        is_below = frame == caller && n_frames > 0;
        n_frames += 1;
        match frame == caller {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    is_below
}

/// Visits the calling thread's frames, innermost first; none if the layout is unknown.
fn visit_frames(visit: &mut Visit<'_>) {
    if let Some(layout) = layout() {
        let state = thread_state();
        if state != 0 {
            // SAFETY: the state is the calling thread's own, and the layout was checked. A broken chain has no more frames.
            let _ = unsafe { thread_frames(layout, state, visit) };
        }
    }
}

/// Whether the interpreter counts the threads of a forking process after its `after_in_parent` hooks have run, as it does
/// from 3.13 on. 3.12 counts before them, and older versions do not count.
pub(crate) fn counts_threads_after_fork_hooks(symbols: &Symbols) -> bool {
    // SAFETY: the function takes nothing and returns a string that lives as long as the interpreter.
    let text = unsafe { CStr::from_ptr((symbols.get_version)()) };
    let mut numbers = text.to_bytes().split(|byte| *byte == b'.').map(|digits| {
        let digits = std::str::from_utf8(digits).ok()?;
        digits.parse::<u8>().ok()
    });
    let version = (numbers.next().flatten(), numbers.next().flatten());
    version >= (Some(3), Some(13))
}

/// Hides the calling thread's frames until it is dropped. A program that is started meanwhile finds the same empty stack
/// as in a plain interpreter.
pub struct NoCallers {
    /// The thread's pointer to its innermost frame, and its value.
    current: *mut usize,
    frame: usize,
    /// The interpreter's counter of the depth of calls, and its value.
    recursion: Option<(*mut i32, i32)>,
}

impl NoCallers {
    /// # Safety
    /// The calling thread holds the GIL when the guard is made and when it is dropped. In between it only calls Python
    /// functions that return, so that the interpreter has restored its own state when the frame is put back.
    pub unsafe fn new() -> Option<NoCallers> {
        let layout = layout()?;
        let state = thread_state();
        if state == 0 {
            return None;
        }
        // SAFETY: `state` is the calling thread's own, and the layout was checked.
        let current = unsafe { current_frame(layout, state) }?;
        // SAFETY: the pointer belongs to the calling thread, and the interpreter treats null as "no caller": that is its
        // value when a program starts.
        let frame = unsafe { current.replace(0) };
        // SAFETY: `state` is the calling thread's own.
        let recursion = unsafe { recursion_counter(layout, state) }.map(|(counter, at_bottom)| {
            // SAFETY: the counter belongs to the calling thread; the new value is the one at the start of a program.
            (counter, unsafe { counter.replace(at_bottom) })
        });
        Some(NoCallers {
            current,
            frame,
            recursion,
        })
    }
}

/// Returns the thread state's counter of the depth of calls, and its value at the start of a program. It is recognised by
/// its value: from 3.11 on the remaining depth, followed by the limit that `Py_GetRecursionLimit` returns; before that
/// the depth.
///
/// # Safety
/// `state` is a live thread state.
unsafe fn recursion_counter(layout: &Layout, state: usize) -> Option<(*mut i32, i32)> {
    // SAFETY: the name is a C string, and `dlsym` has no other precondition.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"Py_GetRecursionLimit".as_ptr()) };
    if function.is_null() {
        return None;
    }
    // SAFETY: the function of this name takes nothing and returns an int in all versions.
    let limit = unsafe { transmute::<*mut libc::c_void, extern "C" fn() -> i32>(function) }();
    // SAFETY: a thread state is much longer than these first words.
    let word = |offset: usize| unsafe { ((state + offset) as *const i32).read() };
    if layout.version < (3, 11) {
        const DEPTH: usize = 32;
        return (1..100)
            .contains(&word(DEPTH))
            .then_some(((state + DEPTH) as *mut i32, -1));
    }
    let is_counter = |&offset: &usize| {
        word(offset + 4) == limit && (limit - 100..=limit).contains(&word(offset))
    };
    let mut offsets = (24..72).step_by(4).filter(is_counter);
    let offset = offsets.next().filter(|_| offsets.next().is_none())?;
    let of_exec = i32::from(layout.version < (3, 12));
    Some(((state + offset) as *mut i32, limit + of_exec))
}

impl Drop for NoCallers {
    fn drop(&mut self) {
        if let Some((counter, value)) = self.recursion {
            // SAFETY: the counter belongs to the calling thread, and every call made since has returned.
            unsafe { counter.write(value) };
        }
        // SAFETY: the pointer lives as long as the thread state, or as the C frame record of a caller of this function.
        unsafe { self.current.write(self.frame) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpython::tables;

    #[test]
    fn first_layout_stays_if_two_threads_detect_one() {
        let slot = AtomicPtr::new(null_mut());
        publish(&slot, tables::v3_12::LAYOUT);
        let first = slot.load(Ordering::Acquire);
        publish(&slot, tables::v3_11::LAYOUT);
        assert_eq!(slot.load(Ordering::Acquire), first);
        // SAFETY: `publish` leaked this box, and nothing else refers to it.
        let layout = unsafe { Box::from_raw(first) };
        assert_eq!(layout.version, (3, 12));
    }

    #[test]
    fn thread_of_a_process_without_python_has_no_thread_state() {
        assert!(layout().is_none());
        assert_eq!((thread_state(), attached_thread_state()), (0, 0));
    }
}
