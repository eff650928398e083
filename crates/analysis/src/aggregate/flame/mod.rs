//! The call tree of the pages: all stacks of all processes as one tree, cut to the size of a page.

mod cut;
mod job_spans;

use std::rc::Rc;

use heaptide_tally::Lifetime;
use rustc_hash::FxHashSet;

use super::stacks;
use super::timeline::timeline;
use crate::interner::Interner;
use crate::load::Session;
use crate::model::flame::{
    Flame, FlameContent, FlameLife, FlameLives, FlameLocation, FlameNode, FlameProcess,
    FlameThread, Origin, Own, Owner,
};
use crate::model::{Finding, Location, PeakMoment, StackModel};
use crate::symbols::{Modules, Sources, is_import_system};
use crate::user_code::UserCode;
use cut::WholeTree;

/// Limits on the part of the tree in a page.
#[derive(Clone, Copy, Debug)]
pub struct FlameLimits {
    /// Frames with a smaller share in every measure are cut, even if there is room for them.
    pub min_share: f64,
    /// The largest number of frames; the largest frames are kept.
    pub max_frames: usize,
    /// Bytes of source text; 0 for none.
    pub max_source_bytes: usize,
    /// The largest number of lifetime entries. If there are more, time bins are merged in pairs until they fit.
    pub max_lives: usize,
}

impl Default for FlameLimits {
    fn default() -> Self {
        FlameLimits {
            min_share: 0.0,
            max_frames: 100_000,
            max_source_bytes: 512 << 10,
            max_lives: 120_000,
        }
    }
}

/// The whole call tree of a session. It is built once and cut as often as needed until a page has the right size.
pub struct FlameTree<'a> {
    session: &'a Session,
    model: StackModel,
    tree: WholeTree,
    threads: Vec<FlameThread>,
    origins: Vec<Origin>,
    /// In a comparison, the number of processes of the earlier side; 0 otherwise.
    n_before: usize,
}

