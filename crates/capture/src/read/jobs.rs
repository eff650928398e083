//! The jobs of a capture, as the registry describes them.
//!
//! A capture may have a hundred thousand jobs, so each takes little memory: names, errors and sets of labels are stored
//! once.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::registry::{JobBegan, JobEnded, Outcome, labels};

/// One job. [`Jobs`] has its texts.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct JobInfo {
    pub number: u32,
    pub name_number: u32,
    /// The enclosing job; 0 if there is none.
    pub parent: u32,
    /// Operating-system id of the thread in which it began.
    pub thread: u32,
    /// Clock units; `ended` is `None` while it runs.
    pub began: u64,
    pub ended: Option<u64>,
    /// Nanoseconds since 1970.
    pub began_unix_ns: u64,
    pub ended_unix_ns: u64,
    pub outcome: Outcome,
    /// Range of its key in [`Jobs::keys`].
    key: Option<(u32, NonZeroU32)>,
    name: u32,
    error: u32,
    labels: u32,
}

/// All jobs of a capture.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    /// By number, ascending.
    all: Vec<JobInfo>,
    /// The keys of all jobs, which usually differ, one after the other.
    keys: String,
    /// Names, types of exceptions, and sets of labels.
    texts: Vec<Arc<[u8]>>,
    index: BTreeMap<Arc<[u8]>, u32>,
}

impl Jobs {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// All jobs, by number.
    pub fn iter(&self) -> impl Iterator<Item = &JobInfo> {
        self.all.iter()
    }

    pub fn get(&self, number: u32) -> Option<&JobInfo> {
        self.find(number).ok().map(|at| &self.all[at])
    }

    fn find(&self, number: u32) -> Result<usize, usize> {
        self.all.binary_search_by_key(&number, |job| job.number)
    }

    /// Names are shown, not compared: bytes that are not UTF-8 are replaced.
    pub fn name(&self, job: &JobInfo) -> Cow<'_, str> {
        String::from_utf8_lossy(self.text(job.name))
    }

    /// The key, which distinguishes jobs of the same name; `None` if the job has none.
    pub fn key(&self, job: &JobInfo) -> Option<&str> {
        let (first, end) = job.key?;
        self.keys.get(first as usize..end.get() as usize - 1)
    }

    /// The type of the exception; empty if there was none.
    pub fn error(&self, job: &JobInfo) -> Cow<'_, str> {
        String::from_utf8_lossy(self.text(job.error))
    }

    pub fn labels(&self, job: &JobInfo) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        labels(self.text(job.labels))
            .map(|(key, value)| (String::from_utf8_lossy(key), String::from_utf8_lossy(value)))
    }

    /// Returns a job whose name has this number in event records. `None` for an unknown number, and for 0, which
    /// several names share.
    pub fn of_name_number(&self, name_number: u32) -> Option<&JobInfo> {
        let mut jobs = self.iter();
        jobs.find(|job| name_number != 0 && job.name_number == name_number)
    }

    /// Number 0 is the empty text.
    fn text(&self, number: u32) -> &[u8] {
        let at = (number as usize).checked_sub(1);
        at.and_then(|at| self.texts.get(at))
            .map_or(&[], |text| text)
    }

    fn number_of(&mut self, text: &[u8]) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&known) = self.index.get(text) {
            return known;
        }
        let text: Arc<[u8]> = text.into();
        self.texts.push(text.clone());
        let number = self.texts.len() as u32;
        self.index.insert(text, number);
        number
    }

    /// Returns the range of a key; the second number is one greater than its end.
    fn add_key(&mut self, key: &[u8]) -> Option<(u32, NonZeroU32)> {
        let first = u32::try_from(self.keys.len()).ok()?;
        self.keys.push_str(&String::from_utf8_lossy(key));
        let end = u32::try_from(self.keys.len()).ok()?;
        Some((first, NonZeroU32::MIN.checked_add(end)?))
    }

    pub(super) fn begin(&mut self, began: &JobBegan) {
        let key = began.key.and_then(|key| self.add_key(key));
        let job = JobInfo {
            number: began.number,
            name_number: began.name_number,
            parent: began.parent,
            thread: began.thread,
            began: began.time,
            began_unix_ns: began.unix_ns,
            name: self.number_of(began.name),
            key,
            labels: self.number_of(began.labels),
            ..JobInfo::default()
        };
        match self.find(began.number) {
            Ok(at) => self.all[at] = job,
            Err(at) => {
                if self.all.len() == self.all.capacity() {
                    // Doubling would waste megabytes.
                    self.all.reserve_exact(64 + self.all.len() / 8);
                }
                // Jobs begin in the order of their numbers, so this appends.
                self.all.insert(at, job);
            }
        }
    }

    pub(super) fn end(&mut self, ended: &JobEnded) {
        let error = self.number_of(ended.error);
        if let Ok(at) = self.find(ended.number) {
            let job = &mut self.all[at];
            job.ended = Some(ended.time);
            job.ended_unix_ns = ended.unix_ns;
            job.outcome = ended.outcome;
            job.error = error;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_found_by_number_with_their_texts() {
        let mut jobs = Jobs::default();
        for number in [1, 2, 5, 3] {
            jobs.begin(&JobBegan {
                number,
                name_number: 1,
                name: b"import",
                key: (number == 2).then_some(b"caf\xe9"),
                labels: b"\x05queue\x04mail",
                ..JobBegan::default()
            });
        }
        jobs.end(&JobEnded {
            number: 5,
            time: 9,
            outcome: Outcome::Failed,
            error: b"OSError",
            ..JobEnded::default()
        });
        // An end without a beginning, from a damaged file.
        jobs.end(&JobEnded {
            number: 77,
            ..JobEnded::default()
        });
        let numbers: Vec<u32> = jobs.iter().map(|job| job.number).collect();
        assert_eq!(numbers, [1, 2, 3, 5]);
        let failed = jobs.get(5).expect("it began");
        assert_eq!((failed.ended, failed.outcome), (Some(9), Outcome::Failed));
        assert_eq!(jobs.error(failed), "OSError");
        assert_eq!(jobs.name(failed), "import");
        let labels: Vec<_> = jobs.labels(failed).collect();
        assert_eq!(labels, [("queue".into(), "mail".into())]);
        let second = jobs.get(2).expect("it began");
        assert_eq!(jobs.key(second), Some("caf\u{fffd}"));
        assert_eq!(jobs.error(second), "");
        assert!(jobs.of_name_number(1).is_some());
        assert!(jobs.of_name_number(0).is_none());
    }
}
