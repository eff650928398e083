//! Follows the capture of a running program: each refresh returns the memory that the program holds at that moment.

use std::borrow::Cow;
use std::path::Path;

use heaptide_capture::{Mode, OpenError, Registry};
use heaptide_tally::{Follower, HeapSeries, JobKey, Snapshot};
use rustc_hash::FxHashMap;

use crate::aggregate::BinnedProcess;
use crate::files;
use crate::filter::Filter;
use crate::load::{VisibleFrame, frames, job_name, visible_frames};
use crate::model::live::{Curve, Held, Live, LiveFunction, LiveJob, LiveThread};
use crate::model::{Reading, Stopped};
use crate::symbols::{LocationId, Names, NativeNames};

/// If there are more functions, only the largest by each of the three numbers are kept: a third of this many per number.
/// Users do not scroll through more.
const MAX_FUNCTIONS: usize = 1_500;
/// The maximum number of job names; the smallest ones count as one.
const MAX_JOBS: usize = 100;
const OTHER_JOBS: &str = "<other jobs>";
/// More than the columns of any terminal.
const MAX_BINS: u64 = 400;
const MIN_BIN_NS: u64 = 1_000_000;

/// A capture that is still being written.
pub struct LiveReader {
    follower: Follower,
    names: Names,
    visible: Vec<VisibleFrame>,
    /// Native functions resolved so far. Resolving is slow, so each address is resolved once.
    natives: NativeNames,
    /// The number of stacks and code objects that `visible` covers.
    n_known: (usize, usize),
}

impl LiveReader {
    pub fn open(path: &Path) -> Result<LiveReader, OpenError> {
        Ok(LiveReader {
            follower: files::follow_capture(path)?,
            names: Names::default(),
            visible: Vec::new(),
            natives: NativeNames::default(),
            n_known: (0, 0),
        })
    }

    pub fn pid(&self) -> u32 {
        self.follower.capture().header.pid
    }

    /// Reads new events. `is_over` means that the program has exited, so no more will follow.
    pub fn refresh(&mut self, is_over: bool) -> Live {
        self.follower.refresh(is_over);
        let now = self.follower.tally().snapshot();
        self.name_new_stacks();
        let capture = self.follower.capture();
        let (header, registry) = (&capture.header, &capture.registry);
        let resident = registry.resident.last();
        let end_units = resident.map_or(0, |sample| sample.time).max(now.time);
        let end_ns = registry.elapsed_ns(registry.end.unwrap_or(0).max(end_units));
        let (threads, thread_of) = threads(registry, &now);
        let (jobs, job_of) = jobs(registry, &now, &thread_of);
        let (functions, n_more) = self.functions(&now, &thread_of, &job_of);
        Live {
            pid: header.pid,
            command: header.command.clone(),
            elapsed_ns: end_ns,
            is_ended: registry.end.is_some() && (is_over || self.follower.is_complete()),
            heap_bytes: now.live.bytes,
            n_blocks: now.live.count,
            peak_bytes: now.peak.bytes,
            resident_bytes: resident.map(|sample| sample.bytes),
            limit_bytes: registry.limit,
            sample_bytes: coarsest(registry.modes(header.mode)),
            n_events: now.n_events,
            lost: registry.lost.clone(),
            stopped: Stopped::of(registry),
            n_damaged: self.follower.damage().len() as u64,
            threads,
            jobs,
            functions,
            n_more,
            curve: curve(registry, &now.heap, now.live.bytes, end_ns),
        }
    }

    fn name_new_stacks(&mut self) {
        let n_stacks = self.follower.tally().stacks().n_stacks();
        let n_codes = self.follower.capture().registry.codes.len();
        if self.n_known != (n_stacks, n_codes) {
            self.n_known = (n_stacks, n_codes);
            let (tally, capture) = self.follower.parts();
            let frames = tally.stacks().iter().map(|(_, stack)| stack.frame);
            self.natives.find_more(frames, &capture.registry);
            let filter = Filter::default();
            let names = &mut self.names;
            (self.visible, _) =
                visible_frames(tally.stacks(), capture, &filter, &self.natives, names);
        }
    }

