//! The agent's one thread of its own: packs full chunks, reads the resident size, notices new libraries and losses.
//!
//! It sleeps until its next reading is due or so many chunks wait that it is woken. It never takes the GIL, so it can
//! neither delay the interpreter nor be caught by its finalisation, and its own allocations are never recorded.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use heaptide_capture::Entry;

use crate::checkpoint::Checkpoints;
use crate::resident::Resident;
use crate::session::{self, Session};
use crate::{clock, libraries, own_memory, threads};

/// Moves when the keeper should look before its time.
static CALLS: AtomicU32 = AtomicU32::new(0);
static STOPPING: AtomicBool = AtomicBool::new(false);

/// Between two clock points in the file.
const CLOCK_EVERY: Duration = Duration::from_secs(1);
/// Between two readings in the file of a resident size that stays the same.
const SAME_SIZE_EVERY: Duration = Duration::from_millis(100);

/// Wakes the keeper.
pub fn wake() {
    CALLS.fetch_add(1, Ordering::Release);
    // SAFETY: the address is that of a static, which lives for ever.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            CALLS.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        )
    };
}

/// Sleeps until somebody calls or `timeout` has passed. `seen` is the number of calls taken care of.
fn wait(seen: u32, timeout: Duration) {
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: both addresses are valid for the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            CALLS.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            seen,
            &timeout,
        )
    };
}

/// Starts the keeper of `session`.
pub fn start(session: &'static Session) -> std::io::Result<JoinHandle<Option<Checkpoints>>> {
    STOPPING.store(false, Ordering::Release);
    let before = block_signals();
    let (ready, is_ready) = mpsc::sync_channel(1);
    let handle = thread::Builder::new()
        .name("heaptide".to_owned())
        .stack_size(256 * 1024)
        .spawn(move || {
            threads::claim_as_ours();
            let _ = ready.send(());
            run(session)
        });
    if handle.is_ok() {
        // Until then libc may allocate in the new thread, and that would look like the program's.
        let _ = is_ready.recv();
    }
    // SAFETY: restores the mask that `block_signals` saved.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    handle
}

/// The program's signals are for its own threads: the keeper is born with all of them blocked.
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

/// Ends the keeper: it finishes what it is doing. Of a bounded capture it leaves the sums so far.
pub fn stop(handle: JoinHandle<Option<Checkpoints>>) -> Option<Checkpoints> {
    STOPPING.store(true, Ordering::Release);
    wake();
    // A keeper that panicked has nothing left to tell.
    handle.join().ok().flatten()
}

fn run(session: &Session) -> Option<Checkpoints> {
    let mut checkpoints = session.config.aggregate.then(|| Checkpoints::new(session));
    let resident = Resident::open();
    let interval = Duration::from_millis(session.interval_ms.max(1).into());
    let mut next_reading = Instant::now();
    let mut next_clock = Instant::now();
    let mut own_bytes_noted = 0;
    let mut resident_noted = (0, Instant::now());
    while !STOPPING.load(Ordering::Acquire) {
        let calls = CALLS.load(Ordering::Acquire);
        session.store.pack_waiting();
        if let Some(checkpoints) = checkpoints
            .as_mut()
            .filter(|checkpoints| checkpoints.is_due(session))
        {
            checkpoints.make(session);
        }
        let now = Instant::now();
        if now >= next_reading {
            if let Some(bytes) = resident.bytes() {
                // A size that does not change is told ten times a second, to show that somebody was looking.
                if bytes != resident_noted.0 || now >= resident_noted.1 + SAME_SIZE_EVERY {
                    resident_noted = (bytes, now);
                    session.note(&Entry::Resident {
                        time: clock::ticks() >> session::tick_shift(),
                        bytes,
                    });
                }
            }
            libraries::patch_new();
            session.note_losses();
            if own_memory::ran_out() {
                session::abandon("the process may not take any more memory");
            }
            let own_bytes = own_memory::bytes() as u64;
            if own_bytes > own_bytes_noted + own_bytes_noted / 8 {
                own_bytes_noted = own_bytes;
                session.note(&Entry::OwnMemory { bytes: own_bytes });
            }
            next_reading += interval;
            if next_reading < now {
                next_reading = now + interval;
            }
        }
        if now >= next_clock {
            session.note_clock();
            next_clock = now + CLOCK_EVERY;
        }
        let pause = next_reading.saturating_duration_since(Instant::now());
        if !pause.is_zero() {
            wait(calls, pause);
        }
    }
    checkpoints
}
