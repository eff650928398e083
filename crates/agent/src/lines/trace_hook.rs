//! Line events before `sys.monitoring`: a trace function in C, for 3.10 and 3.11.
//!
//! A thread can have one trace function, and a debugger or coverage may have set one. Heaptide keeps that function, calls
//! it for every event exactly as the interpreter would, and restores it at the end. The interpreter offers no way to get
//! that function, but the thread state contains it and its object. Heaptide finds both by comparing the state before and
//! after it sets its own function.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::mem::transmute;

use super::{Event, event, is_entered};
use crate::cpython::symbols::Opaque;

type TraceFunction = unsafe extern "C" fn(Opaque, Opaque, c_int, Opaque) -> c_int;

const CALL: c_int = 0;
const LINE: c_int = 2;
const RETURN: c_int = 3;

/// Words of a thread state that are compared. Both words are among the first twenty in 3.10 and 3.11.
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

/// The trace function that this thread had before.
struct Before {
    function: Option<TraceFunction>,
    /// An owned reference, or null.
    object: Opaque,
    /// Positions of the two words in the thread state.
    function_at: usize,
    object_at: usize,
    /// The object that was set with Heaptide's function.
    own: Opaque,
    functions: Functions,
    n_set: u32,
}

// A variable without a destructor exists until its thread has ended, so storing a function that was set cannot fail.
const _: () = assert!(!std::mem::needs_drop::<RefCell<Option<Before>>>());

thread_local! {
    static BEFORE: RefCell<Option<Before>> = const { RefCell::new(None) };
    static IS_CHANGING: Cell<bool> = const { Cell::new(false) };
}

fn functions() -> Option<Functions> {
    // SAFETY: the names are C strings, and `dlsym` has no other precondition.
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

/// Returns the first words of a thread state.
///
/// # Safety
/// `state` is the calling thread's own state.
unsafe fn words(state: Opaque) -> [usize; N_WORDS] {
    // SAFETY: a thread state of 3.10 or 3.11 is longer than this.
    unsafe { state.cast::<[usize; N_WORDS]>().read() }
}

/// Starts to receive the lines of this thread. `object` is the value of `sys.gettrace()`, which does not change; if it is
/// null, the value becomes `own`. Returns `false`, and changes nothing, if the thread state is not as expected.
///
/// # Safety
/// The calling thread holds the GIL, the interpreter is 3.10 or 3.11, and both are objects or null.
pub unsafe fn set(own: Opaque, object: Opaque) -> bool {
    let is_set = BEFORE.try_with(|slot| {
        let mut slot = slot.borrow_mut();
        slot.as_mut().map(|before| before.n_set += 1).is_some()
    });
    match is_set {
        Ok(true) => return true,
        Ok(false) => {}
        Err(_) => return false,
    }
    let Some(_changing) = Changing::begin() else {
        return false;
    };
    // SAFETY: the caller's promise is that of `replace`.
    let Some(before) = (unsafe { replace(own, object) }) else {
        return false;
    };
    BEFORE
        .try_with(|slot| *slot.borrow_mut() = Some(before))
        .is_ok()
}

/// A thread's trace function is being set. An audit hook of the program may run meanwhile and call a monitored function,
/// but the interpreter refuses to set another one then.
struct Changing;

impl Changing {
    fn begin() -> Option<Changing> {
        let is_changing = IS_CHANGING.try_with(|it| it.replace(true)).ok()?;
        (!is_changing).then_some(Changing)
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        let _ = IS_CHANGING.try_with(|it| it.set(false));
    }
}

/// Sets Heaptide's function. Returns `None`, and leaves the previous one, if the thread state is not as expected or an audit
/// hook refuses.
///
/// # Safety
/// As for `set`.
unsafe fn replace(own: Opaque, object: Opaque) -> Option<Before> {
    let functions = functions()?;
    // SAFETY: the GIL is held, so the thread has a state. The new reference keeps the previous object alive: the
    // interpreter releases its own when another function is set.
    unsafe {
        let state = (functions.thread_state)();
        let own = if object.is_null() { own } else { object };
        if !object.is_null() {
            (functions.inc_ref)(object);
        }
        let old = words(state);
        (functions.set_trace)(Some(trace), own);
        let new = words(state);
        let function_at = (0..N_WORDS).find(|&at| new[at] == trace as *const () as usize);
        let previous = |at: usize| match old[at] {
            0 => None,
            function => Some(transmute::<usize, TraceFunction>(function)),
        };
        // Profile function, trace function, and their objects in the same order.
        let positions = function_at.map(|at| (at, at + 2));
        let positions =
            positions.filter(|&(_, object_at)| new.get(object_at) == Some(&(own as usize)));
        let Some((function_at, object_at)) = positions else {
            if let Some(at) = function_at {
                (functions.set_trace)(previous(at), object);
            }
            if !object.is_null() {
                (functions.dec_ref)(object);
            }
            return None;
        };
        Some(Before {
            function: previous(function_at).filter(|_| old[object_at] == object as usize),
            object,
            function_at,
            object_at,
            own,
            functions,
            n_set: 1,
        })
    }
}

/// Undoes `set`. Restores the previous function, unless the program has set another one meanwhile.
///
/// # Safety
/// As for `set`.
pub unsafe fn unset() {
    let finished = BEFORE.try_with(|slot| {
        let mut slot = slot.borrow_mut();
        let before = slot.as_mut()?;
        before.n_set -= 1;
        if before.n_set > 0 {
            return None;
        }
        slot.take()
    });
    let Ok(Some(before)) = finished else {
        return;
    };
    let functions = before.functions;
    let _changing = Changing::begin();
    // SAFETY: the GIL is held; the positions were found in this thread's state; `set` took the reference that is released.
    unsafe {
        let now = words((functions.thread_state)());
        let is_own = now.get(before.function_at) == Some(&(trace as *const () as usize))
            && now.get(before.object_at) == Some(&(before.own as usize));
        if is_own {
            (functions.set_trace)(before.function, before.object);
        }
        if !before.object.is_null() {
            (functions.dec_ref)(before.object);
        }
    }
}

unsafe extern "C" fn trace(_own: Opaque, frame: Opaque, what: c_int, argument: Opaque) -> c_int {
    let known = BEFORE.try_with(|slot| {
        let slot = slot.try_borrow().ok()?;
        let before = slot.as_ref()?;
        Some((before.function, before.object, before.functions))
    });
    let Ok(Some((function, object, functions))) = known else {
        return 0;
    };
    if matches!(what, CALL | LINE | RETURN) && is_entered() {
        // SAFETY: the interpreter calls with the GIL held and a live frame. The reference to the code is released at
        // once: the frame keeps another.
        unsafe {
            let code = (functions.frame_code)(frame);
            (functions.dec_ref)(code);
            let line = || u32::try_from((functions.frame_line)(frame)).unwrap_or(0);
            let line_event = match what {
                CALL => Event::Start,
                LINE => Event::Line(line()),
                // Also for a return: the interpreter reports both alike, and a frame that has ended does not continue.
                _ => Event::Yield,
            };
            event(code as usize, Some(frame as usize), line_event);
        }
    }
    match function {
        // SAFETY: the call that the interpreter would have made without Heaptide, with the same arguments.
        Some(function) => unsafe { function(object, frame, what, argument) },
        None => 0,
    }
}
