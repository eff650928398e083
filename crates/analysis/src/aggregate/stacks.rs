//! All sites with their stacks, for exports, pages and comparisons. Nothing is left out or summed up, except that frames
//! on the same line are merged.

use heaptide_tally::{JobKey, Lifetimes, StackId};
use rustc_hash::FxHashMap;

use super::{peak_bytes, quality};
use crate::findings::findings;
use crate::interner::Interner;
use crate::load::{Process, Session};
use crate::model::{ProcessStacks, Reading, SiteSum, StackModel, StackNode, ThreadName};
use crate::symbols::LocationId;

pub fn stacks(session: &Session) -> StackModel {
    stacks_with_index(session).0
}

/// Returns the same as [`stacks`]. Also returns, for each process, the index of each of its stacks in the model, by
/// stack number.
pub fn stacks_with_index(session: &Session) -> (StackModel, Vec<Vec<Option<usize>>>) {
    let mut nodes = Nodes::default();
    let processes = session.processes.iter();
    let (processes, index): (Vec<ProcessStacks>, _) = processes
        .map(|process| describe(process, &mut nodes))
        .unzip();
    let ends = session.processes.iter();
    let ends = ends.map(|process| process.unix_ns(process.end_units()));
    let locations = nodes.locations.values.iter();
    let model = StackModel {
        start_unix_ns: processes
            .iter()
            .map(|process| process.start_unix_ns)
            .min()
            .unwrap_or(0),
        end_unix_ns: ends.max().unwrap_or(0),
        processes,
        locations: locations.map(|&id| session.names.get(id).clone()).collect(),
        stacks: nodes.stacks.values,
        jobs: nodes.jobs.values,
        peak_bytes: peak_bytes(session),
        findings: findings(session),
        quality: quality(session),
    };
    (model, index)
}

/// The stacks and locations of all processes.
#[derive(Default)]
struct Nodes {
    stacks: Interner<StackNode>,
    locations: Interner<LocationId>,
    jobs: Interner<String>,
}

impl Nodes {
    /// The number of a job's name; `None` outside of jobs.
    fn job(&mut self, process: &Process, job: JobKey) -> Option<u32> {
        (job != JobKey::NONE).then(|| self.jobs.number_of(&*process.job_name(job)))
    }

    fn stack(&mut self, parent: Option<usize>, id: LocationId) -> usize {
        let location = self.locations.number(id) as usize;
        self.stacks.number(StackNode { parent, location }) as usize
    }
}

fn describe(process: &Process, nodes: &mut Nodes) -> (ProcessStacks, Vec<Option<usize>>) {
    let (header, registry, sums) = (&process.header, &process.registry, &process.sums);
    let elapsed_ns = |units| registry.elapsed_ns(units);
    let mut threads: Vec<ThreadName> = registry
        .threads
        .iter()
        .map(|thread| ThreadName {
            os_id: thread.os_id,
            name: thread.name.clone(),
            started_ns: elapsed_ns(thread.started),
        })
        .collect();
    let (sites, lives, of_stack) = sites(process, nodes, &mut threads);
    let resident = registry.resident.iter().map(|sample| Reading {
        elapsed_ns: elapsed_ns(sample.time),
        bytes: sample.bytes,
    });
    let described = ProcessStacks {
        start_unix_ns: header.started_unix_ns,
        duration_ns: elapsed_ns(process.end_units()),
        executable: header.executable.clone(),
        working_directory: header.working_directory.clone(),
        host: header.host.clone(),
        python_version: header.python_version,
        python_allocator: header.python_allocator.clone(),
        mode: header.mode,
        main_thread: header.main_thread,
        threads,
        sites,
        lives,
        total: sums.total,
        peak: sums.peak,
        peak_elapsed_ns: elapsed_ns(sums.peak_time),
        whole_peak_bytes: sums.whole_peak_bytes,
        own_peak_bytes: process.own_peak.bytes,
        own_peak_elapsed_ns: elapsed_ns(process.own_peak_time),
        leaked: sums.live,
        heap: heap(process),
        resident: resident.collect(),
    };
    (described, of_stack)
}

