//! What a fork means: the child stops recording, and a child that is to be followed begins anew.
//!
//! The parent's slots are memory shared with its file, so a child must never write there. Two things see to that: the
//! kernel wipes the page of the order word in the child, and the handler below, which libc runs in the child before
//! anything else, forgets the session. Before the fork a handler takes every lock that a child may need, so that
//! no thread holds one of them, or the linker's, while the process is copied.

use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::arenas::ARENAS;
use crate::cpython::interpreter;
use crate::cpython::symbols::{PendingCall, Symbols};
use crate::host::locks::lock;
use crate::host::sys;
use crate::libraries::LOADER;
use crate::native::modules::MODULES;
use crate::record::codes::{CODES, JOB_CODES};
use crate::record::threads::{self, POOL};
use crate::session::config::Config;
use crate::session::{self, LIFECYCLE, ORDER};
use crate::{arenas, jobs};

static PREPARED: AtomicBool = AtomicBool::new(false);
/// In a child that is to be followed: how the parent recorded.
static INHERITANCE: Mutex<Option<Inheritance>> = Mutex::new(None);

struct Inheritance {
    config: Config,
    session: [u8; 16],
    parent: u32,
}

/// Once per process, before the first session.
pub fn prepare() {
    if PREPARED.swap(true, Ordering::AcqRel) {
        return;
    }
    let page: *const session::OrderPage = &ORDER;
    // SAFETY: the range is a static of ours, in anonymous private memory; where the kernel refuses, the handlers do.
    unsafe {
        libc::madvise(
            page.cast_mut().cast(),
            size_of::<session::OrderPage>(),
            libc::MADV_WIPEONFORK,
        );
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
    }
}

/// How the parent recorded, once, if this child is to be followed.
pub fn take_inheritance() -> Option<(Config, [u8; 16], u32)> {
    let Inheritance {
        config,
        session,
        parent,
    } = lock(&INHERITANCE).take()?;
    Some((config, session, parent))
}

/// Calls `resume`, which starts threads again after a fork, once the interpreter has counted the threads of the process.
///
/// The interpreter warns about a fork in a process with several threads; Heaptide's own must not cause that warning. A
/// version that counts after its hooks runs `resume` later, as a pending call. It does so on the main thread alone: a
/// process that forks from another thread has several anyway, and there `resume` runs at once.
pub fn resume_after_thread_count(resume: PendingCall) {
    let is_main = sys::thread_id() == std::process::id();
    let is_pending = is_main
        && Symbols::resolve().is_ok_and(|symbols| {
            // SAFETY: `resume` ignores its argument, raises nothing, and stays loaded: the library is never unloaded.
            interpreter::counts_threads_after_fork_hooks(&symbols)
                && unsafe { (symbols.add_pending_call)(resume, null_mut()) } == 0
        });
    if !is_pending {
        resume(null_mut());
    }
}

/// Always in this order, which is the one in which they are nested elsewhere.
extern "C" fn before() {
    LIFECYCLE.acquire();
    LOADER.acquire();
    ARENAS.acquire();
    POOL.acquire();
    jobs::before_fork();
    CODES.acquire();
    JOB_CODES.acquire();
    MODULES.acquire();
}

extern "C" fn in_parent() {
    MODULES.release();
    JOB_CODES.release();
    CODES.release();
    jobs::after_fork();
    POOL.release();
    ARENAS.release();
    LOADER.release();
    LIFECYCLE.release();
}

extern "C" fn in_child() {
    let _errno = sys::KeepErrno::now();
    threads::after_fork_in_child();
    in_parent();
    arenas::after_fork_in_child();
    // SAFETY: `getppid` has no preconditions.
    let parent = unsafe { libc::getppid() } as u32;
    session::forget_after_fork(|config, session| {
        let inheritance = Inheritance {
            config: config.clone(),
            session,
            parent,
        };
        // The child has one thread, and the parent's other threads cannot hold this lock: only children take it.
        *lock(&INHERITANCE) = Some(inheritance);
    });
}