impl<'a> FlameTree<'a> {
    pub fn new(session: &'a Session) -> FlameTree<'a> {
        FlameTree::of_comparison(session, 0)
    }

    /// The first `n_before` processes are the earlier side.
    pub fn of_comparison(session: &'a Session, n_before: usize) -> FlameTree<'a> {
        let model = stacks(session);
        let (threads, first_thread) = threads(&model);
        let mut origins = Interner::default();
        let mut tree = WholeTree::new(&model);
        let n_bins = model.processes.iter().map(|process| process.lives.n_bins());
        // All processes get as many bins as the process with the fewest.
        let n_bins = n_bins.filter(|&n| n > 0).min().unwrap_or(0);
        for (process, first) in model.processes.iter().zip(first_thread) {
            let first_site = tree.n_sites();
            for site in &process.sites {
                let origin = origins.number(Origin {
                    thread: first + site.thread as u32,
                    allocator: site.allocator,
                    job: site.job,
                });
                tree.add(site, origin);
            }
            tree.add_lives(&process.lives, n_bins, first_site);
        }
        FlameTree {
            session,
            model,
            tree,
            threads,
            origins: origins.values,
            n_before,
        }
    }

    /// The tree without the parts that are too small for a page.
    pub fn cut(&self, limits: FlameLimits) -> Flame {
        let model = &self.model;
        let (min_share, cut) = self.tree.cut(limits);
        let mut lives = cut.lives;
        while lives.entries.len() > limits.max_lives && lives.edges.len() > 2 {
            lives.halve();
        }
        let findings = model.findings.iter().cloned();
        let findings = findings.map(|finding| {
            let node = node_of(&finding, &cut.nodes, &cut.own, |location| {
                &model.locations[cut.locations[location as usize] as usize]
            });
            (finding, node)
        });
        let findings = findings.collect();
        let mut texts = Interner::default();
        let locations = Locations::new(self.session, model, limits);
        let mut jobs = model.jobs.clone();
        let (job_spans, n_more_jobs) = job_spans::longest(self.session, model, &mut jobs);
        let mut flame = Flame {
            start_unix_ns: model.start_unix_ns,
            end_unix_ns: model.end_unix_ns,
            peak_bytes: model.peak_bytes,
            peak_ns: peak_ns(model),
            processes: processes(model),
            threads: self.threads.clone(),
            jobs,
            job_spans,
            n_more_jobs,
            timeline: timeline(
                &model.processes,
                model.start_unix_ns,
                model.quality.peak_moment,
            ),
            locations: locations.describe(&cut.locations, &mut texts),
            owners: owners(self.session, model, &cut.locations, &mut texts),
            texts: texts.values,
            nodes: cut.nodes,
            origins: self.origins.clone(),
            own: cut.own,
            lives: FlameLives {
                edges_ns: self.session.window.coarse(lives.n_bins()),
                entries: lives.entries.iter().map(life).collect(),
            },
            findings,
            min_share,
            quality: model.quality.clone(),
        };
        if self.n_before > 0 {
            forget_old_lines(&mut flame, self.n_before);
        }
        flame
    }
}

/// Removes the source text of lines that only the earlier side has. The text comes from the later side's file, where
/// that line number may hold different code.
fn forget_old_lines(both: &mut Flame, n_before: usize) {
    let mut is_new = vec![false; both.locations.len()];
    for own in &both.own {
        let thread = both.origins[own.origin as usize].thread;
        let process = both.threads[thread as usize].process;
        let mut at = own.node;
        while process as usize >= n_before && at != 0 {
            let node = both.nodes[at as usize];
            if let FlameContent::Frame(location) = node.content {
                is_new[location as usize] = true;
            }
            at = node.parent;
        }
    }
    for (location, is_new) in both.locations.iter_mut().zip(is_new) {
        if !is_new {
            location.source = None;
        }
    }
}

/// The time of the peak, in nanoseconds since the start; `None` if each process is at its own peak.
fn peak_ns(model: &StackModel) -> Option<u64> {
    match model.quality.peak_moment {
        PeakMoment::Common(ns) => Some(ns),
        PeakMoment::EachOwn => None,
        PeakMoment::OfProcess => model.processes.first().map(|it| it.peak_elapsed_ns),
    }
}

/// The node at the finding's location that is largest by the finding's measure.
fn node_of<'a>(
    finding: &Finding,
    nodes: &[FlameNode],
    own: &[Own],
    location: impl Fn(u32) -> &'a Location,
) -> Option<u32> {
    let measure = finding.measure?;
    let is_at_finding = |own: &&Own| match nodes[own.node as usize].content {
        FlameContent::Frame(at) => Some(location(at)) == finding.location.as_ref(),
        FlameContent::NoFrames => finding.location.is_none(),
        _ => false,
    };
    let at_finding = own.iter().filter(is_at_finding);
    let largest = at_finding.max_by_key(|own| own.amounts[measure as usize].bytes)?;
    Some(largest.node)
}

fn life(life: &Lifetime) -> FlameLife {
    FlameLife {
        own: life.site,
        birth: life.birth,
        death: life.death,
        bytes: life.bytes,
        count: life.count,
    }
}

fn processes(model: &StackModel) -> Vec<FlameProcess> {
    let describe = |process: &crate::model::ProcessStacks| {
        let start_ns = process.start_unix_ns.saturating_sub(model.start_unix_ns);
        FlameProcess {
            host: process.host.clone(),
            executable: process.executable.clone(),
            working_directory: process.working_directory.clone(),
            python_version: process.python_version,
            python_allocator: process.python_allocator.clone(),
            mode: process.mode,
            start_ns,
            end_ns: start_ns.saturating_add(process.duration_ns),
            peak_ns: start_ns.saturating_add(process.own_peak_elapsed_ns),
        }
    };
    model.processes.iter().map(describe).collect()
}

/// The threads of all processes, and the number of each process's first thread.
fn threads(model: &StackModel) -> (Vec<FlameThread>, Vec<u32>) {
    let mut threads = Vec::new();
    let mut first = Vec::new();
    for (number, process) in model.processes.iter().enumerate() {
        first.push(threads.len() as u32);
        threads.extend(process.threads.iter().map(|thread| FlameThread {
            process: number as u32,
            os_id: thread.os_id,
            name: thread.name.clone(),
            is_main: thread.os_id != 0 && thread.os_id == process.main_thread,
        }));
    }
    (threads, first)
}

/// Returns the owner of each file and native library of these locations. The two sides of a comparison may lie in
/// different folders, so a file is user code if it is user code in any process.
fn owners(
    session: &Session,
    model: &StackModel,
    numbers: &[u32],
    texts: &mut Interner<Rc<str>>,
) -> Vec<(u32, Owner)> {
    let processes = session.processes.iter();
    let codes: Vec<UserCode> = processes.map(|it| UserCode::new(&it.header)).collect();
    let mut known = FxHashSet::default();
    let mut owners = Vec::new();
    for &number in numbers {
        let at = &model.locations[number as usize];
        let text = texts.number(at.library.as_ref().unwrap_or(&at.file).clone());
        let Some(first) = codes.first().filter(|_| known.insert(text)) else {
            continue;
        };
        let is_user = codes[1..].iter().any(|code| code.contains(at));
        owners.push((
            text,
            if is_user {
                Owner::User
            } else {
                first.owner(at)
            },
        ));
    }
    owners
}

/// Describes locations: names, module, library and source text.
struct Locations<'a> {
    model: &'a StackModel,
    modules: Option<Modules<'a>>,
    sources: Option<Sources>,
}

impl<'a> Locations<'a> {
    fn new(session: &'a Session, model: &'a StackModel, limits: FlameLimits) -> Locations<'a> {
        let first = session.processes.first();
        let directory = first.map_or("", |process| &*process.header.working_directory);
        let sources = (limits.max_source_bytes > 0)
            .then(|| Sources::new(directory, model.end_unix_ns, limits.max_source_bytes));
        Locations {
            model,
            modules: first.map(|process| Modules::new(&process.header)),
            sources,
        }
    }

    fn describe(mut self, numbers: &[u32], texts: &mut Interner<Rc<str>>) -> Vec<FlameLocation> {
        let model = self.model;
        let locations = numbers
            .iter()
            .map(|&number| &model.locations[number as usize]);
        locations.map(|at| self.location(at, texts)).collect()
    }

    fn location(&mut self, at: &Location, texts: &mut Interner<Rc<str>>) -> FlameLocation {
        let module = self
            .modules
            .as_ref()
            .and_then(|known| known.of_location(at));
        let sources = self.sources.as_mut();
        FlameLocation {
            function: texts.number(at.function.clone()),
            file: texts.number(at.file.clone()),
            line: at.line,
            module: module.map(|module| texts.number(module.into())),
            is_import_system: is_import_system(&at.file),
            library: at
                .library
                .as_ref()
                .map(|library| texts.number(library.clone())),
            source: sources.and_then(|sources| sources.line(&at.file, at.line)),
        }
    }
}
