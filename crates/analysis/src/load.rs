//! Loads captures: replays each capture once into sums, and resolves its frames to names.
//!
//! Captures of several processes are loaded one after the other. So memory holds the sums of all processes, but the
//! live blocks of only one at a time. [`visible_frames`] decides which frames reports show.

mod common_peak;
mod height_curve;
mod visible_frames;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::rc::Rc;

use heaptide_capture::{Capture, Damage, Header, Identity, Jobs, PYTHON_ARENA_FILE, Registry};
use heaptide_tally::{
    Amount, JobKey, SiteSums, StackDetail, StackId, Stacks, Sums, Tally, TallyOptions, Wanted,
};
use heaptide_tally::{replay, replay_until};
use rustc_hash::FxHashMap;

use crate::files;
use crate::filter::{Filter, NoMatch, SiteFilter, shown_name};
use crate::model::PeakMoment;
use crate::symbols::{Location, LocationId, Names, NativeNames};
use crate::window::{Window, last_units};

pub(crate) use visible_frames::{VisibleFrame, frames, visible_frames};

/// The maximum number of attempts to read a capture that its program may be changing.
const MAX_ATTEMPTS: usize = 3;

/// The loaded captures: processes with their sums, and the names of all frames.
pub struct Session {
    pub processes: Vec<Process>,
    pub names: Names,
    /// The filter that restricts the sums.
    pub filter: Filter,
    /// The time span that is counted, and its bins.
    pub window: Window,
    /// As [`Request::temporary`].
    pub temporary: Option<u32>,
    /// The moment of the peak in [`Process::sums`].
    pub peak_moment: PeakMoment,
    /// For each host, the nanoseconds by which its clock is ahead of the host that collected the captures; empty if
    /// unknown.
    pub clock_offsets: BTreeMap<String, i64>,
}

/// The results to compute in addition to the sums.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub filter: Filter,
    /// A block is temporary if its thread frees it after at most this many other allocations; `None` to count none.
    pub temporary: Option<u32>,
    /// Whether to compute the lifetimes of blocks, in bins of time.
    pub lives: bool,
    pub jobs: JobView,
}

/// How a report shows jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobView {
    #[default]
    Hidden,
    /// Sites are distinguished by the names of their jobs.
    Named,
    /// Like `Named`; the name is also the outermost frame of each stack.
    AtRoot,
}

/// One process of a session, with the sums of its capture.
pub struct Process {
    pub path: PathBuf,
    pub header: Header,
    /// Without code objects: their names are in [`Session::names`].
    pub registry: Registry,
    /// Its peak amounts are those at [`Session::peak_moment`].
    pub sums: Sums,
    /// The peak of this process alone, and its time in clock units.
    pub own_peak: Amount,
    pub own_peak_time: u64,
    /// The amount of each site at that peak; empty if [`Process::sums`] has it.
    own_site_peaks: Vec<Amount>,
    pub damage: Vec<Damage>,
    /// The number of different frames on the recorded stacks.
    pub n_frames: u64,
    /// Libraries without function names, because their files are missing or have changed.
    pub absent_libraries: Vec<String>,
    /// By stack number.
    visible: Vec<VisibleFrame>,
    /// The outermost frame of each job's stacks; empty unless [`JobView::AtRoot`] was requested.
    job_roots: FxHashMap<JobKey, LocationId>,
}

/// Replays the captures. `on_progress` receives the number of events replayed so far.
pub fn load(captures: Vec<Capture>, on_progress: &mut dyn FnMut(u64)) -> Session {
    let window = Window::new(&captures, &Filter::default(), false);
    read(captures, Request::default(), window, on_progress)
}

/// Replays the captures as [`load`] does, with a filter and with everything the request asks for.
pub fn load_with(
    captures: Vec<Capture>,
    request: Request,
    on_progress: &mut dyn FnMut(u64),
) -> Result<Session, NoMatch> {
    let filter = &request.filter;
    let window = Window::new(&captures, filter, request.lives);
    let captures = filter.choose_processes(captures)?;
    filter.check_threads(&captures)?;
    filter.check_jobs(&captures)?;
    if filter
        .to_ns
        .is_some_and(|to| to <= filter.from_ns.unwrap_or(0))
    {
        let filters = filter.describe();
        return Err(NoMatch::Nothing { filters });
    }
    let session = read(captures, request, window, on_progress);
    let has_blocks =
        |process: &Process| process.sums.total.count > 0 || process.sums.peak.count > 0;
    let filter = &session.filter;
    if (filter.chooses_sites() || filter.chooses_time())
        && !session.processes.iter().any(has_blocks)
    {
        let filters = filter.describe();
        return Err(NoMatch::Nothing { filters });
    }
    Ok(session)
}

