//! Groups sites by three lines: the one that allocated, the nearest one of the program, and the nearest one of the
//! user's own code. Each group has its bytes over time.

use heaptide_tally::{Amount, Lifetimes};
use rustc_hash::FxHashMap;

use crate::load::{Process, Session, innermost_of_program};
use crate::model::finding::SentenceValue;
use crate::model::{Finding, Location, Sentence};
use crate::symbols::{LocationId, Modules, is_import_system};
use crate::user_code::UserCode;

/// From this share on, a headline does not mention that other lines allocated the rest.
const NEARLY_ALL: f64 = 0.99;

#[derive(Default)]
pub struct SiteGroup {
    at: Option<LocationId>,
    caller: Option<LocationId>,
    user: Option<LocationId>,
    /// The index of a process with this group. The folders in its capture shorten the paths.
    process: usize,
    pub total: Amount,
    pub peak: Amount,
    pub live: Amount,
    pub temporary: Amount,
    /// The lifetimes of all blocks added up; `None` if some are not known.
    pub block_time_ns: Option<u64>,
    /// Whether these are arenas of Python's object allocator, which no line is responsible for.
    pub is_arena: bool,
    /// Whether an import called from the user's line allocated the blocks. Modules stay loaded, so their memory is no
    /// leak.
    pub is_import: bool,
    /// Bytes held at each edge, and bytes freed in the bin before it.
    pub curve: Vec<i64>,
    pub released: Vec<i64>,
}

pub struct SiteGroups {
    groups: Vec<SiteGroup>,
    own: Option<LocationId>,
    edges_ns: Vec<u64>,
}

impl SiteGroups {
    pub fn new(session: &Session) -> SiteGroups {
        // All processes get as many bins as the process with the fewest.
        let n_bins = session.processes.iter();
        let n_bins = n_bins.map(|process| process.sums.lives.n_bins());
        let n_bins = n_bins.filter(|&n| n > 0).min().unwrap_or(0);
        let mut groups: Vec<SiteGroup> = Vec::new();
        let mut known = FxHashMap::default();
        for (number_of_process, process) in session.processes.iter().enumerate() {
            let is_of_program = of_program(session, process);
            let is_of_user = of_user(session, process);
            let is_importer = session.names.iter();
            let is_importer = is_importer.map(|at| is_import_system(&at.file));
            let is_importer: Vec<bool> = is_importer.collect();
            let mut number_of = Vec::with_capacity(process.sums.sites.len());
            for site in &process.sums.sites {
                let at = innermost_of_program(session, process, site.stack);
                let caller = process
                    .frames(site.stack)
                    .find(|id| is_of_program[id.0 as usize]);
                let is_arena = at.is_some_and(|id| session.names.get(id).is_python_arena());
                let caller = caller.filter(|_| caller != at && !is_arena);
                let mut is_import = false;
                let mut frames = process.frames(site.stack);
                let user = frames.find(|id| {
                    is_import |= is_importer[id.0 as usize];
                    is_of_user[id.0 as usize]
                });
                let user = user.filter(|_| !is_arena);
                let key = (at, caller, user, is_import);
                let number = *known.entry(key).or_insert_with(|| {
                    groups.push(SiteGroup {
                        at,
                        caller,
                        user,
                        process: number_of_process,
                        is_arena,
                        is_import,
                        block_time_ns: Some(0),
                        curve: vec![0; n_bins + 1],
                        released: vec![0; n_bins + 1],
                        ..SiteGroup::default()
                    });
                    groups.len() - 1
                });
                number_of.push(number);
                let group = &mut groups[number];
                group.total += site.total;
                group.peak += site.peak;
                group.live += site.live;
                group.temporary += site.temporary;
                let ns = site.block_time.map(|units| process.registry.span_ns(units));
                group.block_time_ns = group
                    .block_time_ns
                    .zip(ns)
                    .map(|(one, more)| one.saturating_add(more));
            }
            add_lives(&mut groups, &number_of, &process.sums.lives, n_bins);
        }
        for group in &mut groups {
            // So far the curve holds differences; their running sum is the bytes held.
            let mut held = 0;
            for change in &mut group.curve {
                add(&mut held, *change);
                *change = held;
            }
        }
        let own = session.names.iter().position(Location::is_own_memory);
        SiteGroups {
            groups,
            // If the session has no location of Heaptide's own memory: a number that no group has.
            own: Some(LocationId(own.map_or(u32::MAX, |number| number as u32))),
            edges_ns: session.window.coarse(n_bins),
        }
    }

    /// All groups except Heaptide's own memory, which users cannot change.
    pub fn all(&self) -> impl Iterator<Item = &SiteGroup> {
        self.groups.iter().filter(|group| group.at != self.own)
    }

