//! Signal sets and masks as the agent needs them.
//!
//! The kernel ends a process in which an access to memory fails while SIGBUS is blocked. So a thread that is recorded never
//! blocks SIGBUS: `pthread_sigmask` and `sigprocmask` are hooked, leave SIGBUS out of the mask, and return the mask that
//! the program has set. Only a SIGBUS that another process sends could show the difference.
//!
//! Runs on: any thread. Allocates: never. Locks: never. During fork/exit: no state.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::hooks::real;
use crate::host::bus_error;
use crate::record::threads;
use crate::session;

/// The bit of a signal in the first word of a set. Linux has 64 signals, numbered from 1.
pub(crate) fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

pub(crate) fn first_word(set: &libc::sigset_t) -> u64 {
    // SAFETY: a set is longer than one word and aligned as one.
    unsafe { std::ptr::from_ref(set).cast::<u64>().read() }
}

/// The set with exactly the signals of this word.
pub(crate) fn set_of_word(word: u64) -> libc::sigset_t {
    // SAFETY: a set consists of bits, for which zero bytes are valid. It is longer than one word and aligned as one.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        std::ptr::from_mut(&mut set).cast::<u64>().write(word);
        set
    }
}

/// Lets the calling thread receive SIGBUS from now on. Sets `was_blocked` if the program has blocked it.
pub(crate) fn unblock_bus_error(was_blocked: &AtomicBool) {
    let mask = TemporaryMask::without_bus_error();
    if first_word(&mask.before) & bit(libc::SIGBUS) != 0 {
        was_blocked.store(true, Ordering::Relaxed);
    }
    std::mem::forget(mask);
}

/// A function such as `pthread_sigmask`.
pub(crate) type ChangeMask =
    extern "C" fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int;

/// The hook of `pthread_sigmask`.
pub(crate) unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: this is the function's hook, and the program called it with these arguments.
    unsafe { change_mask(real::pthread_sigmask.get(), how, set, old) }
}

/// The hook of `sigprocmask`.
pub(crate) unsafe extern "C" fn sigprocmask(
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: this is the function's hook, and the program called it with these arguments.
    unsafe { change_mask(real::sigprocmask.get(), how, set, old) }
}

/// Changes the mask, but leaves SIGBUS unblocked in a thread that is recorded.
///
/// # Safety
/// The arguments are valid for `pthread_sigmask`.
unsafe fn change_mask(
    change: ChangeMask,
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    let state = threads::existing_state();
    if state.is_null() || !session::is_active() || !bus_error::is_this_process() {
        return change(how, set, old);
    }
    // SAFETY: states are never unmapped.
    let blocked = unsafe { &(*state).blocks_bus_error };
    let before = blocked.load(Ordering::Relaxed);
    // SAFETY: null, or a set, as the function requires.
    let word = unsafe { set.as_ref() }.map(first_word);
    let result = match word {
        Some(word) if how != libc::SIG_UNBLOCK => {
            change(how, &set_of_word(word & !bit(libc::SIGBUS)), old)
        }
        _ => change(how, set, old),
    };
    if result != 0 {
        return result;
    }
    if let Some(word) = word {
        let is_named = word & bit(libc::SIGBUS) != 0;
        let is_blocked = match how {
            libc::SIG_BLOCK => before || is_named,
            libc::SIG_UNBLOCK => before && !is_named,
            _ => is_named,
        };
        blocked.store(is_blocked, Ordering::Relaxed);
    }
    // SAFETY: null, or memory for a set, which the real function has filled.
    if let (true, Some(old)) = (before, unsafe { old.as_mut() }) {
        *old = set_of_word(first_word(old) | bit(libc::SIGBUS));
    }
    0
}

/// A mask that the calling thread has until this is dropped.
pub(crate) struct TemporaryMask {
    before: libc::sigset_t,
}

impl TemporaryMask {
    pub fn all() -> Self {
        Self::change(libc::SIG_SETMASK, u64::MAX)
    }

    pub fn all_but_bus_error() -> Self {
        Self::change(libc::SIG_SETMASK, !bit(libc::SIGBUS))
    }

    /// The thread's own mask, but SIGBUS is not blocked.
    pub fn without_bus_error() -> Self {
        Self::change(libc::SIG_UNBLOCK, bit(libc::SIGBUS))
    }

    fn change(how: c_int, word: u64) -> Self {
        let mut before = set_of_word(0);
        // SAFETY: both sets are live variables.
        unsafe { change_real_mask(how, &set_of_word(word), &mut before) };
        TemporaryMask { before }
    }
}

impl Drop for TemporaryMask {
    fn drop(&mut self) {
        // SAFETY: the set is a live field, and a null pointer asks for no old mask.
        unsafe { change_real_mask(libc::SIG_SETMASK, &self.before, null_mut()) };
    }
}

/// # Safety
/// The arguments are valid for `pthread_sigmask`.
unsafe fn change_real_mask(how: c_int, set: &libc::sigset_t, old: *mut libc::sigset_t) {
    match real::pthread_sigmask.get_if_found() {
        Some(change) => change(how, set, old),
        // SAFETY: the caller promises valid arguments.
        None => unsafe { libc::pthread_sigmask(how, set, old) },
    };
}

/// Sends a signal with its information to the calling thread.
///
/// # Safety
/// `info` is valid.
pub(crate) unsafe fn send_to_own_thread(signal: c_int, info: *const libc::siginfo_t) {
    // SAFETY: the caller promises that `info` is valid; the other arguments are numbers.
    unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            libc::getpid(),
            libc::syscall(libc::SYS_gettid),
            signal,
            info,
        )
    };
}
