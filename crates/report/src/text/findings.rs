//! Findings in words: the same in texts, pages and JSON.

use heaptide_analysis::model::findings::{
    Churns, Finding, FindingKind, Grows, HoldsMost, Ledger, Unshared,
};

use super::stats::location;
use crate::units::{percent, size};

/// A finding that speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spoken {
    /// A word for programs.
    pub kind: &'static str,
    pub what: String,
    /// The numbers that show it, and those that speak against it.
    pub evidence: Vec<String>,
    /// What to do about it.
    pub advice: String,
}

pub fn spoken(finding: &Finding) -> Spoken {
    let place = location(finding.place.as_ref());
    let mut spoken = match &finding.what {
        FindingKind::HoldsMost(it) => holds_most(&place, it),
        FindingKind::Grows(it) => grows(&place, it),
        FindingKind::Churns(it) => churns(&place, it),
        FindingKind::KeptFree(it) => kept_free(it),
        FindingKind::Unshared(it) => unshared(it),
    };
    if let Some(caller) = &finding.caller {
        spoken
            .evidence
            .push(format!("called from {}", location(Some(caller))));
    }
    spoken
}

fn holds_most(place: &str, it: &HoldsMost) -> Spoken {
    let mut evidence = vec![format!(
        "{} in {} at the peak: {:.0} % of all that was alive then",
        size(it.bytes),
        blocks(it.count),
        percent(it.bytes, it.whole_bytes)
    )];
    evidence.push(match it.leaked_bytes {
        0 => "nothing of it was left at the end".to_owned(),
        left => format!("{} were still there at the end", size(left)),
    });
    Spoken {
        kind: "holds_most",
        what: format!("{place} holds most at the peak"),
        evidence,
        advice: "to lower the peak, hold less at a time here, or let go of it earlier".to_owned(),
    }
}

fn grows(place: &str, it: &Grows) -> Spoken {
    let per_hour = it.bytes_per_second * 3600.0;
    let mut evidence = vec![
        format!(
            "from {} after {} to {} after {}: {} a second, {} an hour",
            size(it.from_bytes),
            seconds(it.from_ns),
            size(it.to_bytes),
            seconds(it.to_ns),
            size(it.bytes_per_second.round() as u64),
            size(per_hour.round() as u64),
        ),
        format!(
            "a straight line explains {:.0} % of the change",
            it.confidence * 100.0
        ),
    ];
    if it.n_falls > 0 || it.released_bytes > 0 {
        evidence.push(format!(
            "against a leak: {} of it were released meanwhile, and {} of {} readings fell",
            size(it.released_bytes),
            it.n_falls,
            it.n_readings
        ));
    } else {
        evidence.push("nothing of it was released meanwhile".to_owned());
    }
    Spoken {
        kind: "grows",
        what: format!("what {place} holds grows steadily"),
        evidence,
        advice:
            "look for what keeps it: a cache without a bound, a list that is only appended to, a \
                 callback that is never removed"
                .to_owned(),
    }
}

fn churns(place: &str, it: &Churns) -> Spoken {
    let others = match it.threshold {
        1 => "one other allocation".to_owned(),
        n => format!("{n} other allocations"),
    };
    let mut evidence = vec![format!(
        "{} of its {} allocations, {} in all, were released after at most {others}: {:.0} % of all allocations there were",
        it.count,
        it.n_allocations,
        size(it.bytes),
        percent(it.count, it.n_whole)
    )];
    if let Some(ns) = it.mean_lifetime_ns {
        evidence.push(format!("a block lived {} on average", seconds(ns)));
    }
    Spoken {
        kind: "churns",
        what: format!("{place} allocates again and again what it releases at once"),
        evidence,
        advice:
            "this costs time, not memory: reuse a buffer, or take the allocation out of the loop"
                .to_owned(),
    }
}

fn kept_free(it: &Ledger) -> Spoken {
    Spoken {
        kind: "kept_free",
        what: format!("libc keeps memory of process {} that nobody uses", it.pid),
        evidence: vec![format!(
            "{} of {} resident at the end, {:.0} %, were free",
            size(it.libc_free_bytes),
            size(it.resident_bytes),
            percent(it.libc_free_bytes, it.resident_bytes)
        )],
        advice: "this is no leak: it is used again when it fits. Less is kept with MALLOC_ARENA_MAX=2 or a lower \
                 MALLOC_TRIM_THRESHOLD_ in the environment, or after malloc_trim(0)"
            .to_owned(),
    }
}

fn unshared(it: &Unshared) -> Spoken {
    let copied = it.inherited_bytes.saturating_sub(it.shared_bytes);
    Spoken {
        kind: "unshared",
        what: format!(
            "process {} no longer shares what it had from process {}",
            it.pid, it.parent_pid
        ),
        evidence: vec![format!(
            "of {} that the fork shared, {} were still shared at the end; {} were copied or let go",
            size(it.inherited_bytes),
            size(it.shared_bytes),
            size(copied)
        )],
        advice: "writing to an object, also its reference count, copies its page: load less before the fork, or call \
                 gc.freeze() before it"
            .to_owned(),
    }
}

/// The rows of a ledger, with their names; they add up to the resident size.
pub fn ledger_rows(it: &Ledger) -> Vec<(&'static str, i64)> {
    let rows = [
        ("Python's blocks", it.python_bytes),
        ("anonymous mappings, with Python's arenas", it.mapped_bytes),
        ("native blocks", it.native_bytes),
        (
            "native blocks from before, and what libc adds",
            it.earlier_bytes,
        ),
        ("free, kept by libc", it.libc_free_bytes),
        ("files and shared memory", it.files_bytes),
        ("the profiler", it.own_bytes),
    ];
    let rows = rows.into_iter();
    let rows = rows.map(|(name, bytes)| (name, i64::try_from(bytes).unwrap_or(i64::MAX)));
    let rest = match it.unexplained_bytes {
        ..0 => "given out, but never touched",
        _ => "unexplained",
    };
    rows.chain([(rest, it.unexplained_bytes)])
        .filter(|&(_, bytes)| bytes != 0)
        .collect()
}

/// A number of blocks, as it stands in a sentence.
pub fn blocks(count: u64) -> String {
    match count {
        1 => "one block".to_owned(),
        n => format!("{n} blocks"),
    }
}

/// A length of time in the unit that fits.
pub fn seconds(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match ns {
        0..1_000_000 => "less than a millisecond".to_owned(),
        1_000_000..10_000_000 => format!("{:.1} ms", seconds * 1e3),
        10_000_000..1_000_000_000 => format!("{:.0} ms", seconds * 1e3),
        1_000_000_000..120_000_000_000 => format!("{seconds:.1} s"),
        120_000_000_000..7_200_000_000_000 => format!("{:.1} minutes", seconds / 60.0),
        _ => format!("{:.1} hours", seconds / 3600.0),
    }
}
