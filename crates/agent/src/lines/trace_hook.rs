//! Line events before `sys.monitoring`: a trace function in C, for 3.10 and 3.11.
//!
//! The interpreter has room for one trace function per thread, and a debugger or coverage may be there already. So what is
//! there is kept and called for every event, exactly as the interpreter would have called it, and is put back at the
//! end. The interpreter has no function that tells what is there; but a thread state holds the function next to its object,
//! so both are found by looking at what changes when ours are set.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::mem::transmute;

use super::{Event, event, is_entered};
use crate::cpython::symbols::Opaque;

type TraceFunction = unsafe extern "C" fn(Opaque, Opaque, c_int, Opaque) -> c_int;

const CALL: c_int = 0;
const LINE: c_int = 2;
const RETURN: c_int = 3;

/// Words of a thread state that are looked at: both words lie among the first twenty in 3.10 and 3.11.
const N_WORDS: usize = 32;

#[derive(Clone, Copy)]
struct Functions {
    set_trace: unsafe extern "C" fn(Option<TraceFunction>, Opaque),
    thread_state: unsafe extern "C" fn() -> Opaque,
    frame_code: unsafe extern "C" fn(Opaque) -> Opaque,
    frame_line: unsafe extern "C" fn(Opaque) -> c_int,
    inc_ref: unsafe extern "C" fn(Opaque),
    dec_ref: unsafe extern "C" fn(Opaque),
}

/// What this thread had before us.
struct Before {
    function: Option<TraceFunction>,
    /// A reference of ours, or null.
    object: Opaque,
    /// Where in the thread state the two words are.
    function_at: usize,
    object_at: usize,
    ours: Opaque,
    functions: Functions,
    n_set: u32,
}

thread_local! {
    static BEFORE: RefCell<Option<Before>> = const { RefCell::new(None) };
}

fn functions() -> Option<Functions> {
    // SAFETY: looking a symbol up has no preconditions.
    let find = |name: &std::ffi::CStr| unsafe {
        let address = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        (!address.is_null()).then_some(address)
    };
    // SAFETY: each is a function of CPython's documented C API, with the type that 3.10 and 3.11 document.
    unsafe {
        Some(Functions {
            set_trace: transmute::<*mut c_void, unsafe extern "C" fn(Option<TraceFunction>, Opaque)>(
                find(c"PyEval_SetTrace")?,
            ),
            thread_state: transmute::<*mut c_void, unsafe extern "C" fn() -> Opaque>(find(
                c"PyThreadState_Get",
            )?),
            frame_code: transmute::<*mut c_void, unsafe extern "C" fn(Opaque) -> Opaque>(find(
                c"PyFrame_GetCode",
            )?),
            frame_line: transmute::<*mut c_void, unsafe extern "C" fn(Opaque) -> c_int>(find(
                c"PyFrame_GetLineNumber",
            )?),
            inc_ref: transmute::<*mut c_void, unsafe extern "C" fn(Opaque)>(find(c"Py_IncRef")?),
            dec_ref: transmute::<*mut c_void, unsafe extern "C" fn(Opaque)>(find(c"Py_DecRef")?),
        })
    }
}

/// The first words of a thread state.
///
/// # Safety
/// `state` is the calling thread's own state.
unsafe fn words(state: Opaque) -> [usize; N_WORDS] {
    // SAFETY: a thread state of 3.10 or 3.11 is longer than this.
    unsafe { state.cast::<[usize; N_WORDS]>().read() }
}

/// Hears the lines of this thread from now on. `object` is what `sys.gettrace()` says now, or null, and it will go on
/// saying so; if it is null it says `ours`. False if the interpreter is not as expected, and then nothing has changed.
///
/// # Safety
/// The calling thread holds the GIL, the interpreter is 3.10 or 3.11, and both are objects or null.
pub unsafe fn set(ours: Opaque, object: Opaque) -> bool {
    BEFORE
        .try_with(|place| {
            let mut place = place.borrow_mut();
            if let Some(before) = place.as_mut() {
                before.n_set += 1;
                return true;
            }
            let Some(functions) = functions() else {
                return false;
            };
            // SAFETY: the GIL is held, so the thread has a state. The reference keeps what was there alive, of which
            // the interpreter lets go when ours takes its place.
            unsafe {
                let state = (functions.thread_state)();
                let ours = if object.is_null() { ours } else { object };
                if !object.is_null() {
                    (functions.inc_ref)(object);
                }
                let old = words(state);
                (functions.set_trace)(Some(trace), ours);
                let new = words(state);
                let function_at = (0..N_WORDS).find(|&at| new[at] == trace as *const () as usize);
                // Profile function, trace function, and their objects in the same order.
                let places = function_at.map(|at| (at, at + 2));
                let places =
                    places.filter(|&(_, object_at)| new.get(object_at) == Some(&(ours as usize)));
                let Some((function_at, object_at)) = places else {
                    (functions.set_trace)(None, std::ptr::null_mut());
                    return false;
                };
                *place = Some(Before {
                    function: (old[function_at] != 0 && old[object_at] == object as usize)
                        .then(|| transmute::<usize, TraceFunction>(old[function_at])),
                    object,
                    function_at,
                    object_at,
                    ours,
                    functions,
                    n_set: 1,
                });
            }
            true
        })
        .unwrap_or(false)
}

/// The counterpart of `set`. What was there before comes back, unless the program has set something else meanwhile.
///
/// # Safety
/// As for `set`.
pub unsafe fn unset() {
    let finished = BEFORE.try_with(|place| {
        let mut place = place.borrow_mut();
        let before = place.as_mut()?;
        before.n_set -= 1;
        if before.n_set > 0 {
            return None;
        }
        place.take()
    });
    let Ok(Some(before)) = finished else {
        return;
    };
    let functions = before.functions;
    // SAFETY: the GIL is held; the words were found in this thread's state; the reference is ours to give back.
    unsafe {
        let now = words((functions.thread_state)());
        let is_ours = now.get(before.function_at) == Some(&(trace as *const () as usize))
            && now.get(before.object_at) == Some(&(before.ours as usize));
        if is_ours {
            (functions.set_trace)(before.function, before.object);
        }
        if !before.object.is_null() {
            (functions.dec_ref)(before.object);
        }
    }
}

unsafe extern "C" fn trace(_ours: Opaque, frame: Opaque, what: c_int, argument: Opaque) -> c_int {
    let known = BEFORE.try_with(|place| {
        let place = place.try_borrow().ok()?;
        let before = place.as_ref()?;
        Some((before.function, before.object, before.functions))
    });
    let Ok(Some((function, object, functions))) = known else {
        return 0;
    };
    if matches!(what, CALL | LINE | RETURN) && is_entered() {
        // SAFETY: the interpreter calls with the GIL held and a live frame; the code's reference is given back at once,
        // since the frame keeps it.
        unsafe {
            let code = (functions.frame_code)(frame);
            (functions.dec_ref)(code);
            let line = || u32::try_from((functions.frame_line)(frame)).unwrap_or(0);
            let event_is = match what {
                CALL => Event::Start,
                LINE => Event::Line(line()),
                // Whether it is a pause is decided by what the code is: a frame that has ended does not come back.
                _ => Event::Yield,
            };
            event(code as usize, Some(frame as usize), event_is);
        }
    }
    match function {
        // SAFETY: what the interpreter would have called if we were not here, with what it would have been given.
        Some(function) => unsafe { function(object, frame, what, argument) },
        None => 0,
    }
}
