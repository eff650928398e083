//! Calls to the C library: signals, waiting, local time, the size of a page. The only unsafe code of this crate.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::time::Duration;

/// Signals that are forwarded to the program, in addition to SIGCONT.
const FORWARDED: [i32; 11] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// Signals that Python ignores from its start; a program expects the default action.
const IGNORED_BY_PYTHON: [i32; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// A signal that this process received.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    pub signal: i32,
    /// Whether a process sent it. The terminal sends its signals to the program directly.
    pub is_from_process: bool,
}

/// Keeps signals blocked until it is dropped. Meanwhile [`HeldSignals::wait`] receives them one by one.
pub struct HeldSignals {
    held: libc::sigset_t,
    before: libc::sigset_t,
    /// Whether SIGCHLD was ignored when this process started. This process must reset it to receive the exit status of
    /// children, and ignore it again in the program.
    ignored_children: bool,
}

impl HeldSignals {
    /// Blocks the forwarded signals, SIGCHLD and SIGCONT.
    pub fn hold() -> HeldSignals {
        let mut held = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: sigemptyset and pthread_sigmask fill the sets they are given; the numbers are valid signals, and none
        // of the calls can fail with these arguments.
        unsafe {
            libc::sigemptyset(held.as_mut_ptr());
            for signal in FORWARDED.into_iter().chain([libc::SIGCHLD, libc::SIGCONT]) {
                libc::sigaddset(held.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, held.as_ptr(), before.as_mut_ptr());
            let children = libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            HeldSignals {
                held: held.assume_init(),
                before: before.assume_init(),
                ignored_children: children == libc::SIG_IGN,
            }
        }
    }

    /// Returns the next signal, or `None` after the timeout.
    pub fn wait(&self, at_most: Duration) -> Option<Arrived> {
        let timeout = libc::timespec {
            tv_sec: at_most.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: at_most.subsec_nanos() as _,
        };
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: all three pointers are to live values of the right types; siginfo_t is plain data, valid as zeros.
        let (signal, info) = unsafe {
            let signal = libc::sigtimedwait(&self.held, info.as_mut_ptr(), &timeout);
            (signal, info.assume_init())
        };
        (signal > 0).then_some(Arrived {
            signal,
            // Codes above zero come from the kernel.
            is_from_process: info.si_code <= 0,
        })
    }

    /// Makes a command start with the signal mask that this process started with. Resets the actions that Python and
    /// [`HeldSignals::hold`] changed.
    pub fn restore_in(&self, command: &mut Command) {
        let (before, ignored_children) = (self.before, self.ignored_children);
        // SAFETY: the closure runs between fork and exec and calls only async-signal-safe functions; it owns a copy
        // of the mask and touches nothing else.
        unsafe {
            command.pre_exec(move || {
                for signal in IGNORED_BY_PYTHON {
                    libc::signal(signal, libc::SIG_DFL);
                }
                if ignored_children {
                    libc::signal(libc::SIGCHLD, libc::SIG_IGN);
                }
                libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
                Ok(())
            });
        }
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        // The program has exited, so pending signals have no receiver.
        while self.wait(Duration::ZERO).is_some() {}
        // SAFETY: `before` was filled by pthread_sigmask.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut());
        }
    }
}

/// A change of a child's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Exited(i32),
    Killed(i32),
    Stopped,
    /// The child was stopped and continues.
    Continued,
    /// Another thread has reaped the child, so its status is unknown.
    Gone,
}

/// Returns the change of a child's state since the last call. Never waits.
pub fn change_of(pid: u32) -> Option<Change> {
    let mut status = 0;
    // SAFETY: the pointer is to a live integer.
    let answer = unsafe {
        libc::waitpid(
            pid as libc::pid_t,
            &mut status,
            libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED,
        )
    };
    if answer == 0 {
        return None;
    }
    if answer < 0 {
        let error = io::Error::last_os_error();
        return (error.raw_os_error() == Some(libc::ECHILD)).then_some(Change::Gone);
    }
    if libc::WIFEXITED(status) {
        Some(Change::Exited(libc::WEXITSTATUS(status)))
    } else if libc::WIFSIGNALED(status) {
        Some(Change::Killed(libc::WTERMSIG(status)))
    } else if libc::WIFCONTINUED(status) {
        Some(Change::Continued)
    } else {
        Some(Change::Stopped)
    }
}

/// Sends a signal; returns whether the process still existed.
pub fn send(pid: u32, signal: i32) -> bool {
    // SAFETY: kill takes two numbers. The pid is that of a child that was not waited for yet, so no other process has it.
    unsafe { libc::kill(pid as libc::pid_t, signal) == 0 }
}

/// Stops this process until it receives SIGCONT, as a held stop signal of the terminal would have done.
pub fn stop_self() {
    // SAFETY: raise takes a number.
    unsafe {
        libc::raise(libc::SIGSTOP);
    }
}

/// Ends this process with the signal that killed the program, so that the parent sees the same status.
/// Returns only if the signal does not kill processes.
pub fn die_of(signal: i32) {
    let no_core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let mut set = MaybeUninit::uninit();
    // SAFETY: the pointers are to live values of the right types; a wrong number makes the calls fail, not misbehave.
    unsafe {
        // The program has already dumped its core; a second dump could replace it.
        libc::setrlimit(libc::RLIMIT_CORE, &no_core);
        libc::signal(signal, libc::SIG_DFL);
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
        libc::raise(signal);
    }
}

/// Returns a time as `YYYYmmddHHMMSS` in local time.
pub fn local_stamp(unix_s: u64) -> String {
    let time = unix_s as libc::time_t;
    let mut parts = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are to live values; tm is plain data, valid as zeros if the call fails.
    let parts = unsafe {
        libc::localtime_r(&time, parts.as_mut_ptr());
        parts.assume_init()
    };
    format!(
        "{:04}{:02}{:02}{:02}{:02}{:02}",
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    )
}

pub fn page_len() -> u64 {
    // SAFETY: sysconf takes a number.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Returns the processor time of this thread.
pub fn cpu_time() -> Duration {
    let mut spent = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the pointer is to a live value, valid as zeros if the call fails.
    let spent = unsafe {
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, spent.as_mut_ptr());
        spent.assume_init()
    };
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

/// Blocks all signals in the calling thread, so that other threads receive them.
pub fn block_all_signals() {
    // SAFETY: the set is filled before it is used, and only the calling thread's own mask is changed.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}
