//! The keeper, Heaptide's own thread in a recorded process: packs full chunks, reads the resident size, hooks new libraries
//! and records losses.
//!
//! It sleeps until its next reading is due, or until a thread wakes it because several chunks wait. It never takes the GIL,
//! so it can neither delay the interpreter nor block its finalisation. Its own allocations are never recorded.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use heaptide_capture::{Entry, MemoryPart};

use crate::file::checkpoint::Checkpoints;
use crate::host::own_thread::Handle;
use crate::host::resident::Resident;
use crate::host::{own_memory, own_thread, sys};
use crate::libraries;
use crate::record::clock;
use crate::session::{self, Session};

/// The number of wake-ups of the keeper. It sleeps on this word.
static WAKE_UPS: AtomicU32 = AtomicU32::new(0);
static STOPPING: AtomicBool = AtomicBool::new(false);
/// The kernel's ID of the keeper's thread.
static THREAD: AtomicI32 = AtomicI32::new(0);
/// The file from which the running keeper reads the resident size.
static RESIDENT: AtomicPtr<Resident> = AtomicPtr::new(null_mut());

const STACK_BYTES: usize = 256 * 1024;
/// Time between two clock points in the file.
const CLOCK_EVERY: Duration = Duration::from_secs(1);
/// Time between two readings in the file while the resident size does not change.
const SAME_SIZE_EVERY: Duration = Duration::from_millis(100);

/// Wakes the keeper.
pub fn wake() {
    WAKE_UPS.fetch_add(1, Ordering::Release);
    // SAFETY: the address is that of a static, which is always valid.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            WAKE_UPS.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        )
    };
}

/// Sleeps until `wake` is called or `timeout` has passed. Returns at once if the number of wake-ups is no longer `seen`.
fn wait(seen: u32, timeout: Duration) {
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: one address is that of a static, the other that of a local variable that outlives the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            WAKE_UPS.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            seen,
            &timeout,
        )
    };
}

/// Starts the keeper of `session`. A bounded capture passes its sums so far as `checkpoints`.
pub fn start(
    session: &'static Session,
    checkpoints: Option<Box<Checkpoints>>,
) -> std::io::Result<Handle> {
    STOPPING.store(false, Ordering::Release);
    // Opened here, before the program continues: for an instant the descriptor has the lowest free number, and a program
    // whose standard streams are closed must not see it.
    RESIDENT.store(Box::into_raw(Box::new(Resident::open())), Ordering::Release);
    let work = move || {
        THREAD.store(sys::thread_id() as i32, Ordering::Release);
        let returned = run(session, checkpoints);
        close_files();
        returned.map_or(std::ptr::null_mut(), |checkpoints| {
            Box::into_raw(checkpoints).cast()
        })
    };
    own_thread::spawn(STACK_BYTES, Box::new(work))
}

/// Stops the keeper after it has finished its current step. Returns the sums so far of a bounded capture.
pub fn stop(handle: Handle) -> Option<Box<Checkpoints>> {
    STOPPING.store(true, Ordering::Release);
    wake();
    let returned = handle.join();
    // SAFETY: the work that `start` gave the thread returns null or a box of this type.
    (!returned.is_null()).then(|| unsafe { Box::from_raw(returned.cast::<Checkpoints>()) })
}

/// Whether the calling thread is the keeper.
pub fn is_this_thread() -> bool {
    THREAD.load(Ordering::Acquire) == sys::thread_id() as i32
}

/// Opens the keeper's files again, because the program has closed all descriptors. Only for threads of the program.
pub fn open_files_again() {
    let resident = Box::into_raw(Box::new(Resident::open()));
    // The old value is leaked: the keeper may be using it, and its descriptor is already closed.
    if RESIDENT.swap(resident, Ordering::AcqRel).is_null() {
        // No keeper is running. The next one opens the files itself.
        close_unless_replaced(&RESIDENT, resident);
    }
}

