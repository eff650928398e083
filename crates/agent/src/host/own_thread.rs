//! Threads of ours in somebody else's process: never recorded, and deaf to the program's signals.
//!
//! They are not threads of the standard library, which would allocate before they can be declared ours.

use std::ffi::c_void;
use std::io;

use crate::record::threads;

/// What a thread does; what it leaves is for whoever waits for its end.
pub type Work = Box<dyn FnOnce() -> *mut c_void + Send>;

/// A running thread.
pub struct Handle(libc::pthread_t);

/// Runs `work` on a thread of ours.
pub fn spawn(stack_bytes: usize, work: Work) -> io::Result<Handle> {
    let work = Box::into_raw(Box::new(work));
    let before = block_signals();
    // SAFETY: the attributes are initialised before they are used, and destroyed after. The work is the thread's from here
    // on, unless there is no thread.
    let (error, thread) = unsafe {
        let mut thread = std::mem::zeroed();
        let mut attributes = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstacksize(&mut attributes, stack_bytes);
        let error = libc::pthread_create(&mut thread, &attributes, body, work.cast());
        libc::pthread_attr_destroy(&mut attributes);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        (error, thread)
    };
    if error != 0 {
        // SAFETY: no thread has it.
        drop(unsafe { Box::from_raw(work) });
        return Err(io::Error::from_raw_os_error(error));
    }
    Ok(Handle(thread))
}

extern "C" fn body(work: *mut c_void) -> *mut c_void {
    threads::claim_as_own();
    // SAFETY: names the calling thread alone; the name is a C string of fewer than 16 bytes.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), c"heaptide".as_ptr()) };
    // SAFETY: `spawn` handed the work over.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    // A panic must not leave through a C function. A thread that panicked has nothing left to tell.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(std::ptr::null_mut())
}

impl Handle {
    /// Waits for the thread's end, and returns what it left; null if it panicked.
    pub fn join(self) -> *mut c_void {
        let mut left = std::ptr::null_mut();
        // SAFETY: the thread was started joinable, and its handle is used up here.
        unsafe { libc::pthread_join(self.0, &mut left) };
        left
    }

    /// Lets the thread run by itself. What it leaves must be null.
    pub fn detach(self) {
        // SAFETY: as above.
        unsafe { libc::pthread_detach(self.0) };
    }
}

/// Waits until the kernel, too, no longer counts a thread, which has ended, among those of the process.
pub fn wait_until_gone(thread: u32) {
    // SAFETY: signal 0 only asks whether the thread is there. Its number cannot be another thread's so soon.
    while unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) } == 0 {
        std::thread::yield_now();
    }
}

/// The program's signals are for its own threads: ours are born with all of them blocked.
fn block_signals() -> libc::sigset_t {
    // SAFETY: signal sets are plain bits; `sigfillset` and `pthread_sigmask` fill them in.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    }
}