    /// The functions that hold memory, largest first, and the number of those left out.
    fn functions(
        &self,
        now: &Snapshot,
        thread_of: &FxHashMap<u32, u32>,
        job_of: &FxHashMap<JobKey, u32>,
    ) -> (Vec<LiveFunction>, u64) {
        let mut numbers: FxHashMap<(&str, &str), usize> = FxHashMap::default();
        let mut sums: Vec<Sum> = Vec::new();
        let mut of_location: FxHashMap<LocationId, usize> = FxHashMap::default();
        for (site_number, site) in now.sites.iter().enumerate() {
            let thread = thread_of.get(&site.stream).copied().unwrap_or(0);
            let job = job_of.get(&site.job).copied().unwrap_or(0);
            for (depth, id) in frames(&self.visible, site.stack).enumerate() {
                let number = *of_location.entry(id).or_insert_with(|| {
                    let at = self.names.get(id);
                    *numbers.entry((&at.function, &at.file)).or_insert_with(|| {
                        sums.push(Sum::new(id));
                        sums.len() - 1
                    })
                });
                let sum = &mut sums[number];
                let held = held_in(&mut sum.held, thread, job);
                if depth == 0 {
                    held.own_bytes = held.own_bytes.saturating_add(site.live.bytes);
                }
                // A block counts once for a recursive function.
                if sum.last_site.replace(site_number) != Some(site_number) {
                    let held = held_in(&mut sum.held, thread, job);
                    held.total_bytes = held.total_bytes.saturating_add(site.live.bytes);
                    held.count = held.count.saturating_add(site.live.count);
                }
            }
        }
        let n_all = sums.len();
        let kept = largest(sums);
        let n_more = (n_all - kept.len()) as u64;
        let functions = kept.into_iter().map(|sum| {
            let at = self.names.get(sum.location);
            LiveFunction {
                function: at.function.to_string(),
                file: at.file.to_string(),
                held: sorted(sum.held),
            }
        });
        (functions.collect(), n_more)
    }
}

struct Sum {
    /// One line of the function.
    location: LocationId,
    held: HeldBy,
    /// The last site that was counted for it.
    last_site: Option<usize>,
}

impl Sum {
    fn new(location: LocationId) -> Sum {
        Sum {
            location,
            held: HeldBy::default(),
            last_site: None,
        }
    }

    fn sum(&self, number: fn(&Held) -> u64) -> u64 {
        self.held.values().map(number).fold(0, u64::saturating_add)
    }
}

/// Memory by thread and job.
type HeldBy = FxHashMap<(u32, u32), Held>;

fn held_in(all: &mut HeldBy, thread: u32, job: u32) -> &mut Held {
    all.entry((thread, job)).or_insert(Held {
        thread,
        job,
        ..Held::default()
    })
}

fn sorted(held: HeldBy) -> Vec<Held> {
    let mut held: Vec<Held> = held.into_values().collect();
    held.sort_unstable_by_key(|held| (held.thread, held.job));
    held
}

/// The functions that are largest by any number, largest first.
fn largest(sums: Vec<Sum>) -> Vec<Sum> {
    let numbers: [fn(&Held) -> u64; 3] = [
        |held| held.count,
        |held| held.own_bytes,
        |held| held.total_bytes,
    ];
    let mut order: Vec<usize> = (0..sums.len()).collect();
    let mut is_kept = vec![sums.len() <= MAX_FUNCTIONS; sums.len()];
    for number in numbers {
        order.sort_by_key(|&at| (std::cmp::Reverse(sums[at].sum(number)), at));
        for &at in order.iter().take(MAX_FUNCTIONS / numbers.len()) {
            is_kept[at] = true;
        }
    }
    let mut sums: Vec<Option<Sum>> = sums.into_iter().map(Some).collect();
    let kept = order.into_iter().filter(|&at| is_kept[at]);
    kept.filter_map(|at| sums[at].take()).collect()
}

/// The threads that are known or hold memory, and the position of each stream's thread.
fn threads(registry: &Registry, now: &Snapshot) -> (Vec<LiveThread>, FxHashMap<u32, u32>) {
    let mut threads = Vec::new();
    let mut positions = FxHashMap::default();
    let known = registry.threads.iter();
    let known = known.map(|thread| (thread.stream, thread.os_id, thread.name.as_deref()));
    let unknown = now.sites.iter().map(|site| (site.stream, 0, None));
    for (stream, os_id, name) in known.chain(unknown) {
        positions.entry(stream).or_insert_with(|| {
            threads.push(LiveThread {
                os_id,
                name: name.unwrap_or_default().to_owned(),
            });
            threads.len() as u32 - 1
        });
    }
    (threads, positions)
}

