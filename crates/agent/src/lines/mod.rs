//! Memory line by line, inside the program: which line of a watched function the resident size changed on.
//!
//! A [`Watch`] is one call of one function and the table that comes of it. While it is entered on a thread, the
//! interpreter tells us when the function's code begins a line, is called, or returns: from 3.12 on through
//! `sys.monitoring` (the callbacks in `native` end up in [`event`]), before that through [`trace_hook`]. Other code of
//! the program is not touched. [`table`] does the sums and [`reading`] decides when the size is worth asking for.
//!
//! Runs on: the program's threads, with the GIL. Allocates: rarely, and never through the hooked functions.

pub mod reading;
pub mod table;
pub mod trace_hook;

use std::cell::{Cell, RefCell, UnsafeCell};
use std::sync::Arc;

pub use reading::{Backend, Reader};
pub use table::{Event, Row, Table};

use crate::cpython::interpreter;
use crate::cpython::{CurrentFrame, Symbols};

/// One call of a watched function.
pub struct Watch {
    /// Code objects whose lines belong to the table, by address: the function's, and those of functions within it.
    codes: Vec<Code>,
    table: UnsafeCell<Table>,
}

// SAFETY: the table is touched only with the GIL held and under the thread's `is_busy` flag, so by one thread at a time.
unsafe impl Send for Watch {}
// SAFETY: as above.
unsafe impl Sync for Watch {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    pub address: usize,
    pub first_line: u32,
    /// Generators and coroutines: a frame of theirs leaves and comes back.
    pub suspends: bool,
}

thread_local! {
    /// What this thread is in, innermost last.
    static ENTERED: RefCell<Vec<Arc<Watch>>> = const { RefCell::new(Vec::new()) };
    /// What the next event most likely needs: nothing else is looked at then.
    static NEAR: Near = const { Near::new() };
}

struct Near {
    /// Set while an event is being looked at, so that nothing it leads to is taken for another one.
    is_busy: Cell<bool>,
    /// The code of the last event, or 0; with where it is in its watch, which this thread is in.
    code: Cell<usize>,
    known: Cell<*const Code>,
    watch: Cell<*const Watch>,
    /// The thread's state; a frame of it is below whatever this thread has entered, so it stays the same meanwhile.
    state: Cell<usize>,
}

impl Near {
    const fn new() -> Near {
        Near {
            is_busy: Cell::new(false),
            code: Cell::new(0),
            known: Cell::new(std::ptr::null()),
            watch: Cell::new(std::ptr::null()),
            state: Cell::new(0),
        }
    }

    /// What this thread is in has changed.
    fn forget(&self) {
        self.code.set(0);
        let state = interpreter::layout().map_or(0, |_| interpreter::thread_state());
        self.state.set(state);
    }

    /// Looks for the innermost watch that knows the code.
    #[cold]
    fn find(&self, code: usize) -> bool {
        let found = ENTERED.try_with(|entered| {
            let entered = entered.try_borrow().ok()?;
            entered.iter().rev().find_map(|watch| {
                let known = watch.codes.iter().find(|known| known.address == code)?;
                self.known.set(known);
                self.watch.set(Arc::as_ptr(watch));
                self.code.set(code);
                Some(())
            })
        });
        matches!(found, Ok(Some(())))
    }
}

impl Watch {
    /// With `from_nothing`, the first line shows all that was there before the call.
    pub fn new(
        codes: Vec<Code>,
        first_line: u32,
        reader: Reader,
        from_nothing: bool,
    ) -> Arc<Watch> {
        Arc::new(Watch {
            codes,
            table: UnsafeCell::new(Table::new(first_line, reader, from_nothing)),
        })
    }

    /// From here on events of this thread count.
    ///
    /// # Safety
    /// The calling thread holds the GIL.
    pub unsafe fn enter(self: &Arc<Watch>) {
        // SAFETY: the GIL is held, and no event is being looked at: this is called from Python.
        unsafe { &mut *self.table.get() }.enter();
        let _ = ENTERED.try_with(|entered| entered.borrow_mut().push(self.clone()));
        let _ = NEAR.try_with(Near::forget);
    }

    /// The counterpart of `enter`, on the same thread.
    ///
    /// # Safety
    /// The calling thread holds the GIL.
    pub unsafe fn leave(self: &Arc<Watch>) {
        // SAFETY: as in `enter`.
        unsafe { &mut *self.table.get() }.leave();
        let _ = NEAR.try_with(Near::forget);
        let _ = ENTERED.try_with(|entered| {
            let mut entered = entered.borrow_mut();
            if let Some(at) = entered.iter().rposition(|watch| Arc::ptr_eq(watch, self)) {
                entered.remove(at);
            }
        });
    }

    /// The table as it is now.
    ///
    /// # Safety
    /// The calling thread holds the GIL.
    pub unsafe fn table(&self) -> &Table {
        // SAFETY: as in `enter`; nothing changes it while the caller, who holds the GIL, looks at it.
        unsafe { &*self.table.get() }
    }
}

/// Something happened in a frame of a code object that may be watched: in the innermost one if none is named.
///
/// # Safety
/// The calling thread holds the GIL.
#[inline]
pub unsafe fn event(code: usize, frame: Option<usize>, what: Event) {
    let _ = NEAR.try_with(|near| {
        if near.is_busy.replace(true) {
            return;
        }
        if near.code.get() == code || near.find(code) {
            let frame = frame.unwrap_or_else(|| current_frame(near.state.get()));
            // SAFETY: this thread is in the watch, which keeps it alive: `leave` forgets it here first, and the Python object
            // of whoever entered holds it until then. The GIL is held, and the flag keeps this thread from coming here twice.
            unsafe { (*(*near.watch.get()).table.get()).event(&*near.known.get(), frame, what) };
        }
        near.is_busy.set(false);
    });
}

/// The profiler itself added so much on this thread just now: that is no line's increment.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn set_aside(bytes: i64) {
    let _ = ENTERED.try_with(|entered| {
        for watch in entered.borrow().iter() {
            // SAFETY: the GIL is held, and no event is being looked at: this is called from Python.
            unsafe { &mut *watch.table.get() }.set_aside(bytes);
        }
    });
}

/// Whether this thread is in any watched call at all.
#[inline]
pub fn is_entered() -> bool {
    ENTERED
        .try_with(|entered| {
            entered
                .try_borrow()
                .is_ok_and(|entered| !entered.is_empty())
        })
        .unwrap_or(false)
}

/// What tells the innermost frame of the calling thread's state from others; 0 where the interpreter's layout is not known.
#[inline]
fn current_frame(state: usize) -> usize {
    let Some(layout) = interpreter::layout().filter(|_| state != 0) else {
        return 0;
    };
    match layout.current_frame {
        // SAFETY: the calling thread's own state, whose layout was checked.
        CurrentFrame::Direct(offset) => unsafe {
            (state.wrapping_add(offset) as *const usize).read()
        },
        CurrentFrame::ViaCFrame {
            cframe,
            current_frame,
        } => {
            // SAFETY: as above; a live thread state always has a C frame record.
            unsafe {
                let record = (state.wrapping_add(cframe) as *const usize).read();
                (record.wrapping_add(current_frame) as *const usize).read()
            }
        }
    }
}

/// Learns what is needed to tell frames apart. An interpreter whose layout is unknown does without.
///
/// # Safety
/// The calling thread holds the GIL.
pub unsafe fn prepare() {
    if let Ok(symbols) = Symbols::resolve() {
        // SAFETY: the caller holds the GIL.
        let _ = unsafe { interpreter::prepare(&symbols) };
    }
}