/// Closes the files of `resident`, which no keeper knows, unless a keeper that starts at this moment has replaced them.
fn close_unless_replaced(current: &AtomicPtr<Resident>, resident: *mut Resident) {
    if current
        .compare_exchange(resident, null_mut(), Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
    {
        // SAFETY: the caller leaked this box, and the exchange has taken it out. A keeper never uses it: `start`
        // replaces it before the keeper runs.
        drop(unsafe { Box::from_raw(resident) });
    }
}

/// Forgets the parent's keeper in a forked child.
pub fn forget_after_fork() {
    close_files();
    THREAD.store(0, Ordering::Release);
}

fn close_files() {
    let resident = RESIDENT.swap(null_mut(), Ordering::AcqRel);
    // SAFETY: `start` and `open_files_again` leak a box into this variable, and the swap has taken it out. Only the keeper
    // uses the box, and this is its last step, or its thread does not exist in this process.
    drop((!resident.is_null()).then(|| unsafe { Box::from_raw(resident) }));
}

/// Waits until the kernel no longer counts the stopped keeper among the threads of the process.
pub fn wait_until_gone() {
    own_thread::wait_until_gone(THREAD.load(Ordering::Acquire) as u32);
}

fn run(session: &Session, mut checkpoints: Option<Box<Checkpoints>>) -> Option<Box<Checkpoints>> {
    let interval = Duration::from_millis(session.config.interval_ms.max(1).into());
    let mut next_reading = Instant::now();
    let mut next_clock = Instant::now();
    let mut own_bytes_noted = 0;
    let mut resident_noted = (0, Instant::now());
    let mut resident_peak = ResidentPeak::default();
    while !STOPPING.load(Ordering::Acquire) {
        let wake_ups = WAKE_UPS.load(Ordering::Acquire);
        session.store.pack_waiting();
        session.store.check_mappings();
        if let Some(checkpoints) = checkpoints
            .as_mut()
            .filter(|checkpoints| checkpoints.is_due(session))
        {
            checkpoints.make(session);
        }
        let now = Instant::now();
        if now >= next_reading {
            // SAFETY: null, or a leaked box that only this thread frees, after this function returns.
            let resident = unsafe { RESIDENT.load(Ordering::Acquire).as_ref() };
            if let Some(bytes) = resident.and_then(Resident::bytes) {
                resident_peak.update(session, bytes);
                // An unchanged size is written ten times a second, to show that it was read.
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
                session::abandon("the process has reached its memory limit");
            }
            let own_bytes = own_memory::bytes() as u64;
            if own_bytes > own_bytes_noted + own_bytes_noted / 8 {
                own_bytes_noted = own_bytes;
                session.note(&Entry::OwnMemory { bytes: own_bytes });
            }
            next_reading += interval;
            // Read the time again: if this reading was late, the next one must not follow immediately.
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
            wait(wake_ups, pause);
        }
    }
    checkpoints
}

/// The largest resident size so far, with Heaptide's own memory at that time: a heap snapshot may have caused that peak.
#[derive(Default)]
struct ResidentPeak {
    bytes: u64,
    own_bytes_noted: u64,
}

impl ResidentPeak {
    fn update(&mut self, session: &Session, bytes: u64) {
        if bytes <= self.bytes {
            return;
        }
        self.bytes = bytes;
        let own_bytes = own_memory::bytes() as u64;
        // A growing program has a new peak at every reading; small differences are not worth an entry each.
        if own_bytes.abs_diff(self.own_bytes_noted) > self.own_bytes_noted / 8 {
            self.own_bytes_noted = own_bytes;
            session.note(&Entry::Memory {
                part: MemoryPart::OwnAtResidentPeak,
                bytes: own_bytes,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_keeper_that_starts_meanwhile_stay_open() {
        let open = || Box::into_raw(Box::new(Resident::open()));
        let (own, of_keeper) = (open(), open());
        let current = AtomicPtr::new(of_keeper);
        close_unless_replaced(&current, own);
        assert_eq!(current.load(Ordering::Acquire), of_keeper);
        // SAFETY: nothing has freed the box.
        assert!(unsafe { &*of_keeper }.bytes().is_some());
        close_unless_replaced(&current, of_keeper);
        assert!(current.load(Ordering::Acquire).is_null());
        // SAFETY: leaked above, and nothing has freed the box.
        drop(unsafe { Box::from_raw(own) });
    }
}
