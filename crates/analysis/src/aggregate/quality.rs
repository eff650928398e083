//! The reliability of the numbers: losses, damage and sampling errors of all processes.

use std::collections::BTreeMap;

use super::arenas;
use crate::findings::{ledger, own_at_resident_peak, resident_peak};
use crate::load::{Process, Session};
use crate::model::{ModeInterval, ProcessSummary, Quality, Sampling, Stopped};
use heaptide_capture::{Header, Mode, Registry};

pub fn quality(session: &Session) -> Quality {
    let mut quality = Quality {
        peak_moment: session.peak_moment,
        filters: session.filter.describe(),
        has_interval: session.filter.chooses_time(),
        is_part: session.filter.chooses_sites(),
        sampling: sampling(session),
        arenas: arenas(session),
        ..Quality::default()
    };
    let is_all = !session.filter.chooses_sites() && !session.filter.chooses_time();
    let mut lost = BTreeMap::new();
    for process in &session.processes {
        quality.processes.push(ProcessSummary {
            ledger: ledger(process).filter(|_| is_all),
            name: session.name_of(process),
            shown: session.shown_name(process),
            ..describe(process)
        });
        for &(reason, count) in &process.registry.lost {
            *lost.entry(reason).or_insert(0) += count;
        }
        let path = &process.path;
        let damage = process.damage.iter();
        quality
            .damage
            .extend(damage.map(|damage| (path.clone(), damage.clone())));
        quality.lacks_totals |= !process.sums.has_totals;
        quality.n_unknown_frees += process.sums.n_unknown_frees;
        quality.n_overlaps += process.sums.n_overlaps;
        quality.mapped_files_bytes = quality
            .mapped_files_bytes
            .saturating_add(process.sums.mapped_files.bytes);
    }
    quality.n_runs = n_runs(&quality.processes);
    let hosts = quality.processes.iter();
    let hosts = hosts.map(|process| process.identity.host.clone());
    quality.hosts = hosts.filter(|host| !host.is_empty()).collect();
    quality.hosts.sort();
    quality.hosts.dedup();
    let hosts = quality.hosts.iter().map(String::as_str);
    quality.clock_difference_ns = clock_difference(&session.clock_offsets, hosts);
    quality.lost = lost.into_iter().filter(|&(_, count)| count > 0).collect();
    quality
}

fn describe(process: &Process) -> ProcessSummary {
    let (header, registry, sums) = (&process.header, &process.registry, &process.sums);
    ProcessSummary {
        path: process.path.clone(),
        session: (header.session != [0; 16]).then_some(header.session),
        identity: header.identity(),
        name: String::new(),
        shown: String::new(),
        title: header.title(),
        labels: header.labels(),
        run: header.run().to_owned(),
        pid: header.pid,
        parent_pid: header.parent_pid,
        command: header.command.clone(),
        n_allocations: sums.total.count,
        total_bytes: sums.total.bytes,
        peak_bytes: process.own_peak.bytes,
        peak_unix_ns: process.unix_ns(process.own_peak_time),
        at_peak_bytes: sums.peak.bytes,
        live_bytes: sums.live.bytes,
        resident_peak_bytes: resident_peak(registry),
        own_at_resident_peak_bytes: own_at_resident_peak(registry),
        limit_bytes: registry.limit,
        own_memory_bytes: registry.own_memory,
        n_threads: registry.threads.len() as u64,
        ended_in_order: registry.end.is_some(),
        stopped: Stopped::of(registry),
        joined_late: header.joined_late,
        attached_at_bytes: Some(header.attached_at_bytes).filter(|&bytes| bytes > 0),
        n_events: sums.n_events,
        times_unknown_until_ns: process
            .times_unknown_until()
            .map(|units| registry.elapsed_ns(units)),
        modes: modes(header, registry),
        ledger: None,
    }
}

/// The number of runs. Processes belong to one run if they share a run name or a session; captures of older releases
/// have only a session. Captures of other profilers have neither and do not count.
fn n_runs(processes: &[ProcessSummary]) -> usize {
    /// The names and sessions of one run.
    type Run<'a> = (Vec<&'a str>, Vec<[u8; 16]>);
    let mut runs: Vec<Run> = Vec::new();
    for process in processes {
        let name = Some(process.run.as_str()).filter(|name| !name.is_empty());
        if name.is_none() && process.session.is_none() {
            continue;
        }
        let is_common = |(names, sessions): &Run| {
            name.is_some_and(|name| names.contains(&name))
                || process.session.is_some_and(|id| sessions.contains(&id))
        };
        let (common, others): (Vec<Run>, Vec<Run>) = runs.into_iter().partition(is_common);
        let mut all: Run = (
            name.into_iter().collect(),
            process.session.into_iter().collect(),
        );
        for (names, sessions) in common {
            all.0.extend(names);
            all.1.extend(sessions);
        }
        runs = others;
        runs.push(all);
    }
    runs.len()
}

/// The largest difference between the clocks of these hosts, if `heaptide ctl collect` measured them all.
pub(crate) fn clock_difference<'a>(
    offsets: &BTreeMap<String, i64>,
    hosts: impl IntoIterator<Item = &'a str>,
) -> Option<u64> {
    let known = hosts.into_iter().map(|host| offsets.get(host).copied());
    let known: Vec<i64> = known.collect::<Option<_>>()?;
    Some(known.iter().max()?.abs_diff(*known.iter().min()?))
}

/// The modes of a process, by time.
fn modes(header: &Header, registry: &Registry) -> Vec<ModeInterval> {
    let first = ModeInterval {
        from_ns: 0,
        mode: header.mode,
    };
    let changes = registry.mode_changes.iter().map(|change| ModeInterval {
        from_ns: registry.elapsed_ns(change.time),
        mode: Mode {
            objects: change.mode.objects,
            sample_bytes: change.mode.sample_bytes,
            native: change.mode.native,
            ..header.mode
        },
    });
    [first].into_iter().chain(changes).collect()
}

/// The squares of the errors of independent samples add up. If sampling rates differ, the coarsest one is reported.
fn sampling(session: &Session) -> Option<Sampling> {
    let intervals = session
        .processes
        .iter()
        .flat_map(|process| modes(&process.header, &process.registry));
    let rates = intervals.map(|interval| interval.mode.sample_bytes);
    let mean_bytes = rates.filter(|&mean| mean > 0).max()?;
    let error = |variance: fn(&Process) -> f64| {
        1.96 * session.processes.iter().map(variance).sum::<f64>().sqrt()
    };
    Some(Sampling {
        mean_bytes,
        total_error_bytes: error(|process| process.sums.total.variance),
        peak_error_bytes: error(|process| process.sums.peak.variance),
        live_error_bytes: error(|process| process.sums.live.variance),
    })
}
