//! Free memory that libc keeps instead of returning it to the kernel.

use super::{MAX_PER_CHECK, ledger};
use crate::load::Session;
use crate::model::finding::SentenceValue::{Bytes, Percent, Process};
use crate::model::{Finding, Ledger, Sentence};

/// Every allocator keeps some memory free. Less than this share of the resident size is normal, and so is less than
/// [`MIN_BYTES`].
const MIN_SHARE: f64 = 0.10;
pub(super) const MIN_BYTES: u64 = 8 << 20;

pub fn find(session: &Session) -> Vec<Finding> {
    let ledgers = session.processes.iter().filter_map(|process| {
        let ledger = ledger(process)?;
        Some((ledger, session.shown_name(process)))
    });
    let is_relevant = |(ledger, _): &(Ledger, String)| {
        let share = ledger.libc_free_bytes as f64 / ledger.resident_bytes.max(1) as f64;
        // Free bytes that were not measured may not be resident, and then tuning libc would change nothing.
        ledger.is_libc_free_measured && share >= MIN_SHARE && ledger.libc_free_bytes >= MIN_BYTES
    };
    let mut relevant: Vec<(Ledger, String)> = ledgers.filter(is_relevant).collect();
    relevant.sort_by_key(|(ledger, _)| std::cmp::Reverse(ledger.libc_free_bytes));
    relevant.truncate(MAX_PER_CHECK);
    let relevant = relevant.into_iter();
    relevant
        .map(|(ledger, process)| finding(&ledger, process))
        .collect()
}

fn finding(ledger: &Ledger, process: String) -> Finding {
    let (free, resident) = (ledger.libc_free_bytes, ledger.resident_bytes);
    Finding {
        name: "kept_free",
        location: None,
        caller: None,
        user: None,
        headline: Sentence::new("libc keeps free memory of process {}", [Process(process)]),
        evidence: vec![Sentence::new(
            "{} of {} resident at the end were free: {}",
            [
                Bytes(free),
                Bytes(resident),
                Percent(free as f64, resident as f64),
            ],
        )],
        advice: "this is not a leak: libc reuses it for later allocations that fit. To keep less, set MALLOC_ARENA_MAX=2 or a \
                 lower MALLOC_TRIM_THRESHOLD_ in the environment, or call malloc_trim(0)",
        numbers: ledger.numbers(),
        measure: None,
    }
}