fn read(
    captures: Vec<Capture>,
    request: Request,
    window: Window,
    on_progress: &mut dyn FnMut(u64),
) -> Session {
    let filter = request.filter;
    let mut names = Names::default();
    let mut n_before = 0;
    let mut processes = Vec::new();
    let mut read_captures = Vec::new();
    let mut spans = Vec::new();
    for capture in captures {
        let options = TallyOptions {
            edges: window.edges(&capture),
            temporary: request.temporary,
            jobs: filter.job_detail(&capture, request.jobs != JobView::Hidden),
            ..TallyOptions::default()
        };
        spans.push(span(&options.edges));
        let (mut capture, sums, damage) = sum_up(capture, &filter, options, &mut |n_done| {
            on_progress(n_before + n_done);
        });
        n_before += capture.n_events();
        let natives = if filter.hide_native {
            NativeNames::default()
        } else {
            let frames = sums.stacks.iter().map(|(_, stack)| stack.frame);
            NativeNames::find(frames, &capture.registry)
        };
        let (visible, n_frames) =
            visible_frames(&sums.stacks, &capture, &filter, &natives, &mut names);
        // After the stacks are named, only a filter of sites needs the code objects.
        let codes = std::mem::take(&mut capture.registry.codes);
        let registry = capture.registry.clone();
        if filter.chooses_sites() {
            capture.registry.codes = codes;
        }
        capture.damage.extend(damage);
        let job_roots = match request.jobs {
            JobView::AtRoot => job_roots(&sums, &capture.registry.jobs, &mut names),
            _ => FxHashMap::default(),
        };
        processes.push(Process {
            path: capture.path.clone(),
            header: capture.header.clone(),
            registry,
            own_peak: sums.peak,
            own_peak_time: sums.peak_time,
            own_site_peaks: Vec::new(),
            sums,
            damage: std::mem::take(&mut capture.damage),
            n_frames,
            absent_libraries: natives.absent_libraries().map(str::to_owned).collect(),
            visible,
            job_roots,
        });
        read_captures.push(capture);
    }
    let by_job = request.jobs != JobView::Hidden;
    let peak_moment = common_peak::align(&mut processes, &read_captures, &filter, by_job, spans);
    Session {
        clock_offsets: BTreeMap::new(),
        processes,
        peak_moment,
        names,
        filter,
        window,
        temporary: request.temporary,
    }
}

/// Returns the frame that represents each job at the root of its stacks.
fn job_roots(sums: &Sums, jobs: &Jobs, names: &mut Names) -> FxHashMap<JobKey, LocationId> {
    let mut roots = FxHashMap::default();
    for site in &sums.sites {
        roots
            .entry(site.job)
            .or_insert_with(|| names.job(&job_name(jobs, site.job)));
    }
    roots
}

/// The name of a site's job; a text in angle brackets if it has no job or the job is unknown.
pub(crate) fn job_name(jobs: &Jobs, job: JobKey) -> Cow<'_, str> {
    let (found, otherwise) = match (job.job(), job.name()) {
        (Some(number), _) => (jobs.get(number), "<unknown job>"),
        (_, Some(name)) => (jobs.of_name_number(name), "<other jobs>"),
        _ => (None, "<no job>"),
    };
    found.map_or(otherwise.into(), |job| jobs.name(job))
}

/// The clock units between the first and the last edge.
fn span(edges: &[u64]) -> Range<u64> {
    match (edges.first(), edges.last()) {
        (Some(&first), Some(&last)) => first..last,
        _ => 0..u64::MAX,
    }
}