    /// The bytes of all groups, including Heaptide's own memory, so that shares have the same total as in other
    /// reports.
    pub fn sum_bytes(&self, amount: fn(&SiteGroup) -> Amount) -> u64 {
        let bytes = self.groups.iter().map(|group| amount(group).bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// The bytes of Python's arenas, which have no line.
    pub fn arena_bytes(&self, amount: fn(&SiteGroup) -> Amount) -> u64 {
        let arenas = self.groups.iter().filter(|group| group.is_arena);
        let bytes = arenas.map(|group| amount(group).bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// The time of each value of a curve; empty if there are no bins.
    pub fn edges_ns(&self) -> &[u64] {
        &self.edges_ns
    }
}

/// The memory below one line: the nearest line of user code, else the line that allocated.
pub struct Line<'a> {
    pub peak: Amount,
    pub live: Amount,
    /// The group with the most bytes.
    largest: &'a SiteGroup,
    /// The bytes of that group.
    largest_bytes: u64,
    bytes: u64,
}

/// The sentences about a line. Each has a `{}` for the line; all but the first have a second `{}` for the largest
/// allocating line below it.
pub struct Headlines {
    pub alone: &'static str,
    pub all: &'static str,
    pub mostly: &'static str,
    pub largest_part: &'static str,
}

impl SiteGroups {
    /// The line with the most bytes. Groups for which `bytes` is `None` do not count. All allocations below one line of
    /// user code are summed: the user can change that line, while libraries below it may allocate at many sites. Arenas
    /// and blocks without a stack belong to no line.
    pub fn largest_line(&self, bytes: fn(&SiteGroup) -> Option<u64>) -> Option<Line<'_>> {
        let mut lines: Vec<Line> = Vec::new();
        let mut known = FxHashMap::default();
        let blamed = self
            .all()
            .filter(|group| group.at.is_some() && !group.is_arena);
        for (group, own) in blamed.filter_map(|group| Some((group, bytes(group)?))) {
            let key = match group.user {
                Some(_) => (group.user, None, None),
                None => (None, group.at, group.caller),
            };
            let number = *known.entry(key).or_insert_with(|| {
                lines.push(Line {
                    peak: Amount::default(),
                    live: Amount::default(),
                    largest: group,
                    largest_bytes: 0,
                    bytes: 0,
                });
                lines.len() - 1
            });
            let line = &mut lines[number];
            line.peak += group.peak;
            line.live += group.live;
            line.bytes = line.bytes.saturating_add(own);
            if own > line.largest_bytes {
                (line.largest, line.largest_bytes) = (group, own);
            }
        }
        lines.into_iter().max_by_key(|line| line.bytes)
    }
}

impl Line<'_> {
    /// Returns a finding about this line, to which the caller adds sentences and numbers.
    pub fn finding(&self, session: &Session, headlines: &Headlines) -> Finding {
        let share = self.largest_bytes as f64 / self.bytes.max(1) as f64;
        let in_library = match share {
            share if share >= NEARLY_ALL => headlines.all,
            share if share > 0.5 => headlines.mostly,
            _ => headlines.largest_part,
        };
        self.largest.finding(session, headlines.alone, in_library)
    }
}

/// For each location, whether it belongs to a module of the program.
fn of_program(session: &Session, process: &Process) -> Vec<bool> {
    let modules = Modules::new(&process.header);
    let names = session.names.iter();
    names.map(|at| modules.of_location(at).is_some()).collect()
}

/// For each location, whether it is in the user's own code.
fn of_user(session: &Session, process: &Process) -> Vec<bool> {
    let user_code = UserCode::new(&process.header);
    let names = session.names.iter();
    names.map(|at| user_code.contains(at)).collect()
}

fn add_lives(groups: &mut [SiteGroup], number_of: &[usize], lives: &Lifetimes, n_bins: usize) {
    if lives.n_bins() == 0 {
        return;
    }
    let mut coarse = None;
    while coarse.as_ref().unwrap_or(lives).n_bins() > n_bins {
        coarse.get_or_insert_with(|| lives.clone()).halve();
    }
    for life in &coarse.as_ref().unwrap_or(lives).entries {
        let group = &mut groups[number_of[life.site as usize]];
        let (birth, death) = (usize::from(life.birth), usize::from(life.death));
        if death < n_bins {
            add(&mut group.released[death + 1], life.bytes);
        }
        if birth < death {
            add(&mut group.curve[birth + 1], life.bytes);
            if death < n_bins {
                add(&mut group.curve[death + 1], life.bytes.saturating_neg());
            }
        }
    }
}

/// Adds without overflow: a damaged file may contain any size.
fn add(sum: &mut i64, bytes: i64) {
    *sum = sum.saturating_add(bytes);
}

impl SiteGroup {
    /// Returns a finding about this group, to which the caller adds sentences and numbers.
    ///
    /// `headline` has one `{}`, for the line that users know best: the nearest line of their own code, else the line that
    /// allocated. `headline_in_library` has another one for the line that allocated, if that is not the same line.
    pub fn finding(
        &self,
        session: &Session,
        headline: &'static str,
        headline_in_library: &'static str,
    ) -> Finding {
        let modules = Modules::new(&session.processes[self.process].header);
        let location = |id: LocationId| session.names.get(id).clone();
        let short = |id: LocationId| {
            let at = location(id);
            let file = modules.path_below(&at.file).into();
            SentenceValue::Location(Some(Location { file, ..at }))
        };
        let headline = match (self.user, self.at) {
            (Some(user), Some(at)) if user != at => {
                Sentence::new(headline_in_library, [short(user), short(at)])
            }
            (_, Some(at)) => Sentence::new(headline, [short(at)]),
            (_, None) => Sentence::new(headline, [SentenceValue::Location(None)]),
        };
        Finding {
            headline,
            location: self.at.map(location),
            caller: self.caller.map(location),
            user: self.user.map(location),
            ..Finding::default()
        }
    }
}