/// The heap size at each change, and at the end.
fn heap(process: &Process) -> Vec<Reading> {
    let series = &process.sums.heap;
    let mut readings: Vec<Reading> = Vec::new();
    let bins = series.highest.iter().copied().enumerate();
    let bins = bins.map(|(bin, bytes)| (series.bin_start(bin), bytes));
    let reading = |units, bytes| Reading {
        elapsed_ns: process.registry.elapsed_ns(units),
        bytes,
    };
    for (units, bytes) in bins {
        if readings.last().is_none_or(|last| last.bytes != bytes) {
            readings.push(reading(units, bytes));
        }
    }
    // The last bin holds its highest value; the final size applies after it, until the end.
    let after = series.bin_start(series.highest.len());
    let end_bytes = process.sums.whole_end_bytes;
    readings.push(reading(after, end_bytes));
    if process.end_units() > after {
        readings.push(reading(process.end_units(), end_bytes));
    }
    readings
}

/// The sites, the lifetimes of their blocks, and the node of each stack. All nodes are `None` if jobs are at the root,
/// because a stack then has a node for each job.
fn sites(
    process: &Process,
    nodes: &mut Nodes,
    threads: &mut Vec<ThreadName>,
) -> (Vec<SiteSum>, Lifetimes, Vec<Option<usize>>) {
    let sums = &process.sums;
    let mut of_stack: FxHashMap<Option<LocationId>, Vec<Option<usize>>> = FxHashMap::default();
    let mut jobs: FxHashMap<JobKey, Option<u32>> = FxHashMap::default();
    let streams = process.registry.threads.iter().enumerate();
    let mut of_stream: FxHashMap<u32, usize> = streams
        .map(|(index, thread)| (thread.stream, index))
        .collect();
    let mut known = FxHashMap::default();
    let mut sites: Vec<SiteSum> = Vec::new();
    let mut lives = sums.lives.clone();
    let mut number_of = Vec::with_capacity(sums.sites.len());
    for site in &sums.sites {
        let root = process.job_root(site.job);
        let of_stack = of_stack
            .entry(root)
            .or_insert_with(|| nodes_of_stacks(process, nodes, root));
        let stack = of_stack[site.stack.0 as usize];
        let job = *jobs
            .entry(site.job)
            .or_insert_with(|| nodes.job(process, site.job));
        let thread = *of_stream.entry(site.stream).or_insert_with(|| {
            // The record that describes the thread was lost.
            threads.push(ThreadName::default());
            threads.len() - 1
        });
        let at = *known
            .entry((stack, thread, site.allocator, job))
            .or_insert_with(|| {
                sites.push(SiteSum {
                    stack,
                    thread,
                    allocator: site.allocator,
                    job,
                    total: Default::default(),
                    peak: Default::default(),
                    leaked: Default::default(),
                    temporary: Default::default(),
                    block_time_ns: site.block_time.map(|_| 0),
                });
                sites.len() - 1
            });
        sites[at].total += site.total;
        sites[at].peak += site.peak;
        sites[at].leaked += site.live;
        sites[at].temporary += site.temporary;
        if let (Some(ns), Some(units)) = (&mut sites[at].block_time_ns, site.block_time) {
            *ns = ns.saturating_add(process.registry.span_ns(units));
        }
        number_of.push(at as u32);
    }
    for life in &mut lives.entries {
        life.site = number_of[life.site as usize];
    }
    lives.merge();
    let without_job = of_stack.remove(&None);
    let without_job = without_job.unwrap_or_else(|| vec![None; sums.stacks.n_stacks()]);
    (sites, lives, without_job)
}

/// The nodes of all stacks that have sites, and of their callers. Callers have smaller numbers than callees, so one
/// pass is enough. `root` is the outermost frame of a job, and only sites of that job count. It is `None` if jobs are
/// not at the root; all sites count then.
fn nodes_of_stacks(
    process: &Process,
    nodes: &mut Nodes,
    root: Option<LocationId>,
) -> Vec<Option<usize>> {
    let stacks = &process.sums.stacks;
    let mut is_wanted = vec![false; stacks.n_stacks()];
    let all = process.sums.sites.iter();
    for site in all.filter(|site| process.job_root(site.job) == root) {
        let mut at = site.stack;
        while at != StackId::EMPTY && !std::mem::replace(&mut is_wanted[at.0 as usize], true) {
            at = stacks.get(at).map_or(StackId::EMPTY, |stack| stack.parent);
        }
    }
    let root = root.map(|root| nodes.stack(None, root));
    let mut of_stack = vec![root; stacks.n_stacks()];
    for (id, _) in stacks.iter() {
        let at = id.0 as usize;
        if !is_wanted[at] {
            continue;
        }
        // Allocations of a hidden frame count for its caller.
        let parent = of_stack[process.caller(id).0 as usize];
        let shown = process.innermost(id).into_iter();
        of_stack[at] = shown.fold(parent, |caller, location| {
            Some(nodes.stack(caller, location))
        });
    }
    of_stack
}
