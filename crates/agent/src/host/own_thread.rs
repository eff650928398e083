//! Heaptide's own threads in the program's process: never recorded, with all signals blocked.
//!
//! Rust's standard library is not used for them: it allocates on a new thread before the thread can be excluded.

use std::ffi::c_void;
use std::io;

use crate::host::signals::TemporaryMask;
use crate::record::threads;

/// The work of a thread. [`Handle::join`] returns its result.
pub(crate) type Work = Box<dyn FnOnce() -> *mut c_void + Send>;

/// A running thread.
pub struct Handle(libc::pthread_t);

/// Runs `work` on a new thread.
pub fn spawn(stack_bytes: usize, work: Work) -> io::Result<Handle> {
    let work = Box::into_raw(Box::new(work));
    // A new thread inherits this mask: the program's signals are for its own threads. SIGBUS stays unblocked, because a
    // failed access to the capture while it is blocked would end the process.
    let blocked = TemporaryMask::all_but_bus_error();
    // SAFETY: the attributes are initialised before their use and destroyed after it. If a thread is created,
    // `body` takes over `work`.
    let (error, thread) = unsafe {
        let mut thread = std::mem::zeroed();
        let mut attributes = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstacksize(&mut attributes, stack_bytes);
        let error = libc::pthread_create(&mut thread, &attributes, body, work.cast());
        libc::pthread_attr_destroy(&mut attributes);
        (error, thread)
    };
    drop(blocked);
    if error != 0 {
        // SAFETY: no thread was created, so the box still belongs to this function.
        drop(unsafe { Box::from_raw(work) });
        return Err(io::Error::from_raw_os_error(error));
    }
    Ok(Handle(thread))
}

extern "C" fn body(work: *mut c_void) -> *mut c_void {
    threads::claim_as_own();
    // SAFETY: the thread is the calling one, and the name is a C string of fewer than 16 bytes.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), c"heaptide".as_ptr()) };
    // SAFETY: `spawn` passed a box of this type, which belongs to this thread now.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    // A panic must not unwind through a C function. A thread that panicked has no result.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(std::ptr::null_mut())
}

impl Handle {
    /// Waits until the thread ends and returns its result; null if it panicked.
    pub fn join(self) -> *mut c_void {
        let mut result = std::ptr::null_mut();
        // SAFETY: `spawn` started the thread joinable, and `self` is consumed, so the thread is joined once.
        unsafe { libc::pthread_join(self.0, &mut result) };
        result
    }

    /// Detaches the thread, whose result must be null.
    pub fn detach(self) {
        // SAFETY: `spawn` started the thread joinable, and `self` is consumed, so the thread is not joined later.
        unsafe { libc::pthread_detach(self.0) };
    }
}

/// Waits until the kernel no longer counts an ended thread among those of the process.
pub fn wait_until_gone(thread: u32) {
    // SAFETY: signal 0 only checks whether the thread exists; the call takes no pointers.
    while unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) } == 0 {
        std::thread::yield_now();
    }
}
