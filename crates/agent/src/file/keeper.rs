//! The agent's one thread of its own: packs full chunks, reads the resident size, notices new libraries and losses.
//!
//! It sleeps until its next reading is due or so many chunks wait that it is woken. It never takes the GIL, so it can
//! neither delay the interpreter nor be caught by its finalisation, and its own allocations are never recorded.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use heaptide_capture::Entry;

use crate::file::checkpoint::Checkpoints;
use crate::host::own_thread::Handle;
use crate::host::resident::Resident;
use crate::host::{own_memory, own_thread};
use crate::libraries;
use crate::record::clock;
use crate::session::{self, Session};

/// Moves when the keeper should look before its time.
static CALLS: AtomicU32 = AtomicU32::new(0);
static STOPPING: AtomicBool = AtomicBool::new(false);
/// The kernel's number of the thread.
static THREAD: AtomicI32 = AtomicI32::new(0);

const STACK_BYTES: usize = 256 * 1024;
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

/// Starts the keeper of `session`. `checkpoints` are the sums so far of a bounded capture.
pub fn start(
    session: &'static Session,
    checkpoints: Option<Box<Checkpoints>>,
) -> std::io::Result<Handle> {
    STOPPING.store(false, Ordering::Release);
    let work = move || {
        // SAFETY: asks for the number of the calling thread.
        THREAD.store(unsafe { libc::gettid() }, Ordering::Release);
        let left = run(session, checkpoints);
        left.map_or(std::ptr::null_mut(), |checkpoints| {
            Box::into_raw(checkpoints).cast()
        })
    };
    own_thread::spawn(STACK_BYTES, Box::new(work))
}

/// Ends the keeper: it finishes what it is doing. Of a bounded capture it leaves the sums so far.
pub fn stop(handle: Handle) -> Option<Box<Checkpoints>> {
    STOPPING.store(true, Ordering::Release);
    wake();
    let left = handle.join();
    // SAFETY: the keeper leaves null or a box of this type.
    (!left.is_null()).then(|| unsafe { Box::from_raw(left.cast::<Checkpoints>()) })
}

/// Waits until the kernel, too, no longer counts the keeper, which has ended.
pub fn wait_until_gone() {
    own_thread::wait_until_gone(THREAD.load(Ordering::Acquire) as u32);
}

fn run(session: &Session, mut checkpoints: Option<Box<Checkpoints>>) -> Option<Box<Checkpoints>> {
    let resident = Resident::open();
    let interval = Duration::from_millis(session.config.interval_ms.max(1).into());
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
            // Looked at again: if this reading came late, the next one must not follow on its heels.
            let now = Instant::now();
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