/// Returns the sums between two edges, without reading further than the last edge. Damage is not reported a second time.
fn tally_until(capture: &Capture, filter: &Filter, options: TallyOptions) -> Sums {
    let first_edge = options.edges.first().copied();
    let mut sites = SiteFilter::new(filter, capture);
    let mut wanted = |stacks: &Stacks, stack, stream, job| sites.wants(stacks, stack, stream, job);
    let mut tally = Tally::for_capture(capture).unwrap_or_else(|_| Tally::empty_for(capture));
    tally.configure(options);
    replay_until(capture, &mut |_| {}, &mut |chunk, ops| {
        tally.apply_wanted(chunk, ops, &mut wanted);
        match tally.is_over() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    if let Some(first_edge) = first_edge {
        tally.advance(first_edge);
    }
    tally.finish_wanted(&mut wanted)
}

/// Returns the sums of a capture: its checkpoint, if it has one, plus all later events. Also returns the damage found.
fn sum_up(
    capture: Capture,
    filter: &Filter,
    options: TallyOptions,
    on_progress: &mut dyn FnMut(u64),
) -> (Capture, Sums, Vec<Damage>) {
    let finish = |tally: Tally, wanted: &mut Wanted| tally.finish_wanted(wanted);
    let (capture, mut sums, damage) = replay_capture(capture, filter, options, on_progress, finish);
    if capture.checkpoint.is_some() && filter.chooses_sites() {
        // The sizes in a checkpoint are not known per site, so the filter cannot apply to them.
        sums.sizes.clear();
    }
    (capture, sums, damage)
}

/// Like [`sum_up`], but `finish` turns the tally into the result.
pub(crate) fn replay_capture<T>(
    mut capture: Capture,
    filter: &Filter,
    options: TallyOptions,
    on_progress: &mut dyn FnMut(u64),
    finish: impl FnOnce(Tally, &mut Wanted) -> T,
) -> (Capture, T, Vec<Damage>) {
    let mut n_attempts = 1;
    loop {
        let mut sites = SiteFilter::new(filter, &capture);
        let mut wanted =
            |stacks: &Stacks, stack, stream, job| sites.wants(stacks, stack, stream, job);
        let (mut tally, mut damage) = match Tally::for_capture(&capture) {
            Ok(tally) => (tally, Vec::new()),
            Err(error) => (Tally::empty_for(&capture), vec![error]),
        };
        tally.configure(options.clone());
        damage.extend(replay(&capture, on_progress, &mut |chunk, ops| {
            tally.apply_wanted(chunk, ops, &mut wanted);
        }));
        let is_whole = damage.is_empty() && capture.damage.is_empty();
        // A running program that bounds its capture moves data within the file.
        let may_have_moved = capture.header.mode.aggregate && capture.registry.end.is_none();
        if !is_whole && may_have_moved && n_attempts < MAX_ATTEMPTS {
            if let Ok(moved) = files::open_capture(&capture.path) {
                capture = moved;
                n_attempts += 1;
                continue;
            }
        }
        // Blocks from before the chosen time count even if the process allocated and freed nothing within it.
        if let Some(first_edge) = options
            .edges
            .first()
            .filter(|&&it| it < last_units(&capture))
        {
            tally.advance(*first_edge);
        }
        let result = finish(tally, &mut wanted);
        return (capture, result, damage);
    }
}

/// Returns the heap's bytes at the peak, and the part of them in arenas of Python's object allocator. Faster than
/// [`load`], because whole stacks are not needed.
pub fn peak_bytes(capture: Capture) -> (u64, u64) {
    let options = TallyOptions {
        stacks: StackDetail::Innermost,
        ..TallyOptions::default()
    };
    let (capture, sums, _) = sum_up(capture, &Filter::default(), options, &mut |_| {});
    let codes = &capture.registry.codes;
    let is_arena = |site: &&SiteSums| {
        let code = sums.stacks.get(site.stack).map(|stack| stack.frame.code);
        let code = code.and_then(|code| codes.get(&code));
        code.is_some_and(|code| code.file == PYTHON_ARENA_FILE)
    };
    let arenas = sums.sites.iter().filter(is_arena);
    (
        sums.peak.bytes,
        arenas
            .map(|site| site.peak.bytes)
            .fold(0, u64::saturating_add),
    )
}

/// Returns the names of all native frames that can be resolved on this machine, for a symbol bundle.
pub fn native_names(capture: Capture, on_progress: &mut dyn FnMut(u64)) -> (Capture, NativeNames) {
    let (capture, sums, _) = sum_up(
        capture,
        &Filter::default(),
        TallyOptions::default(),
        on_progress,
    );
    let frames = sums.stacks.iter().map(|(_, stack)| stack.frame);
    let names = NativeNames::find(frames, &capture.registry);
    (capture, names)
}

impl Session {
    /// Shows each process at its own peak instead of the common peak. Both sides of a comparison need the same
    /// definition of the peak.
    pub fn use_own_peaks(&mut self) {
        if !matches!(self.peak_moment, PeakMoment::Common(_)) {
            return;
        }
        self.peak_moment = PeakMoment::EachOwn;
        for process in &mut self.processes {
            let sites = process.sums.sites.iter_mut();
            for (site, own) in sites.zip(std::mem::take(&mut process.own_site_peaks)) {
                site.peak = own;
            }
            process.sums.peak = process.own_peak;
            process.sums.peak_time = process.own_peak_time;
        }
    }

    /// The ID of a process. If several processes of the session have this ID, the name also has a part that differs, such as
    /// the host.
    pub fn name_of(&self, process: &Process) -> String {
        let all = self
            .processes
            .iter()
            .map(|process| process.header.identity());
        let all: Vec<Identity> = all.collect();
        process.header.identity().name_among(&all)
    }

    /// The name of a process for reports: its ID, its role or program, and its host if there are several.
    pub fn shown_name(&self, process: &Process) -> String {
        let (name, host) = (self.name_of(process), &process.header.host);
        let mut others = self.processes.iter();
        let has_hosts = others.any(|other| other.header.host != *host);
        let host = Some(host.as_str()).filter(|_| has_hosts);
        shown_name(name, &process.header.title(), host)
    }

    /// Inserts the processes of another session before those of this one. `file` returns the name of a location's file in
    /// this session, if it differs.
    pub fn put_before(
        &mut self,
        other: Session,
        file: &mut dyn FnMut(&Process, &Location) -> Option<Rc<str>>,
    ) {
        let mut processes = other.processes;
        for process in &mut processes {
            let mut known: FxHashMap<LocationId, LocationId> = FxHashMap::default();
            let mut visible = std::mem::take(&mut process.visible);
            let locations = visible.iter_mut();
            for location in locations.filter_map(|frame| frame.location.as_mut()) {
                *location = *known.entry(*location).or_insert_with(|| {
                    let at = other.names.get(*location);
                    self.names.renamed(at, file(process, at))
                });
            }
            process.visible = visible;
            for location in process.job_roots.values_mut() {
                *location = self.names.renamed(other.names.get(*location), None);
            }
        }
        processes.append(&mut self.processes);
        self.processes = processes;
    }
}

/// The innermost visible Python frame of a stack, or the innermost native frame if there is no Python frame.
pub(crate) fn innermost_of_program(
    session: &Session,
    process: &Process,
    stack: StackId,
) -> Option<LocationId> {
    let mut frames = process.frames(stack);
    let is_python = |id: &LocationId| !session.names.get(*id).is_native();
    frames
        .find(is_python)
        .or_else(|| process.frames(stack).next())
}

impl Process {
    /// The functions of the innermost frame of a stack, outermost first: none if it is not visible, several if some were
    /// inlined.
    pub fn innermost(&self, stack: StackId) -> Vec<LocationId> {
        let n_stacks = self.sums.stacks.n_stacks();
        let mut functions = Vec::new();
        let mut at = stack.0 as usize;
        while let Some(frame) = self.visible.get(at).filter(|_| at != 0) {
            functions.extend(frame.location);
            at = frame.parent as usize;
            // Inlined functions have positions after all stacks.
            if at < n_stacks {
                break;
            }
        }
        functions.reverse();
        functions
    }

    /// The stack from which the innermost frame of a stack was called, as reports show it.
    pub(crate) fn caller(&self, stack: StackId) -> StackId {
        let n_stacks = self.sums.stacks.n_stacks();
        let mut at = stack.0 as usize;
        while let Some(frame) = self.visible.get(at).filter(|_| at != 0) {
            at = frame.parent as usize;
            if at < n_stacks {
                break;
            }
        }
        StackId(at as u32)
    }

    /// The visible frames of a stack, innermost first.
    pub fn frames(&self, stack: StackId) -> impl Iterator<Item = LocationId> + '_ {
        frames(&self.visible, stack)
    }

    /// The name of a site's job; a text in angle brackets if it has no job or the job is unknown.
    pub fn job_name(&self, job: JobKey) -> Cow<'_, str> {
        job_name(&self.registry.jobs, job)
    }

    /// The frame of a job at the root of its stacks, if the report shows jobs there.
    pub(crate) fn job_root(&self, job: JobKey) -> Option<LocationId> {
        self.job_roots.get(&job).copied()
    }

    /// Converts a time in the capture's clock units to nanoseconds since 1970.
    pub fn unix_ns(&self, units: u64) -> u64 {
        let elapsed = self.registry.elapsed_ns(units);
        self.header.started_unix_ns.saturating_add(elapsed)
    }

    /// The clock units until which the capture has only sums; `None` if all its events have times.
    pub(crate) fn times_unknown_until(&self) -> Option<u64> {
        (self.sums.first_time > 0).then_some(self.sums.first_time)
    }

    /// The end of the capture in clock units.
    pub fn end_units(&self) -> u64 {
        let resident = self
            .registry
            .resident
            .last()
            .map_or(0, |sample| sample.time);
        let last_event = self.sums.last_time.max(resident);
        self.registry
            .end
            .map_or(last_event, |end| end.max(last_event))
    }
}
