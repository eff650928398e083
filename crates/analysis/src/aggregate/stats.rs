//! Totals, the histogram of sizes, and the locations and modules that allocated most.

use heaptide_capture::Allocator;
use heaptide_tally::Amount;
use rustc_hash::FxHashMap;

use super::{lifetimes, peak_bytes, quality};
use crate::findings::{findings, still_alive};
use crate::load::{Session, innermost_of_program};
use crate::model::{Finding, Histogram, LocationSum, Measure, Metadata, ModuleSum, SizeBin, Stats};
use crate::symbols::{LocationId, Modules};

const N_BINS: usize = 10;
/// The module name if no frame of the program is on the stack.
const NO_MODULE: &str = "<root>";

/// The numbers of all allocations. `n_largest` is the number of locations and modules to list.
pub fn stats(session: &Session, n_largest: usize) -> Stats {
    stats_of(session, n_largest, Measure::Total)
}

/// Like [`stats`]; for [`Measure::Leaked`], allocators, locations and modules count leaked blocks only.
pub fn stats_of(session: &Session, n_largest: usize, measure: Measure) -> Stats {
    let is_leaked = measure == Measure::Leaked;
    let mut live = Amount::default();
    let mut total = Amount::default();
    let mut allocators: FxHashMap<Allocator, u64> = FxHashMap::default();
    let mut locations: FxHashMap<Option<LocationId>, Amount> = FxHashMap::default();
    let mut modules: FxHashMap<&str, Amount> = FxHashMap::default();
    for process in &session.processes {
        let known = Modules::new(&process.header);
        let of_location: Vec<Option<&str>> = session
            .names
            .iter()
            .map(|at| known.of_location(at))
            .collect();
        total += process.sums.total;
        for site in &process.sums.sites {
            // Without totals, the blocks at the peak show which lines allocate.
            let amount = if is_leaked {
                site.live
            } else if process.sums.has_totals {
                site.total
            } else {
                site.peak
            };
            if is_leaked && amount.count == 0 {
                continue;
            }
            live += site.live;
            let count = allocators.entry(site.allocator).or_default();
            *count = amount.count.saturating_add(*count);
            let innermost = innermost_of_program(session, process, site.stack);
            *locations.entry(innermost).or_default() += amount;
            let module = process
                .frames(site.stack)
                .find_map(|id| of_location[id.0 as usize]);
            *modules.entry(module.unwrap_or(NO_MODULE)).or_default() += amount;
        }
    }

    let mut allocators: Vec<(Allocator, u64)> = allocators.into_iter().collect();
    allocators.retain(|&(_, count)| count > 0);
    allocators.sort_by_key(|&(allocator, count)| (std::cmp::Reverse(count), allocator));

    let locations: Vec<LocationSum> = locations
        .into_iter()
        .map(|(id, amount)| LocationSum {
            location: id.map(|id| session.names.get(id).clone()),
            bytes: amount.bytes,
            count: amount.count,
        })
        .collect();
    let key = |sum: &LocationSum| {
        let location = sum.location.as_ref();
        location.map(|at| (at.file.clone(), at.line, at.function.clone()))
    };
    let modules: Vec<ModuleSum> = modules
        .into_iter()
        .map(|(module, amount)| ModuleSum {
            module: module.to_owned(),
            bytes: amount.bytes,
            count: amount.count,
        })
        .collect();
    let name = |sum: &ModuleSum| sum.module.clone();

    Stats {
        n_allocations: total.count,
        total_bytes: total.bytes,
        peak_bytes: peak_bytes(session),
        histogram: histogram(session),
        allocators,
        top_by_size: largest(locations.clone(), n_largest, |sum| sum.bytes, key),
        top_by_count: largest(locations, n_largest, |sum| sum.count, key),
        modules_by_size: largest(modules.clone(), n_largest, |sum| sum.bytes, name),
        modules_by_count: largest(modules, n_largest, |sum| sum.count, name),
        metadata: metadata(session),
        lifetimes: lifetimes(session),
        jobs: Vec::new(),
        process_groups: Vec::new(),
        findings: match is_leaked {
            true => leak_findings(session),
            false => findings(session),
        },
        quality: quality(session),
        leaked: is_leaked.then_some((live.bytes, live.count)),
    }
}

/// The findings about growth, and about the line that holds most at the end.
fn leak_findings(session: &Session) -> Vec<Finding> {
    let mut found = findings(session);
    found.retain(|finding| finding.measure == Some(Measure::Leaked));
    found.extend(still_alive(session, 0.0));
    found
}

/// The `n` largest by a number, largest first; ties are sorted by name, so that a report does not change between runs.
fn largest<T, K: Ord>(
    mut sums: Vec<T>,
    n: usize,
    number: fn(&T) -> u64,
    name: impl Fn(&T) -> K,
) -> Vec<T> {
    sums.sort_by_cached_key(|sum| (std::cmp::Reverse(number(sum)), name(sum)));
    sums.truncate(n);
    sums
}

fn histogram(session: &Session) -> Option<Histogram> {
    let mut counts: Vec<(u64, f64)> = Vec::new();
    for process in &session.processes {
        counts.extend(process.sums.weighed_sizes());
    }
    let smallest = counts.iter().map(|&(size, _)| size).min()?;
    let largest = counts.iter().map(|&(size, _)| size).max()?;
    let least = counts
        .iter()
        .map(|&(size, _)| size)
        .filter(|&size| size > 0)
        .min();
    let mut low = (least.unwrap_or(1) as f64).ln();
    let high = (largest.max(1) as f64).ln();
    if low == high {
        low /= 2.0;
    }
    let step = (high - low) / N_BINS as f64;
    let mut bins = Vec::new();
    let mut from = 0;
    for number in 1..=N_BINS {
        let edge = (low + step * number as f64).exp() as u64;
        let to = if number == N_BINS {
            largest
        } else {
            edge.min(largest).max(from)
        };
        let is_in = |size: u64| size >= from && (size < to || number == N_BINS);
        let inside = counts.iter().filter(|&&(size, _)| is_in(size));
        let count = inside.map(|&(_, n)| n).sum::<f64>().round() as u64;
        bins.push(SizeBin { from, to, count });
        from = to;
    }
    Some(Histogram {
        smallest,
        largest,
        bins,
    })
}

fn metadata(session: &Session) -> Metadata {
    let Some(first) = session.processes.first() else {
        return Metadata::default();
    };
    let starts = session
        .processes
        .iter()
        .map(|process| process.header.started_unix_ns);
    let ends = session
        .processes
        .iter()
        .map(|process| process.unix_ns(process.end_units()));
    Metadata {
        start_unix_ns: starts.min().unwrap_or(0),
        end_unix_ns: ends.max().unwrap_or(0),
        n_frames: session
            .processes
            .iter()
            .map(|process| process.n_frames)
            .fold(0, u64::saturating_add),
        command: first.header.command.clone(),
        pid: first.header.pid,
        main_thread: first.header.main_thread,
        python_allocator: first.header.python_allocator.clone(),
        native: session
            .processes
            .iter()
            .any(|process| process.header.mode.native),
        objects: session
            .processes
            .iter()
            .any(|process| process.header.mode.objects),
        aggregate: session
            .processes
            .iter()
            .any(|process| process.header.mode.aggregate),
    }
}
