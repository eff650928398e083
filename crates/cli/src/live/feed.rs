//! The newest numbers of a program, from a thread that does the reading so that nobody else waits for it.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use heaptide_analysis::LiveReader;
use heaptide_analysis::model::Live;
use heaptide_capture::{OpenError, OpenFailure};

/// Between two looks at the file, at least; and this many times as long as a look takes.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_FACTOR: u32 = 2;
/// Between two looks for a file that is not there yet.
const SHORT_PAUSE: Duration = Duration::from_millis(20);

/// What is known at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Update {
    /// Counts the updates there were.
    pub number: u64,
    /// `None` until the program has begun to record.
    pub live: Option<Arc<Live>>,
    /// Updates that were made and never came here.
    pub n_missed: u64,
    /// The program is not there any more, whether it ended its recording in order or not.
    pub is_gone: bool,
    /// Why there will be no more numbers.
    pub failure: Option<String>,
}

impl Update {
    /// Nothing more will come.
    pub(crate) fn is_last(&self) -> bool {
        self.is_gone || self.failure.is_some()
    }
}

/// Where updates are put and taken from.
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
    /// Follows a capture. If it is to be that of process `expected` it need not exist yet, and one of another process,
    /// which this one is about to replace, is not taken for it. `is_over` tells whether a process is gone.
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
                    (Err(error), expected) if expected.is_none() || !is_unborn(&error) => {
                        return writer.put(|update| update.failure = Some(error.to_string()));
                    }
                    (_, expected) => {
                        if is_over(expected.unwrap_or(0)) {
                            return writer.put(|update| update.is_gone = true);
                        }
                        if writer.rest(SHORT_PAUSE) {
                            return;
                        }
                    }
                }
            };
            loop {
                let began = Instant::now();
                // Asked first: what a program that is gone has written is all in the file.
                let is_over = is_over(reader.pid());
                let live = Arc::new(reader.refresh(is_over));
                let is_gone = is_over || live.is_ended;
                writer.put(|update| {
                    update.number += 1;
                    update.live = Some(live);
                    update.is_gone = is_gone;
                });
                if is_gone || writer.rest(PAUSE.max(began.elapsed() * PAUSE_FACTOR)) {
                    return;
                }
            }
        })
    }

    /// Runs `work` on a thread of its own.
    pub(super) fn spawn(work: impl FnOnce(Writer) + Send + 'static) -> Feed {
        let feed = Feed::default();
        let writer = Writer(Arc::clone(&feed.shared));
        let spawned = thread::Builder::new()
            .name("heaptide-feed".into())
            .spawn(move || work(writer));
        if let Err(error) = spawned {
            let failure = format!("no thread could be started ({error}): end something else first");
            feed.shared.lock().update.failure = Some(failure);
        }
        feed
    }

    /// What is known now.
    pub(crate) fn newest(&self) -> Update {
        self.shared.lock().update.clone()
    }

    /// Waits until there is something newer than update `number`, at most `limit`.
    pub(crate) fn wait_newer(&self, number: u64, limit: Duration) -> Update {
        self.wait_until(limit, |update| update.number > number || update.is_last())
    }

    /// Waits for the last update, at most `limit`.
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

/// A file that a program has not written its first bytes to.
fn is_unborn(error: &OpenError) -> bool {
    matches!(
        error.reason,
        OpenFailure::NotFound | OpenFailure::Empty | OpenFailure::DamagedHeader
    )
}

/// The end of a feed at which updates are put in.
pub(super) struct Writer(Arc<Shared>);

impl Writer {
    pub(super) fn put(&self, change: impl FnOnce(&mut Update)) {
        change(&mut self.0.lock().update);
        self.0.changed.notify_all();
    }

    /// Waits for so long; true if nobody wants updates any more.
    pub(super) fn rest(&self, pause: Duration) -> bool {
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

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, State>, limit: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, limit);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
