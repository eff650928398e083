//! The interpreter as the hot path sees it: where its structs are, and the calling thread's state.
//!
//! Set once, before the first session, with the GIL held; read by every event.

use std::mem::transmute;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::cpython::{self, Layout, Symbols, Unsupported};

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
