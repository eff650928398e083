//! Hides Python functions of Heaptide from the program's trace and profile functions (`sys.settrace`, `sys.setprofile`).
//!
//! Each thread state has a counter of active pauses. While it is not 0, CPython calls neither sort of function. From
//! 3.11 on, functions of the C API change the counter. Python 3.10 has no such functions, so there Heaptide changes the
//! counter in the thread state.

use std::mem::transmute;
use std::sync::OnceLock;

use super::interpreter;
use super::layout::Evaluations;
use super::symbols::{Opaque, address};

type ChangeCounter = unsafe extern "C" fn(Opaque);

struct Functions {
    enter: ChangeCounter,
    leave: ChangeCounter,
}

/// While this exists, the interpreter calls no trace or profile function on the calling thread.
pub struct TracingPause {
    state: Opaque,
    /// `None` on Python 3.10.
    leave: Option<ChangeCounter>,
}

impl TracingPause {
    /// Returns `None` if tracing cannot be paused, because the interpreter is unknown.
    ///
    /// # Safety
    /// The calling thread holds the GIL now and when the pause is dropped, and drops it itself.
    pub unsafe fn begin() -> Option<TracingPause> {
        let current: unsafe extern "C" fn() -> Opaque = {
            let address = address(c"PyThreadState_Get").ok()?;
            // SAFETY: the function of this name takes nothing and returns a thread state in all versions.
            unsafe { transmute::<Opaque, _>(address) }
        };
        // SAFETY: the caller holds the GIL, so its thread has a state.
        let state = unsafe { current() };
        match functions() {
            // SAFETY: the state is the calling thread's own.
            Some(functions) => unsafe { (functions.enter)(state) },
            // SAFETY: as above.
            None => unsafe { add_to_counter(state, 1)? },
        }
        let leave = functions().map(|functions| functions.leave);
        Some(TracingPause { state, leave })
    }
}

impl Drop for TracingPause {
    fn drop(&mut self) {
        match self.leave {
            // SAFETY: `begin` called the opposite function for this state, which is still the calling thread's.
            Some(leave) => unsafe { leave(self.state) },
            // SAFETY: `begin` raised the counter of this state.
            None => unsafe {
                add_to_counter(self.state, -1);
            },
        }
    }
}

fn functions() -> Option<&'static Functions> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    let find = || {
        let enter = address(c"PyThreadState_EnterTracing").ok()?;
        let leave = address(c"PyThreadState_LeaveTracing").ok()?;
        // SAFETY: both functions take a thread state and return nothing in all versions that have them.
        unsafe {
            Some(Functions {
                enter: transmute::<Opaque, ChangeCounter>(enter),
                leave: transmute::<Opaque, ChangeCounter>(leave),
            })
        }
    };
    FUNCTIONS.get_or_init(find).as_ref()
}

/// Changes the counter of Python 3.10. Returns `None` for another version, or if the layout has not been checked.
///
/// # Safety
/// `state` is the state of the calling thread, which holds the GIL.
unsafe fn add_to_counter(state: Opaque, change: i32) -> Option<()> {
    let layout = interpreter::layout().filter(|layout| layout.version == (3, 10))?;
    let Evaluations::CFrames { cframe, .. } = layout.evaluations else {
        return None;
    };
    // `int tracing` is the field before `CFrame *cframe`.
    let counter = (state as usize + cframe - size_of::<i32>()) as *mut i32;
    // SAFETY: the layout of 3.10 was checked, and no other thread writes to this thread's state.
    unsafe { counter.write(counter.read() + change) };
    Some(())
}
