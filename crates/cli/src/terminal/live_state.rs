//! The state of the live view: sort order, thread, jobs, search, and whether it is paused.

use heaptide_analysis::model::Live;
use heaptide_analysis::model::live::{LiveChoice, LiveOrder, LiveRow};
use ratatui::crossterm::event::KeyCode;

use super::input::Search;
use crate::live::{JobOptions, Update};

/// The action of the view after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    Stay,
    Quit,
}

#[derive(Default)]
pub(super) struct LiveState {
    /// The update on the screen; older than `newest` while paused.
    shown: Update,
    /// The newest update.
    newest: Update,
    pub is_paused: bool,
    pub order: LiveOrder,
    /// A thread by ID and name, because indexes can change.
    thread: Option<(u32, String)>,
    /// The job options of the command line; the key `b` changes `by_job`.
    pub jobs: JobOptions,
    /// The name of a job that keys chose; the empty name is memory outside of jobs.
    job: Option<String>,
    pub search: Search,
    pub chosen: usize,
    /// Whether to show the output of the program instead of functions.
    pub shows_output: bool,
}

impl LiveState {
    pub(super) fn new(jobs: JobOptions) -> LiveState {
        LiveState {
            jobs,
            ..LiveState::default()
        }
    }

    pub(super) fn take(&mut self, update: Update) {
        if !self.is_paused {
            self.shown = update.clone();
        }
        self.newest = update;
    }

    pub(super) fn live(&self) -> Option<&Live> {
        self.shown.live.as_deref()
    }

    pub(super) fn update(&self) -> &Update {
        &self.newest
    }

    /// Returns the index of the chosen thread; `None` for all threads.
    pub(super) fn thread(&self) -> Option<u32> {
        let (id, name) = self.thread.as_ref()?;
        let threads = &self.live()?.threads;
        let index = threads
            .iter()
            .position(|thread| thread.os_id == *id && thread.name == *name)?;
        Some(index as u32)
    }

    /// Returns the indexes of the jobs to show; `None` for all memory.
    fn chosen_jobs(&self, live: &Live) -> Option<Vec<u32>> {
        let Some(name) = &self.job else {
            return self.jobs.choose(live);
        };
        let jobs = live.jobs.iter().zip(0..);
        let named = jobs.filter(|(job, _)| job.name == *name);
        Some(named.map(|(_, at)| at).collect())
    }

