//! Compares two recordings, stack by stack.
//!
//! Both sides are merged into one [`Session`], the earlier side's processes first, and both begin at the same time. Files
//! are the same if they have the same path below the folder they were imported from. So two checkouts, two virtual
//! environments or two versions of Python can be compared; a file is shown under its path on the later side.

mod rows;

use std::rc::Rc;

use heaptide_capture::Mode;
use rustc_hash::FxHashMap;

use crate::aggregate::{FlameTree, quality};
use crate::load::{Process, Session};
use crate::model::diff::{Diff, DiffSide, Estimate};
use crate::model::{Measure, PeakMoment};
use crate::symbols::{Location, Modules};

/// Two sessions as one.
pub struct Comparison {
    session: Session,
    /// The number of processes of the earlier side.
    n_before: usize,
    before: DiffSide,
    after: DiffSide,
}

impl Comparison {
    pub fn new(mut before: Session, mut after: Session) -> Comparison {
        let is_own = |side: &Session| side.peak_moment == PeakMoment::EachOwn;
        if is_own(&before) || is_own(&after) {
            before.use_own_peaks();
            after.use_own_peaks();
        }
        let sides = [&before, &after].map(side);
        let [first, second] = sides;
        let n_before = before.processes.len();
        let later = start(&after);
        let earlier = start(&before);
        let files = files_by_path(&after);
        after.put_before(before, &mut |process, location| {
            let path = Modules::new(&process.header).path_below(&location.file);
            files.get(path).cloned()
        });
        for process in &mut after.processes[..n_before] {
            let started = &mut process.header.started_unix_ns;
            *started = (*started - earlier).saturating_add(later);
        }
        Comparison {
            session: after,
            n_before,
            before: first,
            after: second,
        }
    }

    pub fn n_before(&self) -> usize {
        self.n_before
    }

    /// The numbers of both sides. `by_line` distinguishes the lines of a function; if the program was edited between the
    /// recordings, line numbers do not match.
    pub fn diff(&self, measure: Measure, by_line: bool) -> Diff {
        let (locations, frames, stacks) =
            rows::rows(&self.session, self.n_before, measure, by_line);
        Diff {
            measure,
            by_line,
            before: self.before.clone(),
            after: self.after.clone(),
            locations,
            frames,
            stacks,
        }
    }

    /// Both sides as one tree. Each process belongs to one side.
    pub fn flame_tree(&self) -> FlameTree<'_> {
        FlameTree::of_comparison(&self.session, self.n_before)
    }
}

fn side(session: &Session) -> DiffSide {
    let quality = quality(session);
    let processes = session.processes.iter();
    let sum = |amount: fn(&Process) -> heaptide_tally::Amount| {
        let amounts = session.processes.iter().map(amount);
        amounts.fold(Estimate::default(), |sum, amount| Estimate {
            bytes: sum.bytes.saturating_add(amount.bytes),
            count: sum.count.saturating_add(amount.count),
            variance: sum.variance + amount.variance,
        })
    };
    let end = processes.map(|process| process.unix_ns(process.end_units()));
    DiffSide {
        peak: sum(|process| process.sums.peak),
        leaked: sum(|process| process.sums.live),
        total: sum(|process| process.sums.total),
        temporary: sum(|process| process.sums.temporary),
        duration_ns: end.max().unwrap_or(0).saturating_sub(start(session)),
        resident_peak_bytes: quality
            .processes
            .iter()
            .filter_map(|process| process.resident_peak_bytes)
            .max(),
        modes: modes(session),
        quality,
    }
}

/// The modes that change sizes, without duplicates and in a fixed order.
fn modes(session: &Session) -> Vec<Mode> {
    let processes = session.processes.iter();
    let mut modes: Vec<Mode> = processes
        .flat_map(|process| process.registry.modes(process.header.mode))
        .map(|mode| Mode {
            objects: mode.objects,
            sample_bytes: mode.sample_bytes,
            ..Mode::default()
        })
        .collect();
    modes.sort_by_key(|mode| (mode.sample_bytes, mode.objects));
    modes.dedup();
    modes
}

fn start(session: &Session) -> u64 {
    let starts = session.processes.iter();
    let starts = starts.map(|process| process.header.started_unix_ns);
    starts.min().unwrap_or(0)
}

/// Maps the path of each file below its import folder to the file.
fn files_by_path(session: &Session) -> FxHashMap<String, Rc<str>> {
    let mut files = FxHashMap::default();
    let modules: Vec<Modules> = session
        .processes
        .iter()
        .map(|process| Modules::new(&process.header))
        .collect();
    for location in session.names.iter() {
        for modules in &modules {
            let path = modules.path_below(&location.file);
            if path.len() < location.file.len() && !files.contains_key(path) {
                files.insert(path.to_owned(), location.file.clone());
            }
        }
    }
    files
}

/// A location without its line.
fn function_of(location: &Location) -> Location {
    Location {
        line: 0,
        ..location.clone()
    }
}
