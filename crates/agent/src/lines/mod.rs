//! Memory line by line, in the program: the lines of a monitored function on which the resident size changed.
//!
//! A [`MonitoredCall`] is one call of one function and its table. While a thread has entered it, the interpreter reports when the
//! function's code begins a line, is called, or returns. From 3.12 on it does so through `sys.monitoring` (callbacks in the
//! crate `extension` call [`event`]), before that through [`trace_hook`]. Other code of the program is not affected.
//! [`table`] computes the sums, and [`reading`] decides when to read the size.
//!
//! Runs on: the program's threads, with the GIL. Allocates: rarely, and never through the hooked functions.

pub(crate) mod reading;
pub(crate) mod table;
pub mod trace_hook;

use std::cell::{Cell, RefCell, UnsafeCell};
use std::sync::Arc;

pub use reading::{Backend, Reader};
pub use table::{Event, Row, Table};

use crate::cpython::{Symbols, interpreter};

/// One call of a monitored function.
pub struct MonitoredCall {
    /// Code objects whose lines belong to the table: of the function, and of functions nested in it.
    codes: Vec<Code>,
    table: UnsafeCell<Table>,
}

// SAFETY: the table is used only with the GIL held, so by one thread at a time. No use of it releases the GIL.
unsafe impl Send for MonitoredCall {}
// SAFETY: as for `Send`: the GIL orders all uses of the table.
unsafe impl Sync for MonitoredCall {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    pub address: usize,
    pub first_line: u32,
    /// Whether it is a generator or coroutine, whose frame pauses and continues.
    pub suspends: bool,
}

thread_local! {
    /// The calls that this thread has entered, innermost last.
    static ENTERED: RefCell<Vec<Arc<MonitoredCall>>> = const { RefCell::new(Vec::new()) };
    /// The code of the last event, which the next event most likely belongs to.
    static LAST: LastCode = const { LastCode::new() };
}

struct LastCode {
    /// Set while an event is processed, so that events which it causes are ignored.
    is_busy: Cell<bool>,
    /// The address of the code, or 0; its entry, and the entered call that has it.
    code: Cell<usize>,
    known: Cell<*const Code>,
    call: Cell<*const MonitoredCall>,
    /// The thread's state. It stays the same while the thread runs in an entered call.
    state: Cell<usize>,
}

impl LastCode {
    const fn new() -> LastCode {
        LastCode {
            is_busy: Cell::new(false),
            code: Cell::new(0),
            known: Cell::new(std::ptr::null()),
            call: Cell::new(std::ptr::null()),
            state: Cell::new(0),
        }
    }

    /// Clears the cache, since this thread has entered or left a call.
    fn forget(&self) {
        self.code.set(0);
        let state = interpreter::layout().map_or(0, |_| interpreter::thread_state());
        self.state.set(state);
    }

    /// Finds the innermost call that contains the code.
    #[cold]
    fn find(&self, code: usize) -> bool {
        let result = ENTERED.try_with(|entered| {
            let entered = entered.try_borrow().ok()?;
            entered.iter().rev().find_map(|call| {
                let known = call.codes.iter().find(|known| known.address == code)?;
                self.known.set(known);
                self.call.set(Arc::as_ptr(call));
                self.code.set(code);
                Some(())
            })
        });
        matches!(result, Ok(Some(())))
    }
}

impl MonitoredCall {
    /// With `from_nothing`, the first line shows all memory that existed before the call.
    pub fn new(
        codes: Vec<Code>,
        first_line: u32,
        reader: Reader,
        from_nothing: bool,
    ) -> Arc<MonitoredCall> {
        Arc::new(MonitoredCall {
            codes,
            table: UnsafeCell::new(Table::new(first_line, reader, from_nothing)),
        })
    }

    /// Starts to count events of this thread.
    ///
    /// # Safety
    /// The calling thread holds the GIL.
    pub unsafe fn enter(self: &Arc<MonitoredCall>) {
        // SAFETY: the GIL is held, and no event is being processed: Python calls this function.
        unsafe { &mut *self.table.get() }.enter();
        let _ = ENTERED.try_with(|entered| entered.borrow_mut().push(self.clone()));
        let _ = LAST.try_with(LastCode::forget);
    }

    /// Undoes `enter`, on the same thread.
    ///
    /// # Safety
    /// The calling thread holds the GIL.
    pub unsafe fn leave(self: &Arc<MonitoredCall>) {
        // SAFETY: as in `enter`.
        unsafe { &mut *self.table.get() }.leave();
        let _ = LAST.try_with(LastCode::forget);
        let _ = ENTERED.try_with(|entered| {
            let mut entered = entered.borrow_mut();
            if let Some(at) = entered.iter().rposition(|call| Arc::ptr_eq(call, self)) {
                entered.remove(at);
            }
        });
    }

    /// Returns the current table.
    ///
    /// # Safety
    /// The calling thread holds the GIL.
    pub unsafe fn table(&self) -> &Table {
        // SAFETY: as in `enter`; nothing changes the table while the caller holds the GIL and runs no Python code.
        unsafe { &*self.table.get() }
    }
}

/// Records an event in a frame of a code object that may be monitored: in the innermost frame if none is given.
///
/// # Safety
/// The calling thread holds the GIL.
#[inline]
pub unsafe fn event(code: usize, frame: Option<usize>, what: Event) {
    let _ = LAST.try_with(|last| {
        if last.is_busy.replace(true) {
            return;
        }
        if last.code.get() == code || last.find(code) {
            let frame = frame.unwrap_or_else(|| innermost_frame(last.state.get()));
            // SAFETY: this thread has entered the call. The Python object that entered it keeps it alive until `leave`,
            // which clears the cache first. The GIL is held, and the flag prevents a nested event on this thread.
            unsafe { (*(*last.call.get()).table.get()).event(&*last.known.get(), frame, what) };
        }
        last.is_busy.set(false);
    });
}

/// Excludes bytes that Heaptide has just allocated on this thread from the increments of lines.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn set_aside(bytes: i64) {
    let _ = ENTERED.try_with(|entered| {
        for call in entered.borrow().iter() {
            // SAFETY: the GIL is held, and no event is being processed: Python calls this function.
            unsafe { &mut *call.table.get() }.set_aside(bytes);
        }
    });
}

/// Returns whether this thread has entered any call.
#[inline]
pub(crate) fn is_entered() -> bool {
    ENTERED
        .try_with(|entered| {
            entered
                .try_borrow()
                .is_ok_and(|entered| !entered.is_empty())
        })
        .unwrap_or(false)
}

/// Returns the address of the calling thread's innermost frame; 0 if the interpreter's layout is unknown.
#[inline]
fn innermost_frame(state: usize) -> usize {
    interpreter::layout().map_or(0, |layout| {
        // SAFETY: the state is 0 or the calling thread's own, and the layout was checked.
        unsafe { interpreter::innermost(layout, state) }
    })
}

/// Determines the interpreter's layout, by which frames are distinguished. If it is unknown, frames are not distinguished.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn prepare() {
    if let Ok(symbols) = Symbols::resolve() {
        // SAFETY: the caller holds the GIL.
        let _ = unsafe { interpreter::prepare(&symbols) };
    }
}
