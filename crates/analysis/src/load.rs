//! From captures to sums with names: each capture is replayed once, and its frames are resolved.
//!
//! Captures of several processes are loaded one after the other, so that the blocks alive in one of them are all that
//! is in memory beside the sums. [`shown`] says which frames reports show.

mod visible_frames;

use std::path::PathBuf;
use std::rc::Rc;

use heaptide_capture::{Capture, Damage, Header, Registry};
use heaptide_tally::replay;
use heaptide_tally::{StackId, Stacks, Sums, Tally, TallyOptions};
use rustc_hash::FxHashMap;

use crate::files;
use crate::filter::{Filter, NoMatch, SiteFilter};
use crate::symbols::{Location, LocationId, Names, NativeNames};
use crate::window::Window;

pub(crate) use visible_frames::{VisibleFrame, frames, visible_frames};

/// How often a capture is read whose program is perhaps still changing it.
const MAX_ATTEMPTS: usize = 3;

/// Everything that was loaded, ready to be asked.
pub struct Session {
    pub processes: Vec<Process>,
    pub names: Names,
    /// What the sums were restricted to.
    pub filter: Filter,
    /// The time that was looked at, and its bins.
    pub window: Window,
    /// Within how many other allocations of its thread a block has to be released to be temporary; `None` if nobody asked.
    pub temporary: Option<u32>,
}

/// What is wanted of captures, beside the sums that there always are.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub filter: Filter,
    /// Which blocks are temporary: released by their thread after at most so many other allocations.
    pub temporary: Option<u32>,
    /// When blocks were born and died, in bins of time.
    pub lives: bool,
}

/// One process of a session: what its capture says, summed up.
pub struct Process {
    pub path: PathBuf,
    pub header: Header,
    /// Without the code objects, whose names are in [`Session::names`].
    pub registry: Registry,
    pub sums: Sums,
    pub damage: Vec<Damage>,
    /// How many different frames were on the recorded stacks.
    pub n_frames: u64,
    /// Libraries whose functions have no names, because their files are not here or are others now.
    pub absent_libraries: Vec<String>,
    /// By the number of the stack.
    shown: Vec<VisibleFrame>,
}

/// Replays the captures. `on_progress` hears how many events of all captures are done.
pub fn load(captures: Vec<Capture>, on_progress: &mut dyn FnMut(u64)) -> Session {
    let window = Window::new(&captures, &Filter::default(), false);
    read(captures, Request::default(), window, on_progress)
}

/// The same, restricted to what passes a filter, and with more than sums.
pub fn load_with(
    captures: Vec<Capture>,
    request: Request,
    on_progress: &mut dyn FnMut(u64),
) -> Result<Session, NoMatch> {
    let filter = &request.filter;
    let window = Window::new(&captures, filter, request.lives);
    let captures = filter.choose_processes(captures)?;
    filter.check_threads(&captures)?;
    if filter
        .to_ns
        .is_some_and(|to| to <= filter.from_ns.unwrap_or(0))
    {
        let filters = filter.describe();
        return Err(NoMatch::Nothing { filters });
    }
    let session = read(captures, request, window, on_progress);
    let is_something =
        |process: &Process| process.sums.total.count > 0 || process.sums.peak.count > 0;
    let filter = &session.filter;
    if (filter.chooses_sites() || filter.chooses_time())
        && !session.processes.iter().any(is_something)
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
    for capture in captures {
        let watch = TallyOptions {
            edges: window.edges(&capture),
            temporary: request.temporary,
            without_stacks: false,
        };
        let (mut capture, sums, found) = sum_up(capture, &filter, watch, &mut |n_done| {
            on_progress(n_before + n_done);
        });
        n_before += capture.n_events();
        let natives = if filter.hide_native {
            NativeNames::default()
        } else {
            let frames = sums.stacks.iter().map(|(_, stack)| stack.frame);
            NativeNames::find(frames, &capture.registry)
        };
        let (shown, n_frames) =
            visible_frames(&sums.stacks, &capture, &filter, &natives, &mut names);
        capture.registry.codes.clear();
        capture.damage.extend(found);
        processes.push(Process {
            path: capture.path,
            header: capture.header,
            registry: capture.registry,
            sums,
            damage: capture.damage,
            n_frames,
            absent_libraries: natives.absent_libraries().map(str::to_owned).collect(),
            shown,
        });
    }
    Session {
        processes,
        names,
        filter,
        window,
        temporary: request.temporary,
    }
}

