//! The thread that checks for a signal, the control file and the size of the capture, by calling a Python function. It also
//! reads the memory in use, without the GIL, and calls the function when a threshold is crossed.
//!
//! It is one of Heaptide's own threads: it is not recorded, and `threading` does not list it. It ends before the
//! process forks, because Python warns about forks in processes with several threads. It also ends before the
//! interpreter is finalised, so it never waits for the GIL of an interpreter that is gone.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use heaptide_agent::host::pressure::{self, Gauge, Pressure};
use heaptide_agent::host::{own_thread, sys};
use heaptide_agent::record::threads::{OwnPython, Unrecorded};
use heaptide_agent::session::fork;
use pyo3::prelude::*;

/// Address space of the thread's stack; only the used part takes memory. Python code runs on it.
const STACK_BYTES: usize = 1 << 20;
/// A fork waits at most this long for a running check. The forking thread may hold a lock that the check needs.
const MAX_WAIT_FOR_FORK: Duration = Duration::from_secs(1);
/// The program's exit waits at most this long for a running check, which normally takes milliseconds.
const MAX_WAIT_FOR_EXIT: Duration = Duration::from_secs(10);

/// Time between two readings of the memory in use, if a threshold is set.
const PRESSURE_PAUSE: Duration = Duration::from_millis(20);

/// The last crossing of the threshold that Python has not read yet. Locked only briefly, and never while the process
/// forks, because the thread that writes it has ended then.
static PRESSURE: Mutex<Option<Pressure>> = Mutex::new(None);

/// Locked only with the GIL held, so that a forked child finds the lock free.
static WATCHER: Mutex<Option<Watcher>> = Mutex::new(None);

struct Watcher {
    check: Arc<Py<PyAny>>,
    pause: Duration,
    /// `None` while the process forks.
    running: Option<Running>,
}

struct Running {
    thread: own_thread::Handle,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// The kernel's number of the thread.
    number: AtomicU32,
}

#[derive(Default)]
struct State {
    is_stopping: bool,
    has_ended: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `is_over` or for at most `time`. Returns whether `is_over`.
    fn wait(&self, time: Duration, is_over: impl Fn(&State) -> bool) -> bool {
        let deadline = Instant::now() + time;
        let mut state = self.state();
        while !is_over(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }
}

/// Time until the thread reads the memory in use again, or until its next check.
fn step(pause: Duration) -> Duration {
    match pressure::is_wanted() {
        true => pause.min(PRESSURE_PAUSE),
        false => pause,
    }
}

/// Whether the check is due, because its time has come or memory is under pressure. Takes no GIL.
fn is_check_due(gauge: &mut Option<Gauge>, next_check: Instant) -> bool {
    if pressure::is_wanted() {
        let found = gauge.get_or_insert_with(Gauge::open).poll();
        if let Some(found) = found {
            *PRESSURE.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            return true;
        }
    }
    Instant::now() >= next_check
}

/// Watches for memory pressure from the watcher thread: at `thousandths` of the control group's limit, or at resident `bytes`.
/// Returns whether the threshold can be reached: `false` if there is no control group with a limit.
#[pyfunction]
#[pyo3(signature = (*, thousandths = 0, bytes = 0))]
pub fn watch_pressure(thousandths: u64, bytes: u64) -> bool {
    let _unrecorded = Unrecorded::begin();
    if bytes > 0 {
        pressure::watch_bytes(bytes);
        return true;
    }
    let has_limit = pressure::has_limit();
    if has_limit {
        pressure::watch_share(thousandths);
    }
    has_limit
}

/// Returns the last crossing of the threshold, once: used bytes, limit and threshold.
#[pyfunction]
pub fn take_pressure() -> Option<(u64, u64, u64)> {
    let taken = PRESSURE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()?;
    Some((taken.used_bytes, taken.limit_bytes, taken.threshold_bytes))
}

fn watcher() -> MutexGuard<'static, Option<Watcher>> {
    WATCHER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watcher {
    /// Starts the thread, unless it is running.
    fn resume(&mut self) -> std::io::Result<()> {
        if self.running.is_some() {
            return Ok(());
        }
        let shared = Arc::new(Shared::default());
        let (own, check, pause) = (shared.clone(), self.check.clone(), self.pause);
        let work = move || {
            own.number.store(sys::thread_id(), Ordering::SeqCst);
            let mut gauge = None;
            let mut next_check = Instant::now() + pause;
            while !own.wait(step(pause), |state| state.is_stopping) {
                if is_check_due(&mut gauge, next_check) {
                    let _own = OwnPython::begin();
                    // The function reports its own failures, and returns nothing.
                    Python::try_attach(|py| drop(check.call0(py)));
                    next_check = Instant::now() + pause;
                }
            }
            let _own = OwnPython::begin();
            // Dropping the last reference to the function needs the GIL.
            Python::try_attach(|_| drop(check));
            own.change(|state| state.has_ended = true);
            std::ptr::null_mut()
        };
        let thread = own_thread::spawn(STACK_BYTES, Box::new(work))?;
        self.running = Some(Running { thread, shared });
        Ok(())
    }
}

impl Running {
    /// Ends the thread after its current check, for which it waits at most `time`.
    fn stop(self, py: Python<'_>, time: Duration) {
        self.shared.change(|state| state.is_stopping = true);
        if sys::thread_id() == self.shared.number.load(Ordering::SeqCst) {
            // The check itself exits or forks, so it cannot wait for its own end.
            self.thread.detach();
            return;
        }
        py.detach(|| {
            if self.shared.wait(time, |state| state.has_ended) {
                self.thread.join();
                own_thread::wait_until_gone(self.shared.number.load(Ordering::SeqCst));
            } else {
                self.thread.detach();
            }
        });
    }
}

/// Calls `check` repeatedly on a separate thread, with pauses. Does nothing if that thread is running.
#[pyfunction]
pub fn start_watcher(check: Py<PyAny>, pause_ms: u64) -> PyResult<()> {
    let _unrecorded = Unrecorded::begin();
    let mut watcher = watcher();
    let started = watcher.get_or_insert_with(|| Watcher {
        check: Arc::new(check),
        pause: Duration::from_millis(pause_ms),
        running: None,
    });
    Ok(started.resume()?)
}

/// Ends the thread before Python forks.
#[pyfunction]
pub fn pause_watcher(py: Python<'_>) {
    let _unrecorded = Unrecorded::begin();
    let running = watcher()
        .as_mut()
        .and_then(|watcher| watcher.running.take());
    if let Some(running) = running {
        running.stop(py, MAX_WAIT_FOR_FORK);
    }
}

/// Starts the thread again in the parent after a fork, once Python has counted the threads.
#[pyfunction]
pub fn resume_watcher() {
    extern "C" fn resume(_: *mut c_void) -> c_int {
        let _unrecorded = Unrecorded::begin();
        // If the thread cannot be started now, the next fork tries again.
        if let Some(watcher) = watcher().as_mut() {
            drop(watcher.resume());
        }
        0
    }
    // SAFETY: Python calls this function as an `after_in_parent` hook, with the GIL and without a Python frame.
    // `resume` ignores its argument and raises nothing.
    unsafe { fork::resume_after_thread_count(resume) };
}

/// Ends the thread permanently: the program exits, or this is a forked child, which may start its own thread.
#[pyfunction]
pub fn stop_watcher(py: Python<'_>) {
    let _unrecorded = Unrecorded::begin();
    let stopped = watcher().take();
    if let Some(running) = stopped.and_then(|watcher| watcher.running) {
        running.stop(py, MAX_WAIT_FOR_EXIT);
    }
}
