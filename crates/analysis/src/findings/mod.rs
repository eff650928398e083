//! What stands out in a session: the largest place, steady growth, churn.
//!
//! Each finding needs little to be judged by a reader, so it carries the numbers that speak for it and those that speak
//! against it. Thresholds are shares of the session itself: what is small in a large program is not worth a word.

mod growth;
mod ledger;
mod places;

use crate::load::Session;
use crate::model::findings::{Churns, Finding, FindingKind, HoldsMost, Ledger, Unshared};
pub use ledger::{ledger, resident_peak};
use places::{Place, Places};

/// A place with less of the peak does not stand out.
const MIN_PEAK_SHARE: f64 = 0.05;
/// More of one kind do not help anyone.
const MAX_OF_A_KIND: usize = 3;
/// Churn that is less than this share of all allocations, or fewer of them, costs nothing to speak of.
const MIN_CHURN_SHARE: f64 = 0.05;
const MIN_CHURN_COUNT: u64 = 1_000;

/// Free memory that is less than this share of what is resident, or less at all, is what any allocator keeps.
const MIN_FREE_SHARE: f64 = 0.10;
const MIN_FREE_BYTES: u64 = 8 << 20;

/// What stands out, the most important first. Growth is looked for only if [`crate::Request::lives`] were asked for, churn
/// only if temporary blocks were.
pub fn findings(session: &Session) -> Vec<Finding> {
    let places = Places::new(session);
    let mut found = Vec::new();
    found.extend(growing(session, &places));
    found.extend(largest(session, &places));
    found.extend(churning(session, &places));
    // Of a part of the sites, or of the time, no balance can be drawn.
    if !session.filter.chooses_sites() && !session.filter.chooses_time() {
        found.extend(kept_free(session));
        found.extend(unshared(session));
    }
    found
}

fn about_all(what: FindingKind) -> Finding {
    Finding {
        place: None,
        caller: None,
        what,
    }
}

fn kept_free(session: &Session) -> Vec<Finding> {
    let ledgers = session.processes.iter().filter_map(ledger);
    let is_much = |ledger: &Ledger| {
        let share = ledger.libc_free_bytes as f64 / ledger.resident_bytes.max(1) as f64;
        share >= MIN_FREE_SHARE && ledger.libc_free_bytes >= MIN_FREE_BYTES
    };
    let mut much: Vec<Ledger> = ledgers.filter(is_much).collect();
    much.sort_by_key(|ledger| std::cmp::Reverse(ledger.libc_free_bytes));
    much.truncate(MAX_OF_A_KIND);
    let much = much.into_iter();
    much.map(|it| about_all(FindingKind::KeptFree(it)))
        .collect()
}

fn unshared(session: &Session) -> Vec<Finding> {
    let all = &session.processes;
    let forks = all
        .iter()
        .filter_map(|process| ledger::unshared(process, all));
    let mut forks: Vec<Unshared> = forks
        .filter(|fork| fork.inherited_bytes - fork.shared_bytes >= MIN_FREE_BYTES)
        .collect();
    forks.sort_by_key(|fork| fork.shared_bytes.wrapping_sub(fork.inherited_bytes));
    forks.truncate(MAX_OF_A_KIND);
    let forks = forks.into_iter();
    forks
        .map(|it| about_all(FindingKind::Unshared(it)))
        .collect()
}

fn largest(session: &Session, places: &Places) -> Option<Finding> {
    let whole_bytes = places.all().map(|place| place.peak.bytes).sum();
    let place = places.all().max_by_key(|place| place.peak.bytes)?;
    let is_large = place.peak.bytes as f64 >= whole_bytes as f64 * MIN_PEAK_SHARE;
    let what = FindingKind::HoldsMost(HoldsMost {
        bytes: place.peak.bytes,
        count: place.peak.count,
        whole_bytes,
        leaked_bytes: place.live.bytes,
    });
    (is_large && place.peak.bytes > 0).then(|| place.finding(session, what))
}

fn growing(session: &Session, places: &Places) -> Vec<Finding> {
    let peak_bytes = places.all().map(|place| place.peak.bytes).sum();
    let mut found: Vec<(&Place, _)> = places
        .all()
        .filter_map(|place| {
            let grows = growth::find(&place.curve, &place.released, places.edges_ns(), peak_bytes)?;
            Some((place, grows))
        })
        .collect();
    found.sort_by(|(_, one), (_, other)| other.bytes_per_second.total_cmp(&one.bytes_per_second));
    found.truncate(MAX_OF_A_KIND);
    let found = found.into_iter();
    found
        .map(|(place, grows)| place.finding(session, FindingKind::Grows(grows)))
        .collect()
}

fn churning(session: &Session, places: &Places) -> Vec<Finding> {
    let Some(threshold) = session.temporary else {
        return Vec::new();
    };
    let n_whole: u64 = places.all().map(|place| place.total.count).sum();
    let is_much = |place: &&Place| {
        let share = place.temporary.count as f64 / n_whole.max(1) as f64;
        share >= MIN_CHURN_SHARE && place.temporary.count >= MIN_CHURN_COUNT
    };
    let mut much: Vec<&Place> = places.all().filter(is_much).collect();
    much.sort_by_key(|place| std::cmp::Reverse(place.temporary.count));
    much.truncate(MAX_OF_A_KIND);
    let churns = |place: &Place| {
        FindingKind::Churns(Churns {
            bytes: place.temporary.bytes,
            count: place.temporary.count,
            n_allocations: place.total.count,
            n_whole,
            threshold,
            mean_lifetime_ns: place.block_time_ns.map(|ns| ns / place.total.count.max(1)),
        })
    };
    let much = much.into_iter();
    much.map(|place| place.finding(session, churns(place)))
        .collect()
}
