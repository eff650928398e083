//! Threads that answer complete requests. A thread exists only while it answers, so that no idle thread is left at a fork.
//!
//! Their number is bounded; further requests wait. A client that does not read its response blocks a thread: when requests
//! wait, the connections that have made no progress for the longest time are closed.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::incoming::Complete;
use crate::lock;
use crate::response::Response;

const MAX_AT_ONCE: usize = 48;
const MAX_WAITING: usize = 80;
/// A client that reads nothing for this long loses its thread if another request waits.
const STALL_TIME: Duration = Duration::from_millis(250);

pub(super) struct Workers {
    state: Mutex<State>,
    one_ended: Condvar,
    begin: Instant,
}

#[derive(Default)]
struct State {
    active: Vec<Arc<Active>>,
    waiting: VecDeque<Complete>,
}

/// A connection whose request is being answered.
pub(super) struct Active {
    pub(super) connection: Connection,
    /// Milliseconds from the start of the server to the last progress of the response; 0 before the first byte.
    last_progress: AtomicU64,
    is_evicted: AtomicBool,
}

/// A complete request that has a thread.
pub(super) type Assigned = (crate::Request, Arc<Active>);

impl Workers {
    pub(super) fn new() -> Workers {
        Workers {
            state: Mutex::default(),
            one_ended: Condvar::new(),
            // The start is in the past, so that `now` is never 0: 0 means that the response has not begun.
            begin: Instant::now()
                .checked_sub(Duration::from_millis(1))
                .unwrap_or_else(Instant::now),
        }
    }

    /// Takes a request. Returns it if a new thread must answer it; otherwise it waits for a running thread.
    pub(super) fn submit(&self, complete: Complete) -> Option<Assigned> {
        let mut state = lock(&self.state);
        if state.active.len() < MAX_AT_ONCE {
            return Some(state.activate(complete));
        }
        state.waiting.push_back(complete);
        if state.waiting.len() > MAX_WAITING {
            let oldest = state.waiting.pop_front();
            drop(state);
            if let Some((_, connection)) = oldest {
                let sentence = "too many requests at once: try again in a moment";
                let response = Response::error(503, "Busy", sentence).with("Retry-After", "1");
                connection.send_at_once(response);
            }
        }
        None
    }

    /// Ends the work on a request. Returns the next waiting request, or `None` if the thread must end.
    pub(super) fn next(&self, done: &Arc<Active>) -> Option<Assigned> {
        let mut state = lock(&self.state);
        state.end(done);
        self.one_ended.notify_all();
        let next = state.waiting.pop_front();
        next.map(|complete| state.activate(complete))
    }

    /// Ends the work on a request, so that its connection closes.
    pub(super) fn end(&self, done: &Arc<Active>) {
        lock(&self.state).end(done);
        self.one_ended.notify_all();
    }

    /// Closes connections that do not read their responses, if requests wait. Returns whether requests wait.
    pub(super) fn make_room(&self) -> bool {
        let state = lock(&self.state);
        let now = self.now();
        let n_evicted = state.active.iter().filter(|one| one.is_evicted()).count();
        let n_needed = state.waiting.len().saturating_sub(n_evicted);
        let is_stalled = |active: &&Arc<Active>| {
            let last = active.last_progress.load(Ordering::SeqCst);
            let stalled = now.saturating_sub(last) >= STALL_TIME.as_millis() as u64;
            last > 0 && stalled && !active.is_evicted()
        };
        let mut stalled: Vec<&Arc<Active>> = state.active.iter().filter(is_stalled).collect();
        stalled.sort_by_key(|active| active.last_progress.load(Ordering::SeqCst));
        for active in stalled.into_iter().take(n_needed) {
            active.is_evicted.store(true, Ordering::SeqCst);
            // Wakes the thread that is blocked in a write.
            let _ = active.connection.shutdown(Shutdown::Both);
        }
        !state.waiting.is_empty()
    }

    /// Waits up to `timeout` until all requests are answered. Drops waiting requests.
    pub(super) fn finish(&self, timeout: Duration) {
        let mut state = lock(&self.state);
        state.waiting.clear();
        let _ = self
            .one_ended
            .wait_timeout_while(state, timeout, |state| !state.active.is_empty());
    }

    /// Returns the descriptors of all connections; none if another thread of the parent was changing the list at the
    /// fork.
    pub(super) fn fds(&self) -> Vec<RawFd> {
        let Ok(state) = self.state.try_lock() else {
            return Vec::new();
        };
        let active = state.active.iter().map(|active| &active.connection);
        let waiting = state.waiting.iter().map(|(_, connection)| connection);
        let all = active.chain(waiting);
        all.map(|connection| connection.as_fd().as_raw_fd())
            .collect()
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }
}

impl State {
    fn activate(&mut self, (request, connection): Complete) -> Assigned {
        let active = Arc::new(Active {
            connection,
            last_progress: AtomicU64::new(0),
            is_evicted: AtomicBool::new(false),
        });
        self.active.push(active.clone());
        (request, active)
    }

    fn end(&mut self, done: &Arc<Active>) {
        self.active.retain(|active| !Arc::ptr_eq(active, done));
    }
}

impl Active {
    fn is_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::SeqCst)
    }
}

/// Writes a response and notes the progress.
pub(super) struct ResponseWriter<'a> {
    pub(super) workers: &'a Workers,
    pub(super) active: &'a Active,
}

impl Write for ResponseWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let note = || {
            let now = self.workers.now();
            self.active.last_progress.store(now, Ordering::SeqCst);
        };
        note();
        let n_written = (&mut &self.active.connection).write(bytes)?;
        note();
        Ok(n_written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
