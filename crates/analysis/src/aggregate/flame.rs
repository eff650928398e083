//! The call tree of the pages: all stacks of all processes as one tree, cut where nothing can be seen any more.

use std::rc::Rc;

use heaptide_tally::{Lifetime, Lifetimes};
use rustc_hash::FxHashMap;

use super::stacks;
use super::timeline::timeline;
use crate::load::Session;
use crate::model::flame::{
    Flame, FlameContent, FlameLife, FlameLives, FlameLocation, FlameNode, FlameProcess,
    FlameThread, Measured, Origin, Own,
};
use crate::model::{Finding, Location, Measure, SiteSum, StackModel};
use crate::symbols::{Modules, Sources, is_import_system};

/// How much of the tree a page gets.
#[derive(Clone, Copy, Debug)]
pub struct FlameLimits {
    /// Frames whose share of the whole is smaller in every measure are cut, even if there is room for them.
    pub min_share: f64,
    /// So many frames at most, the largest.
    pub max_frames: usize,
    /// Bytes of source text; 0 for none.
    pub max_source_bytes: usize,
    /// So many entries of when blocks were born and died; beyond, each two bins of time become one.
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

const SQUARE_KIB: f64 = 1024.0 * 1024.0;

type Amounts = [Measured; Measure::ALL.len()];

pub fn flame(session: &Session, limits: FlameLimits) -> Flame {
    let all = stacks(session);
    let (threads, first_thread) = threads(&all);
    let mut origins = Numbers::default();
    let mut building = Building::new(&all);
    let n_bins = all.processes.iter().map(|process| process.lives.n_bins());
    let n_bins = n_bins.filter(|&n| n > 0).min().unwrap_or(0);
    for (process, first) in all.processes.iter().zip(first_thread) {
        let first_place = building.places.len();
        for site in &process.sites {
            let origin = origins.of(Origin {
                thread: first + site.thread as u32,
                allocator: site.allocator,
            });
            building.add(site, origin);
        }
        building.add_lives(&process.lives, n_bins, first_place);
    }
    let (min_share, cut) = building.cut(limits);
    let mut lives = cut.lives;
    while lives.entries.len() > limits.max_lives && lives.edges.len() > 2 {
        lives.halve();
    }
    let findings = all.findings.iter().cloned();
    let findings = findings.map(|finding| {
        let node = node_of(&finding, &cut.nodes, &cut.own, |location| {
            &all.locations[cut.locations[location as usize] as usize]
        });
        (finding, node)
    });
    let findings = findings.collect();
    let mut texts = Numbers::default();
    let locations = Places::new(session, &all, limits).describe(&cut.locations, &mut texts);
    Flame {
        start_unix_ns: all.start_unix_ns,
        end_unix_ns: all.end_unix_ns,
        peak_bytes: all.peak_bytes,
        processes: processes(&all),
        threads,
        timeline: timeline(&all.processes, all.start_unix_ns),
        texts: texts.values,
        locations,
        nodes: cut.nodes,
        origins: origins.values,
        own: cut.own,
        lives: FlameLives {
            edges_ns: session.window.coarse(lives.n_bins()),
            entries: lives.entries.iter().map(life).collect(),
        },
        findings,
        min_share,
        quality: all.quality.clone(),
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
    let is_there = |own: &&Own| match nodes[own.node as usize].content {
        FlameContent::Frame(at) => Some(location(at)) == finding.location.as_ref(),
        FlameContent::NoFrames => finding.location.is_none(),
        _ => false,
    };
    let there = own.iter().filter(is_there);
    let largest = there.max_by_key(|own| own.amounts[measure as usize].bytes)?;
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

fn processes(all: &StackModel) -> Vec<FlameProcess> {
    let describe = |process: &crate::model::ProcessStacks| {
        let start_ns = process.start_unix_ns.saturating_sub(all.start_unix_ns);
        FlameProcess {
            host: process.host.clone(),
            executable: process.executable.clone(),
            working_directory: process.working_directory.clone(),
            python_version: process.python_version,
            python_allocator: process.python_allocator.clone(),
            mode: process.mode,
            start_ns,
            end_ns: start_ns.saturating_add(process.duration_ns),
            peak_ns: start_ns.saturating_add(process.peak_elapsed_ns),
        }
    };
    all.processes.iter().map(describe).collect()
}

/// The threads of all processes, and for each process which of them is its first.
fn threads(all: &StackModel) -> (Vec<FlameThread>, Vec<u32>) {
    let mut threads = Vec::new();
    let mut first = Vec::new();
    for (number, process) in all.processes.iter().enumerate() {
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

/// Gives equal values the same number.
struct Numbers<T> {
    values: Vec<T>,
    known: FxHashMap<T, u32>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Numbers {
            values: Vec::new(),
            known: FxHashMap::default(),
        }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Numbers<T> {
    fn of(&mut self, value: T) -> u32 {
        let values = &mut self.values;
        *self.known.entry(value.clone()).or_insert_with(|| {
            values.push(value);
            values.len() as u32 - 1
        })
    }
}

/// The whole tree, before it is cut.
struct Building {
    nodes: Vec<FlameNode>,
    /// As in the result, but in any order.
    own: Vec<Own>,
    no_frames: Option<u32>,
    /// Node and origin of each site that was added.
    places: Vec<(u32, u32)>,
    /// Sites are named by their numbers in `places`.
    lives: Lifetimes,
}

/// What is left of it.
struct Cut {
    nodes: Vec<FlameNode>,
    own: Vec<Own>,
    /// Sites are numbers in `own`.
    lives: Lifetimes,
    /// Numbers in the stack model of the locations that are left; frames name them by their place here.
    locations: Vec<u32>,
}

impl Building {
    /// Node 0 is the root; stack `n` of the model is node `n + 1`.
    fn new(all: &StackModel) -> Building {
        let root = FlameNode {
            parent: 0,
            content: FlameContent::Root,
        };
        let frames = all.stacks.iter().map(|stack| FlameNode {
            parent: stack.parent.map_or(0, |parent| parent as u32 + 1),
            content: FlameContent::Frame(stack.location as u32),
        });
        Building {
            nodes: [root].into_iter().chain(frames).collect(),
            own: Vec::new(),
            no_frames: None,
            places: Vec::new(),
            lives: Lifetimes::default(),
        }
    }

    fn add(&mut self, site: &SiteSum, origin: u32) {
        let node = match site.stack {
            Some(stack) => stack as u32 + 1,
            None => *self.no_frames.get_or_insert_with(|| {
                self.nodes.push(FlameNode {
                    parent: 0,
                    content: FlameContent::NoFrames,
                });
                self.nodes.len() as u32 - 1
            }),
        };
        self.places.push((node, origin));
        let measured = |amount: heaptide_tally::Amount| Measured {
            bytes: amount.bytes,
            count: amount.count,
            variance: (amount.variance / SQUARE_KIB).round() as u64,
        };
        let amounts = Measure::ALL.map(|measure| measured(site.amount(measure)));
        if amounts.iter().any(|amount| *amount != Measured::default()) {
            self.own.push(Own {
                node,
                origin,
                amounts,
            });
        }
    }

    /// Of several processes the one with the fewest bins decides.
    fn add_lives(&mut self, lives: &Lifetimes, n_bins: usize, first_place: usize) {
        let mut lives = lives.clone();
        while lives.n_bins() > n_bins {
            lives.halve();
        }
        let entries = lives.entries.iter().map(|life| Lifetime {
            site: life.site + first_place as u32,
            ..*life
        });
        self.lives.entries.extend(entries);
        if lives.n_bins() > 0 {
            self.lives.edges = lives.edges;
        }
    }

    /// The tree without what is too small, and the share below which that is.
    fn cut(mut self, limits: FlameLimits) -> (f64, Cut) {
        let shares = self.shares();
        let mut min_share = limits.min_share;
        if shares.len() > limits.max_frames {
            let mut sorted = shares.clone();
            let (_, &mut at_limit, _) =
                sorted.select_nth_unstable_by(limits.max_frames, |one, other| other.total_cmp(one));
            // Of equals none is kept, or there would be too many.
            min_share = min_share.max(f64::from_bits(at_limit.to_bits() + 1));
        }
        // A caller has at least the share of those it called, so what is kept hangs together.
        let is_kept = |node: usize| node == 0 || shares[node] >= min_share;
        let mut cut = Cut {
            nodes: Vec::new(),
            own: Vec::new(),
            lives: self.lives,
            locations: Vec::new(),
        };
        let mut locations = Numbers::default();
        // For each node, which node of the result stands for it.
        let mut stands_for: Vec<u32> = Vec::with_capacity(self.nodes.len());
        let mut cut_below: FxHashMap<u32, u32> = FxHashMap::default();
        for (number, node) in self.nodes.iter().enumerate() {
            let parent = stands_for.get(node.parent as usize).copied().unwrap_or(0);
            if number != 0 && shares[number] == 0.0 {
                // Nothing was allocated here: sites that a bounded capture lists and that are empty.
                stands_for.push(parent);
                continue;
            }
            if is_kept(number) {
                let content = match node.content {
                    FlameContent::Frame(location) => FlameContent::Frame(locations.of(location)),
                    other => other,
                };
                stands_for.push(cut.nodes.len() as u32);
                cut.nodes.push(FlameNode { parent, content });
                continue;
            }
            let is_below_cut =
                matches!(cut.nodes[parent as usize].content, FlameContent::Cut { .. });
            let stand_in = if is_below_cut {
                parent
            } else {
                *cut_below.entry(parent).or_insert_with(|| {
                    let content = FlameContent::Cut { n_frames: 0 };
                    cut.nodes.push(FlameNode { parent, content });
                    cut.nodes.len() as u32 - 1
                })
            };
            if let FlameContent::Cut { n_frames } = &mut cut.nodes[stand_in as usize].content {
                *n_frames += 1;
            }
            stands_for.push(stand_in);
        }
        cut.locations = locations.values;
        for own in &mut self.own {
            own.node = stands_for[own.node as usize];
        }
        self.own.sort_unstable_by_key(|own| (own.node, own.origin));
        for own in self.own {
            match cut.own.last_mut() {
                Some(last) if (last.node, last.origin) == (own.node, own.origin) => {
                    add(&mut last.amounts, &own.amounts);
                }
                _ => cut.own.push(own),
            }
        }
        let known: FxHashMap<(u32, u32), u32> = {
            let own = cut.own.iter().zip(0..);
            own.map(|(own, number)| ((own.node, own.origin), number))
                .collect()
        };
        let number_of: Vec<Option<&u32>> = self
            .places
            .iter()
            .map(|&(node, origin)| known.get(&(stands_for[node as usize], origin)))
            .collect();
        cut.lives
            .entries
            .retain(|life| number_of[life.site as usize].is_some());
        for life in &mut cut.lives.entries {
            life.site = number_of[life.site as usize].copied().unwrap_or(0);
        }
        cut.lives.merge();
        (min_share, cut)
    }

    /// For each node, the largest share that it and those below it have in any measure.
    fn shares(&self) -> Vec<f64> {
        let mut sums = vec![Amounts::default(); self.nodes.len()];
        for own in &self.own {
            add(&mut sums[own.node as usize], &own.amounts);
        }
        for (number, node) in self.nodes.iter().enumerate().skip(1).rev() {
            let below = sums[number];
            add(&mut sums[node.parent as usize], &below);
        }
        let all = sums[0];
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let largest = |sum: &Amounts| {
            let pairs = sum.iter().zip(&all);
            pairs.fold(0.0, |largest: f64, (part, whole)| {
                let bytes = share(part.bytes, whole.bytes);
                largest.max(bytes).max(share(part.count, whole.count))
            })
        };
        sums.iter().map(largest).collect()
    }
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (sum, more) in sum.iter_mut().zip(more) {
        sum.bytes = sum.bytes.saturating_add(more.bytes);
        sum.count = sum.count.saturating_add(more.count);
        sum.variance = sum.variance.saturating_add(more.variance);
    }
}

/// What is known of locations beside their names.
struct Places<'a> {
    all: &'a StackModel,
    modules: Option<Modules<'a>>,
    sources: Option<Sources>,
}

impl<'a> Places<'a> {
    fn new(session: &'a Session, all: &'a StackModel, limits: FlameLimits) -> Places<'a> {
        let first = session.processes.first();
        let directory = first.map_or("", |process| &*process.header.working_directory);
        let sources = (limits.max_source_bytes > 0)
            .then(|| Sources::new(directory, all.end_unix_ns, limits.max_source_bytes));
        Places {
            all,
            modules: first.map(|process| Modules::new(&process.header)),
            sources,
        }
    }

    fn describe(mut self, numbers: &[u32], texts: &mut Numbers<Rc<str>>) -> Vec<FlameLocation> {
        let all = self.all;
        let locations = numbers
            .iter()
            .map(|&number| &all.locations[number as usize]);
        locations.map(|at| self.location(at, texts)).collect()
    }

    fn location(&mut self, at: &Location, texts: &mut Numbers<Rc<str>>) -> FlameLocation {
        let module = self
            .modules
            .as_ref()
            .and_then(|known| known.of_location(at));
        let sources = self.sources.as_mut();
        FlameLocation {
            function: texts.of(at.function.clone()),
            file: texts.of(at.file.clone()),
            line: at.line,
            module: module.map(|module| texts.of(module.into())),
            is_import_system: is_import_system(&at.file),
            library: at.library.as_ref().map(|library| texts.of(library.clone())),
            source: sources.and_then(|sources| sources.line(&at.file, at.line)),
        }
    }
}
