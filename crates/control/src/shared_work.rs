//! Work that several clients request at the same time is done once, on the thread of the first, and cancelled if all have gone.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::lock;

/// The interval in which a client that waits for another's work checks whether it is still connected.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) struct SharedWork<K, V> {
    in_progress: Mutex<Vec<(K, Arc<Work<V>>)>>,
}

struct Work<V> {
    state: Mutex<State<V>>,
    is_done: Condvar,
}

struct State<V> {
    /// The clients that wait besides the one whose thread does the work.
    n_followers: usize,
    has_begun: bool,
    result: Option<V>,
}

impl<K, V> Default for SharedWork<K, V> {
    fn default() -> SharedWork<K, V> {
        let in_progress = Mutex::new(Vec::new());
        SharedWork { in_progress }
    }
}

impl<K: PartialEq, V: Clone> SharedWork<K, V> {
    /// Returns the result of `work`, or of the same work of another client. Returns `None` if the client has gone while
    /// it waited for another's work.
    ///
    /// `work` gets a function to call when it begins to read its input, and one that returns whether to cancel. If the input
    /// `is_changing`, work that has begun is not shared.
    pub(crate) fn run(
        &self,
        key: K,
        is_changing: bool,
        is_gone: &dyn Fn() -> bool,
        work: impl FnOnce(&dyn Fn(), &dyn Fn() -> bool) -> V,
    ) -> Option<V> {
        let mut in_progress = lock(&self.in_progress);
        let same = in_progress
            .iter()
            .find(|(other, work)| *other == key && !(is_changing && lock(&work.state).has_begun));
        if let Some((_, work)) = same {
            let work = work.clone();
            lock(&work.state).n_followers += 1;
            drop(in_progress);
            return work.wait(is_gone);
        }
        let own = Arc::new(Work {
            state: Mutex::new(State {
                n_followers: 0,
                has_begun: false,
                result: None,
            }),
            is_done: Condvar::new(),
        });
        in_progress.push((key, own.clone()));
        drop(in_progress);
        let begin = || lock(&own.state).has_begun = true;
        let result = work(&begin, &|| is_gone() && self.abandon(&own));
        self.remove(&mut lock(&self.in_progress), &own);
        lock(&own.state).result = Some(result.clone());
        own.is_done.notify_all();
        Some(result)
    }

    /// Returns whether no client waits for the work any more. Then no further client can join it.
    fn abandon(&self, work: &Arc<Work<V>>) -> bool {
        let mut in_progress = lock(&self.in_progress);
        let is_abandoned = lock(&work.state).n_followers == 0;
        if is_abandoned {
            self.remove(&mut in_progress, work);
        }
        is_abandoned
    }

    fn remove(&self, in_progress: &mut Vec<(K, Arc<Work<V>>)>, work: &Arc<Work<V>>) {
        in_progress.retain(|(_, other)| !Arc::ptr_eq(other, work));
    }
}

impl<V: Clone> Work<V> {
    fn wait(&self, is_gone: &dyn Fn() -> bool) -> Option<V> {
        loop {
            let state = lock(&self.state);
            let waited = self
                .is_done
                .wait_timeout_while(state, CHECK_INTERVAL, |state| state.result.is_none());
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.result.is_some() {
                return state.result.clone();
            }
            if is_gone() {
                state.n_followers -= 1;
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    type Shared = SharedWork<&'static str, usize>;

    /// Waits until `shared` has this number of followers.
    fn wait_for_followers(shared: &Shared, n_expected: usize) {
        let count = || -> usize {
            let in_progress = lock(&shared.in_progress);
            in_progress
                .iter()
                .map(|(_, work)| lock(&work.state).n_followers)
                .sum()
        };
        while count() != n_expected {
            std::thread::yield_now();
        }
    }

    #[test]
    fn identical_work_is_done_once_for_all_clients() {
        let shared = Shared::default();
        let n_done = AtomicUsize::new(0);
        let (finish, finished) = channel::<()>();
        let finished = Mutex::new(finished);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                shared.run("a", false, &|| false, |begin, _| {
                    begin();
                    let _ = lock(&finished).recv();
                    n_done.fetch_add(1, Ordering::SeqCst) + 1
                })
            });
            while lock(&shared.in_progress).is_empty() {
                std::thread::yield_now();
            }
            let more: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| shared.run("a", false, &|| false, |_, _| 99)))
                .collect();
            wait_for_followers(&shared, 3);
            assert_eq!(shared.run("b", false, &|| false, |_, _| 7), Some(7));
            finish.send(()).unwrap();
            assert_eq!(first.join().unwrap(), Some(1));
            assert!(more.into_iter().all(|one| one.join().unwrap() == Some(1)));
        });
        assert!(lock(&shared.in_progress).is_empty());
    }

    #[test]
    fn work_on_changing_input_is_shared_only_until_it_begins() {
        let shared = Shared::default();
        let result = shared.run("a", true, &|| false, |begin, _| {
            begin();
            // The same thread can request the same again, because the work in progress is not shared.
            shared.run("a", true, &|| false, |_, _| 5).unwrap() + 1
        });
        assert_eq!(result, Some(6));
    }

    #[test]
    fn work_is_cancelled_only_when_all_clients_have_gone() {
        let shared = Shared::default();
        let (first_left, second_left) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let leader = scope.spawn(|| {
                let is_gone = || first_left.load(Ordering::SeqCst);
                shared.run("a", false, &is_gone, |_, is_cancelled| {
                    let mut n_checks = 0;
                    while !is_cancelled() {
                        n_checks += usize::from(first_left.load(Ordering::SeqCst));
                        if n_checks == 10 {
                            // The work continued although its own client had gone.
                            second_left.store(true, Ordering::SeqCst);
                        }
                        std::thread::yield_now();
                    }
                    n_checks
                })
            });
            while lock(&shared.in_progress).is_empty() {
                std::thread::yield_now();
            }
            let follower = scope
                .spawn(|| shared.run("a", false, &|| second_left.load(Ordering::SeqCst), |_, _| 0));
            wait_for_followers(&shared, 1);
            first_left.store(true, Ordering::SeqCst);
            assert_eq!(follower.join().unwrap(), None);
            assert!(leader.join().unwrap() >= Some(10));
        });
    }
}
