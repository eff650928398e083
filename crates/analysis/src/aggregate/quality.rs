//! The reliability of the numbers: losses, damage and sampling errors of all processes.

use std::collections::BTreeMap;

use super::arenas;
use crate::findings::{ledger, own_at_resident_peak, resident_peak};
use crate::load::{Process, Session};
use crate::model::{ProcessSummary, Quality, Sampling, Stopped};

pub fn quality(session: &Session) -> Quality {
    let mut quality = Quality {
        peak_moment: session.peak_moment,
        filters: session.filter.describe(),
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
        quality.mapped_files_bytes += process.sums.mapped_files.bytes;
    }
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
        ledger: None,
    }
}

/// Errors of independent samples add up as squares. If sampling rates differ, the coarsest one is reported.
fn sampling(session: &Session) -> Option<Sampling> {
    let sampled = |process: &&Process| process.header.mode.sample_bytes > 0;
    let rates = session.processes.iter().filter(sampled);
    let mean_bytes = rates
        .map(|process| process.header.mode.sample_bytes)
        .max()?;
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
