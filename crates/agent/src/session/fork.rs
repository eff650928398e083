//! Forks: the child stops recording, and starts its own recording if the session follows forks.
//!
//! The parent's slots are memory shared with its file, so a child must never write there. Two mechanisms ensure this.
//! The kernel wipes the page of the order word in the child. Before `fork` returns in the child, the C library runs a
//! handler that forgets the session. Before the fork another handler takes every lock that a child may need. So no
//! other thread holds one of them, or holds the linker's lock for Heaptide, while the process is copied.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::arenas::ARENAS;
use crate::cpython::interpreter;
use crate::cpython::symbols::{PendingCall, Symbols};
use crate::host::locks::lock;
use crate::host::{bus_error, sys};
use crate::jobs::marks::MARKS;
use crate::libraries::LOADER;
use crate::native::modules::MODULES;
use crate::record::codes::{CODES, JOB_CODES};
use crate::record::threads::{self, POOL};
use crate::session::config::Config;
use crate::session::{self, LIFECYCLE, ORDER};
use crate::{arenas, jobs};

static PREPARED: AtomicBool = AtomicBool::new(false);
/// The parent's session, in a child of a session that follows forks.
static INHERITANCE: Mutex<Option<Inheritance>> = Mutex::new(None);
/// The frame in which the main thread forked last; 0 if it is unknown.
static FORKING_FRAME: AtomicUsize = AtomicUsize::new(0);

struct Inheritance {
    config: Config,
    session: [u8; 16],
    parent: u32,
}

/// Installs the handlers, once per process.
pub fn prepare() {
    if PREPARED.swap(true, Ordering::AcqRel) {
        return;
    }
    let page: *const session::OrderPage = &ORDER;
    // SAFETY: the range is one static, which is aligned to whole pages and in private memory, so wiping it in a child affects
    // nothing else. The handlers are functions of this library, which is never unloaded.
    unsafe {
        libc::madvise(
            page.cast_mut().cast(),
            size_of::<session::OrderPage>(),
            libc::MADV_WIPEONFORK,
        );
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
    }
}

/// Takes the parent's configuration, session and process ID, in a child of a session that follows forks.
pub(crate) fn take_inheritance() -> Option<(Config, [u8; 16], u32)> {
    let Inheritance {
        config,
        session,
        parent,
    } = lock(&INHERITANCE).take()?;
    Some((config, session, parent))
}

/// Calls `resume`, which starts threads again after a fork, once the interpreter has counted the threads of the process.
///
/// The interpreter warns about a fork in a process with several threads; Heaptide's own must not cause that warning. On a
/// Python version that counts after it has run the fork hooks, `resume` runs later, as a pending call. This applies only to
/// the main thread: a process that forks from another thread has several threads anyway, so `resume` runs at once.
///
/// # Safety
/// The calling thread holds the GIL, and is in an `after_in_parent` hook without a Python frame. `resume` ignores
/// its argument and raises nothing.
pub unsafe fn resume_after_thread_count(resume: PendingCall) {
    let is_main = sys::thread_id() == std::process::id();
    let is_pending = is_main
        && Symbols::resolve().is_ok_and(|symbols| {
            interpreter::counts_threads_after_fork_hooks(&symbols) && {
                // SAFETY: the caller holds the GIL. If this fails, the frame is unknown, and the first pending call
                // runs `resume`.
                let _ = unsafe { interpreter::prepare(&symbols) };
                FORKING_FRAME.store(interpreter::innermost_frame(), Ordering::Relaxed);
                add_pending(&symbols, resume as *mut c_void)
            }
        });
    if !is_pending {
        resume(null_mut());
    }
}

/// Lets the interpreter call [`resume_unless_in_hook`]. Returns false if its queue is full.
fn add_pending(symbols: &Symbols, resume: *mut c_void) -> bool {
    // SAFETY: the function raises nothing and stays loaded: the library is never unloaded.
    unsafe { (symbols.add_pending_call)(resume_unless_in_hook, resume) == 0 }
}

/// Runs `resume`, a [`PendingCall`]. If a later hook is a Python function, the interpreter makes pending calls in it,
/// before it counts threads. The call is then postponed until the forking frame runs again.
extern "C" fn resume_unless_in_hook(resume: *mut c_void) -> c_int {
    let is_in_hook = interpreter::is_below(FORKING_FRAME.load(Ordering::Relaxed));
    if is_in_hook && Symbols::resolve().is_ok_and(|symbols| add_pending(&symbols, resume)) {
        return 0;
    }
    // SAFETY: `resume_after_thread_count` passed a function of this type.
    let resume: PendingCall = unsafe { std::mem::transmute(resume) };
    resume(null_mut())
}

/// Takes all locks, in the order in which other code nests them.
extern "C" fn before() {
    LIFECYCLE.acquire();
    bus_error::INSTALLED.acquire();
    LOADER.acquire();
    ARENAS.acquire();
    POOL.acquire();
    jobs::before_fork();
    MARKS.acquire();
    CODES.acquire();
    JOB_CODES.acquire();
    MODULES.acquire();
}

extern "C" fn in_parent() {
    MODULES.release();
    JOB_CODES.release();
    CODES.release();
    MARKS.release();
    jobs::after_fork();
    POOL.release();
    ARENAS.release();
    LOADER.release();
    bus_error::INSTALLED.release();
    LIFECYCLE.release();
}

extern "C" fn in_child() {
    let _errno = sys::KeepErrno::now();
    threads::after_fork_in_child();
    crate::native::modules::after_fork_in_child();
    bus_error::claim_process();
    in_parent();
    arenas::after_fork_in_child();
    // SAFETY: `getppid` has no preconditions.
    let parent = unsafe { libc::getppid() } as u32;
    session::forget_after_fork(|config, mode, session| {
        let inheritance = Inheritance {
            config: Config {
                mode,
                ..config.clone()
            },
            session,
            parent,
        };
        // No thread of the parent can hold this lock, because only children take it.
        *lock(&INHERITANCE) = Some(inheritance);
    });
}
