//! The interpreter as the hot path sees it: where its structs are, and the calling thread's state.
//!
//! Set once, before the first session, with the GIL held; read by every event.

use std::ffi::CStr;
use std::mem::transmute;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::cpython::{self, CurrentFrame, Layout, Symbols, Unsupported};

struct Place(std::cell::UnsafeCell<Option<Layout>>);

// SAFETY: written once by `prepare` before `READY` is set, only read afterwards.
unsafe impl Sync for Place {}

static LAYOUT: Place = Place(std::cell::UnsafeCell::new(None));
static READY: AtomicBool = AtomicBool::new(false);
static GET_THREAD_STATE: AtomicUsize = AtomicUsize::new(0);

/// The interpreter's layout; `None` if it is unknown, and then no Python stacks are recorded.
#[inline(always)]
pub fn layout() -> Option<&'static Layout> {
    if READY.load(Ordering::Acquire) {
        // SAFETY: no writer exists once READY is set.
        unsafe { (*LAYOUT.0.get()).as_ref() }
    } else {
        None
    }
}

/// The calling thread's own `PyThreadState`, whether or not it holds the GIL; 0 if it has none.
#[inline(always)]
pub fn thread_state() -> usize {
    let function = GET_THREAD_STATE.load(Ordering::Relaxed);
    // SAFETY: `prepare` put the address of PyGILState_GetThisThreadState there before `layout` gave anything. The
    // function reads a thread-specific value and has no preconditions; it answers null once the runtime is gone.
    let function: extern "C" fn() -> usize = unsafe { transmute(function) };
    function()
}

/// Learns the interpreter's layout and proves it against the interpreter's own answers.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn prepare(symbols: &Symbols) -> Result<(), Unsupported> {
    if READY.load(Ordering::Acquire) {
        return Ok(());
    }
    let layout = cpython::detect()?;
    // SAFETY: the caller holds the GIL.
    unsafe { cpython::self_check(&layout)? };
    GET_THREAD_STATE.store(symbols.this_thread_state as usize, Ordering::Relaxed);
    // SAFETY: READY is not set, so nobody reads, and callers of `prepare` hold the GIL, so nobody else writes.
    unsafe { *LAYOUT.0.get() = Some(layout) };
    READY.store(true, Ordering::Release);
    Ok(())
}

/// Whether the interpreter counts the threads of a forking process after its `after_in_parent` hooks have run, as it does
/// from 3.13 on. 3.12 counts before them, and older versions do not count.
pub fn counts_threads_after_fork_hooks(symbols: &Symbols) -> bool {
    // SAFETY: the function takes nothing and returns a string that lives as long as the interpreter.
    let text = unsafe { CStr::from_ptr((symbols.get_version)()) };
    let mut numbers = text.to_bytes().split(|byte| *byte == b'.').map(|digits| {
        let digits = std::str::from_utf8(digits).ok()?;
        digits.parse::<u8>().ok()
    });
    let version = (numbers.next().flatten(), numbers.next().flatten());
    version >= (Some(3), Some(13))
}

/// Makes the calling thread look as if nothing had called what it calls next: until the guard goes, its innermost frame
/// is none. A program that is started under it finds the bottom of the stack where a plain interpreter has it.
pub struct NoCallers {
    place: *mut usize,
    frame: usize,
    /// Where the interpreter counts how deep calls may still go, and what it said.
    recursion: Option<(*mut i32, i32)>,
}

impl NoCallers {
    /// # Safety
    /// The calling thread holds the GIL and keeps it while the guard is made and dropped; between the two it only calls
    /// Python and comes back, so that the interpreter has restored its own part when the frame is put back.
    pub unsafe fn new() -> Option<NoCallers> {
        let layout = layout()?;
        let state = thread_state();
        if state == 0 {
            return None;
        }
        let place = match layout.current_frame {
            CurrentFrame::Direct(offset) => state.wrapping_add(offset),
            CurrentFrame::ViaCFrame {
                cframe,
                current_frame,
            } => {
                // SAFETY: a live thread state has a C frame record at this offset; the layout was checked.
                let record = unsafe { (state.wrapping_add(cframe) as *const usize).read() };
                record.wrapping_add(current_frame)
            }
        } as *mut usize;
        // SAFETY: the place is the calling thread's own, and the interpreter treats null as "no caller", which is what
        // it has when a program starts.
        let frame = unsafe { place.replace(0) };
        // SAFETY: `state` is the calling thread's own.
        let recursion = unsafe { recursion_counter(layout, state) }.map(|(counter, at_bottom)| {
            // SAFETY: the counter is the calling thread's own; what is written is what it is when a program starts.
            (counter, unsafe { counter.replace(at_bottom) })
        });
        Some(NoCallers {
            place,
            frame,
            recursion,
        })
    }
}

/// Where the thread state counts the depth of calls, and the value that a program finds when it starts. It is recognised
/// by what stands there: from 3.11 on what is left, followed by the limit that `Py_GetRecursionLimit` tells; before that
/// the depth itself.
///
/// # Safety
/// `state` is a live thread state.
unsafe fn recursion_counter(layout: &Layout, state: usize) -> Option<(*mut i32, i32)> {
    // SAFETY: looking a symbol up has no preconditions.
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
    let mut places = (24..72).step_by(4).filter(is_counter);
    let offset = places.next().filter(|_| places.next().is_none())?;
    let of_exec = i32::from(layout.version < (3, 12));
    Some(((state + offset) as *mut i32, limit + of_exec))
}

impl Drop for NoCallers {
    fn drop(&mut self) {
        if let Some((counter, value)) = self.recursion {
            // SAFETY: as when it was replaced; every call made since has returned.
            unsafe { counter.write(value) };
        }
        // SAFETY: the place lives as long as the thread state, or as the C frame record of a caller of ours.
        unsafe { self.place.write(self.frame) };
    }
}