/// The names of jobs that run or hold memory, and the position of each site's job. The first entry is memory outside of
/// jobs.
fn jobs(
    registry: &Registry,
    now: &Snapshot,
    thread_of: &FxHashMap<u32, u32>,
) -> (Vec<LiveJob>, FxHashMap<JobKey, u32>) {
    let known = &registry.jobs;
    let mut names: FxHashMap<JobKey, Cow<'_, str>> = FxHashMap::default();
    let mut sizes: FxHashMap<Cow<'_, str>, (u64, u64)> = FxHashMap::default();
    for site in now.sites.iter().filter(|site| site.job != JobKey::NONE) {
        let name = names
            .entry(site.job)
            .or_insert_with(|| job_name(known, site.job));
        let (bytes, _) = sizes.entry(name.clone()).or_default();
        *bytes = bytes.saturating_add(site.live.bytes);
    }
    for job in known.iter().filter(|job| job.ended.is_none()) {
        sizes.entry(known.name(job)).or_default().1 += 1;
    }
    let mut sizes: Vec<(Cow<'_, str>, (u64, u64))> = sizes.into_iter().collect();
    sizes.sort_unstable_by(|(one, (bytes, _)), (other, (other_bytes, _))| {
        other_bytes.cmp(bytes).then_with(|| one.cmp(other))
    });
    let mut jobs = vec![LiveJob::default()];
    let mut at_name: FxHashMap<&str, u32> = FxHashMap::default();
    for (name, (_, n_running)) in &sizes {
        if jobs.len() <= MAX_JOBS {
            jobs.push(LiveJob {
                name: match jobs.len() < MAX_JOBS || sizes.len() == MAX_JOBS {
                    true => name.to_string(),
                    false => OTHER_JOBS.to_owned(),
                },
                ..LiveJob::default()
            });
        }
        let at = jobs.len() - 1;
        jobs[at].n_running += n_running;
        at_name.insert(name, at as u32);
    }
    let mut held = vec![HeldBy::default(); jobs.len()];
    let mut positions: FxHashMap<JobKey, u32> = FxHashMap::default();
    for site in &now.sites {
        let name = names.get(&site.job);
        let job = name
            .and_then(|name| at_name.get(&**name).copied())
            .unwrap_or(0);
        positions.insert(site.job, job);
        let thread = thread_of.get(&site.stream).copied().unwrap_or(0);
        let held = held_in(&mut held[job as usize], thread, job);
        held.own_bytes = held.own_bytes.saturating_add(site.live.bytes);
        held.total_bytes = held.total_bytes.saturating_add(site.live.bytes);
        held.count = held.count.saturating_add(site.live.count);
    }
    for (job, held) in jobs.iter_mut().zip(held) {
        job.held = sorted(held);
    }
    (jobs, positions)
}

fn curve(registry: &Registry, heap: &HeapSeries, live_bytes: u64, end_ns: u64) -> Curve {
    let bin_ns = end_ns.div_ceil(MAX_BINS).max(MIN_BIN_NS);
    let process = BinnedProcess {
        bin_ns,
        n_bins: (end_ns / bin_ns) as usize + 1,
        start_ns: 0,
        end_ns,
    };
    let bins = heap.highest.iter().copied().enumerate();
    let bins = bins.map(|(bin, bytes)| (heap.bin_start(bin), bytes));
    let after = (heap.bin_start(heap.highest.len()), live_bytes);
    let resident = registry.resident.iter();
    let resident = resident.map(|sample| (sample.time, sample.bytes));
    let reading = |(units, bytes)| Reading {
        elapsed_ns: registry.elapsed_ns(units),
        bytes,
    };
    let heap: Vec<Reading> = bins.chain([after]).map(reading).collect();
    let resident: Vec<Reading> = resident.map(reading).collect();
    Curve {
        bin_ns,
        heap: process.highest(&heap),
        resident: process.highest(&resident),
    }
}

/// The largest sampling distance; 0 if every allocation was recorded.
fn coarsest(modes: impl Iterator<Item = Mode>) -> u64 {
    modes.map(|mode| mode.sample_bytes).max().unwrap_or(0)
}