/// The sums of a capture: what its checkpoint says, if it has one, and all events since. Also what could not be read.
fn sum_up(
    mut capture: Capture,
    filter: &Filter,
    watch: TallyOptions,
    on_progress: &mut dyn FnMut(u64),
) -> (Capture, Sums, Vec<Damage>) {
    let mut n_attempts = 1;
    loop {
        let mut sites = SiteFilter::new(filter, &capture);
        let mut wanted = |stacks: &Stacks, stack, stream| sites.wants(stacks, stack, stream);
        let (mut tally, mut found) = match Tally::for_capture(&capture) {
            Ok(tally) => (tally, Vec::new()),
            Err(damage) => {
                let sample_bytes = capture.header.mode.sample_bytes;
                (Tally::new(sample_bytes), vec![damage])
            }
        };
        tally.configure(watch.clone());
        found.extend(replay(&capture, on_progress, &mut |chunk, ops| {
            tally.apply_wanted(chunk, ops, &mut wanted);
        }));
        let is_whole = found.is_empty() && capture.damage.is_empty();
        // A program that keeps its capture small moves things about in the file while it runs.
        let may_have_moved = capture.header.mode.aggregate && capture.registry.end.is_none();
        if !is_whole && may_have_moved && n_attempts < MAX_ATTEMPTS {
            if let Ok(moved) = files::open_capture(&capture.path) {
                capture = moved;
                n_attempts += 1;
                continue;
            }
        }
        let has_unfiltered_sizes = capture.checkpoint.is_some() && filter.chooses_sites();
        let mut sums = tally.finish_wanted(&mut wanted);
        if has_unfiltered_sizes {
            // A checkpoint has no site for its sizes.
            sums.sizes.clear();
        }
        return (capture, sums, found);
    }
}

/// How many bytes were on the heap at the peak, for whoever asks for nothing else.
pub fn peak_bytes(capture: Capture) -> u64 {
    let watch = TallyOptions {
        without_stacks: true,
        ..TallyOptions::default()
    };
    let (_, sums, _) = sum_up(capture, &Filter::default(), watch, &mut |_| {});
    sums.peak.bytes
}

/// The names of all native frames of a capture, as far as they can be found here: what a bundle holds.
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
    /// Puts the processes of another session before those of this one. `file` says under which name a location's file is
    /// known here, if it is under another.
    pub fn put_before(
        &mut self,
        other: Session,
        file: &mut dyn FnMut(&Process, &Location) -> Option<Rc<str>>,
    ) {
        let mut processes = other.processes;
        for process in &mut processes {
            let mut known: FxHashMap<LocationId, LocationId> = FxHashMap::default();
            let mut shown = std::mem::take(&mut process.shown);
            for location in shown.iter_mut().filter_map(|shown| shown.location.as_mut()) {
                *location = *known.entry(*location).or_insert_with(|| {
                    let at = other.names.get(*location);
                    self.names.renamed(at, file(process, at))
                });
            }
            process.shown = shown;
        }
        processes.append(&mut self.processes);
        self.processes = processes;
    }
}

/// The innermost Python frame of a stack that is shown; the innermost native one if there is no other.
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
    /// What the innermost frame of a stack shows, outermost first: nothing if it is not shown, several functions if some
    /// were inlined there.
    pub fn innermost(&self, stack: StackId) -> Vec<LocationId> {
        let n_stacks = self.sums.stacks.n_stacks();
        let mut found = Vec::new();
        let mut at = stack.0 as usize;
        while let Some(shown) = self.shown.get(at).filter(|_| at != 0) {
            found.extend(shown.location);
            at = shown.parent as usize;
            // Those that were inlined stand behind all stacks.
            if at < n_stacks {
                break;
            }
        }
        found.reverse();
        found
    }

    /// The frames of a stack that are shown, innermost first.
    pub fn frames(&self, stack: StackId) -> impl Iterator<Item = LocationId> + '_ {
        frames(&self.shown, stack)
    }

    /// Nanoseconds since 1970 at a time in the capture's clock units.
    pub fn unix_ns(&self, units: u64) -> u64 {
        let elapsed = self.registry.elapsed_ns(units);
        self.header.started_unix_ns.saturating_add(elapsed)
    }

    /// Clock units at which the capture ends.
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
