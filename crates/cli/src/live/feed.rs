//! The newest numbers of a program, read by a background thread so that no caller waits for a read.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use heaptide_analysis::LiveReader;
use heaptide_analysis::model::Live;
use heaptide_capture::{OpenError, OpenFailure};

/// The minimum pause between two reads of the file, as a time and as a multiple of the duration of a read.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_FACTOR: u32 = 2;
/// The pause between two attempts to open a file that does not exist yet.
const SHORT_PAUSE: Duration = Duration::from_millis(20);

/// The newest numbers and the state of the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Update {
    /// The sequence number.
    pub number: u64,
    /// `None` until recording starts.
    pub live: Option<Arc<Live>>,
    /// The number of updates that did not reach this viewer.
    pub n_missed: u64,
    /// Whether the program has ended, with or without completing its recording.
    pub is_gone: bool,
    /// The reason why there are no more updates.
    pub failure: Option<String>,
}

impl Update {
    /// Whether this is the last update.
    pub(crate) fn is_last(&self) -> bool {
        self.is_gone || self.failure.is_some()
    }
}

/// A source of updates.
#[derive(Default)]
pub(crate) struct Feed {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    update: Update,
    stop: bool,
}

impl Feed {
    /// Follows a capture. `expected` is the ID of the process that will write it. With it, the capture may not exist
    /// yet, and a capture of another process at the same path is ignored until the expected process replaces it.
    /// `is_over` returns whether a process has ended.
    pub(crate) fn follow(
        path: &Path,
        expected: Option<u32>,
        is_over: impl Fn(u32) -> bool + Send + 'static,
    ) -> Feed {
        let path = path.to_owned();
        Feed::spawn(move |writer| {
            let mut reader = loop {
                match (LiveReader::open(&path), expected) {
                    (Ok(reader), None) => break reader,
                    (Ok(reader), Some(pid)) if reader.pid() == pid => break reader,
                    (Err(error), expected) if expected.is_none() || !is_not_yet_written(&error) => {
                        return writer.put(|update| update.failure = Some(error.to_string()));
                    }
                    (_, expected) => {
                        if is_over(expected.unwrap_or(0)) {
                            return writer.put(|update| update.is_gone = true);
                        }
                        if writer.sleep(SHORT_PAUSE) {
                            return;
                        }
                    }
                }
            };
            loop {
                let began = Instant::now();
                // Checked before reading: if the program has ended, the file is complete.
                let is_over = is_over(reader.pid());
                let live = Arc::new(reader.refresh(is_over));
                let is_gone = is_over || live.is_ended;
                writer.put(|update| {
                    update.number += 1;
                    update.live = Some(live);
                    update.is_gone = is_gone;
                });
                if is_gone || writer.sleep(PAUSE.max(began.elapsed() * PAUSE_FACTOR)) {
                    return;
                }
            }
        })
    }

    /// Runs `work` on a new thread.
    pub(super) fn spawn(work: impl FnOnce(Writer) + Send + 'static) -> Feed {
        let feed = Feed::default();
        let writer = Writer(Arc::clone(&feed.shared));
        let spawned = thread::Builder::new()
            .name("heaptide-feed".into())
            .spawn(move || work(writer));
        if let Err(error) = spawned {
            let failure =
                format!("cannot start a thread ({error}): close other programs and try again");
            feed.shared.lock().update.failure = Some(failure);
        }
        feed
    }

    /// Returns the newest update.
    pub(crate) fn newest(&self) -> Update {
        self.shared.lock().update.clone()
    }

    /// Waits up to `limit` for an update after `number`.
    pub(crate) fn wait_newer(&self, number: u64, limit: Duration) -> Update {
        self.wait_until(limit, |update| update.number > number || update.is_last())
    }

    /// Waits up to `limit` for the last update.
    pub(crate) fn wait_last(&self, limit: Duration) -> Update {
        self.wait_until(limit, Update::is_last)
    }

    fn wait_until(&self, limit: Duration, is_enough: impl Fn(&Update) -> bool) -> Update {
        let until = Instant::now() + limit;
        let mut state = self.shared.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if is_enough(&state.update) || left.is_zero() {
                return state.update.clone();
            }
            state = self.shared.wait(state, left);
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
    }
}

/// Whether the program has not written the header yet.
fn is_not_yet_written(error: &OpenError) -> bool {
    matches!(
        error.reason,
        OpenFailure::NotFound | OpenFailure::Empty | OpenFailure::DamagedHeader
    )
}

/// The writing end of a feed.
pub(super) struct Writer(Arc<Shared>);

impl Writer {
    pub(super) fn put(&self, change: impl FnOnce(&mut Update)) {
        change(&mut self.0.lock().update);
        self.0.changed.notify_all();
    }

    /// Waits for `pause`. Returns true if the feed was dropped.
    pub(super) fn sleep(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut state = self.0.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if state.stop || left.is_zero() {
                return state.stop;
            }
            state = self.0.wait(state, left);
        }
    }
}

// Without this, a viewer would wait for ever for updates of a thread that panicked.
impl Drop for Writer {
    fn drop(&mut self) {
        if thread::panicking() {
            let failure =
                "the live view failed while it read the recording: report the message above";
            self.put(|update| update.failure = Some(failure.into()));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, State>, limit: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, limit);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