    /// Returns the functions or jobs in display order.
    pub(super) fn rows(&self) -> Vec<LiveRow<'_>> {
        let Some(live) = self.live() else {
            return Vec::new();
        };
        let choice = LiveChoice {
            thread: self.thread(),
            jobs: self.chosen_jobs(live),
        };
        let mut rows = match self.jobs.by_job {
            true => live.job_rows(&choice, self.order),
            false => live.rows(&choice, self.order),
        };
        rows.retain(|row| self.search.matches(&[row.function, row.file]));
        rows
    }

    /// Handles a key. `n_rows` fit on the screen.
    pub(super) fn key(&mut self, key: KeyCode, n_rows: usize) -> Reaction {
        if self.search.is_typing() {
            self.search.key(key);
            self.chosen = 0;
            return Reaction::Stay;
        }
        let page = n_rows.saturating_sub(1).max(1) as isize;
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-page),
            KeyCode::PageDown => self.step(page),
            KeyCode::Home => self.step(isize::MIN),
            KeyCode::End => self.step(isize::MAX),
            KeyCode::Char('t') => self.order = LiveOrder::Total,
            KeyCode::Char('o') => self.order = LiveOrder::Own,
            KeyCode::Char('a') => self.order = LiveOrder::Count,
            KeyCode::Char('>') | KeyCode::Right => self.next_thread(1),
            KeyCode::Char('<') | KeyCode::Left => self.next_thread(-1),
            KeyCode::Char('m') => {
                self.thread = None;
                self.job = None;
            }
            KeyCode::Char(']') => self.next_job(1),
            KeyCode::Char('[') => self.next_job(-1),
            KeyCode::Char('b') => {
                self.jobs.by_job = !self.jobs.by_job;
                self.chosen = 0;
            }
            KeyCode::Char('/') => self.search.open(),
            KeyCode::Char('p') => self.shows_output = !self.shows_output,
            KeyCode::Char(' ') => self.pause(),
            KeyCode::Esc if self.search.is_on() => self.search.clear(),
            KeyCode::Esc | KeyCode::Char('q') => return Reaction::Quit,
            _ => {}
        }
        Reaction::Stay
    }

    fn pause(&mut self) {
        self.is_paused = !self.is_paused;
        if !self.is_paused {
            self.shown = self.newest.clone();
        }
    }

    fn step(&mut self, by: isize) {
        let last = self.rows().len().saturating_sub(1);
        self.chosen = self.chosen.saturating_add_signed(by).min(last);
    }

    /// Cycles through all threads and their sum.
    fn next_thread(&mut self, by: isize) {
        let Some(threads) = self.live().map(|live| live.threads.clone()) else {
            return;
        };
        let n = threads.len() + 1;
        let now = self.thread().map_or(0, |index| index as usize + 1);
        let next = (now as isize + by).rem_euclid(n as isize) as usize;
        let thread = next.checked_sub(1).map(|index| &threads[index]);
        self.thread = thread.map(|thread| (thread.os_id, thread.name.clone()));
        self.chosen = 0;
    }

    /// Cycles through all jobs and their sum, in alphabetical order, because sizes change.
    fn next_job(&mut self, by: isize) {
        let Some(live) = self.live() else { return };
        let mut names: Vec<&String> = live.jobs.iter().map(|job| &job.name).collect();
        names.sort_unstable();
        let n = names.len() + 1;
        let now = self.job.as_ref().and_then(|name| {
            let at = names.iter().position(|it| *it == name);
            at.map(|at| at + 1)
        });
        let next = (now.unwrap_or(0) as isize + by).rem_euclid(n as isize) as usize;
        self.job = next.checked_sub(1).map(|at| names[at].clone());
        self.chosen = 0;
    }

    /// Returns the title of the table: thread, order, jobs and search.
    pub(super) fn describe(&self) -> String {
        let order = match self.order {
            LiveOrder::Total => "total memory",
            LiveOrder::Own => "own memory",
            LiveOrder::Count => "number of blocks",
        };
        let thread = match (&self.thread, self.live()) {
            (Some((id, name)), _) if name.is_empty() => format!("thread {id}"),
            (Some((id, name)), _) => format!("thread {name} ({id})"),
            (None, Some(live)) if live.threads.len() != 1 => {
                format!("all {} threads", live.threads.len())
            }
            (None, _) => "one thread".into(),
        };
        let mut text = format!("{thread}, by {order}");
        match &self.job {
            Some(name) if name.is_empty() => text += ", outside of jobs",
            Some(name) => text += &format!(", of job {name}"),
            None if self.jobs.patterns.is_empty() => {}
            None => text += &format!(", of jobs {}", self.jobs.patterns.join(", ")),
        }
        if self.search.is_on() {
            text += &format!(", with “{}”", self.search.text());
        }
        text
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::sync::Arc;

    use heaptide_analysis::model::live::{Curve, Held, LiveFunction, LiveJob, LiveThread};

    pub fn update(number: u64) -> Update {
        let function = |name: &str, held: &[(u32, u64, u64, u64)]| LiveFunction {
            function: name.into(),
            file: "/srv/job.py".into(),
            held: held
                .iter()
                .map(|&(thread, own_bytes, total_bytes, count)| Held {
                    thread,
                    // All memory of the second thread belongs to a job.
                    job: thread,
                    own_bytes,
                    total_bytes,
                    count,
                })
                .collect(),
        };
        let thread = |os_id, name: &str| LiveThread {
            os_id,
            name: name.into(),
        };
        let job = |name: &str, n_running, thread, bytes, count| LiveJob {
            name: name.into(),
            n_running,
            held: vec![Held {
                thread,
                job: thread,
                own_bytes: bytes,
                total_bytes: bytes,
                count,
            }],
        };
        Update {
            number,
            live: Some(Arc::new(Live {
                pid: 4711,
                command: vec!["job.py".into()],
                elapsed_ns: 12_300_000_000,
                heap_bytes: 10_000_000 * number,
                n_blocks: 17,
                peak_bytes: 20_000_000,
                resident_bytes: Some(30_000_000),
                threads: vec![thread(4711, "MainThread"), thread(4712, "worker")],
                jobs: vec![
                    job("", 0, 0, 9_000_000, 10),
                    job("import", 2, 1, 1_000_000, 7),
                ],
                functions: vec![
                    function("main", &[(0, 0, 9_000_000, 10)]),
                    function(
                        "load",
                        &[(0, 9_000_000, 9_000_000, 10), (1, 500_000, 500_000, 1)],
                    ),
                    function("work", &[(1, 500_000, 1_000_000, 7)]),
                ],
                curve: Curve {
                    bin_ns: 1_000_000_000,
                    heap: (0..12).map(|n| Some(n * 1_000_000)).collect(),
                    resident: vec![Some(30_000_000); 12],
                },
                ..Live::default()
            })),
            ..Update::default()
        }
    }

    fn names(state: &LiveState) -> Vec<&str> {
        state.rows().iter().map(|row| row.function).collect()
    }

    fn press(state: &mut LiveState, keys: &str) {
        for key in keys.chars() {
            state.key(KeyCode::Char(key), 10);
        }
    }

    #[test]
    fn functions_are_sorted_searched_and_filtered_by_thread() {
        let mut state = LiveState::default();
        state.take(update(1));
        assert_eq!(names(&state), ["load", "main", "work"]);
        press(&mut state, "a");
        assert_eq!(names(&state), ["load", "main", "work"]);
        press(&mut state, "o>>");
        assert_eq!(state.describe(), "thread worker (4712), by own memory");
        assert_eq!(names(&state), ["work", "load"]);
        press(&mut state, "t>");
        assert_eq!(state.describe(), "all 2 threads, by total memory");
        press(&mut state, "/wOr");
        assert_eq!(names(&state), ["work"]);
        assert_eq!(state.key(KeyCode::Esc, 10), Reaction::Stay);
        assert_eq!(names(&state).len(), 3);
        assert_eq!(state.key(KeyCode::Char('q'), 10), Reaction::Quit);
    }

    #[test]
    fn keys_list_jobs_and_choose_one() {
        let mut state = LiveState::default();
        state.take(update(1));
        press(&mut state, "b");
        assert_eq!(names(&state), ["<no job>", "import"]);
        press(&mut state, "b]]");
        assert_eq!(names(&state), ["work", "load"]);
        assert_eq!(
            state.describe(),
            "all 2 threads, by total memory, of job import"
        );
        press(&mut state, "[");
        assert_eq!(names(&state), ["load", "main"]);
        press(&mut state, "m");
        assert_eq!(names(&state).len(), 3);
    }

    #[test]
    fn pattern_of_the_command_line_chooses_jobs() {
        let mut state = LiveState::default();
        state.jobs.patterns = vec!["imp*".into()];
        state.take(update(1));
        assert_eq!(names(&state), ["work", "load"]);
        state.jobs.patterns = vec!["export".into()];
        assert!(names(&state).is_empty());
    }

    #[test]
    fn view_is_frozen_while_paused_and_catches_up_afterwards() {
        let mut state = LiveState::default();
        state.take(update(1));
        press(&mut state, " ");
        state.take(update(2));
        assert_eq!(state.live().map(|live| live.heap_bytes), Some(10_000_000));
        assert_eq!(state.update().number, 2);
        press(&mut state, " ");
        assert_eq!(state.live().map(|live| live.heap_bytes), Some(20_000_000));
    }
}
