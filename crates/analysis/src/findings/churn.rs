//! A line that repeatedly allocates memory and frees it at once.

use super::MAX_PER_CHECK;
use super::site_groups::{SiteGroup, SiteGroups};
use crate::load::Session;
use crate::model::finding::Number;
use crate::model::finding::SentenceValue::{Bytes, Count, Nanoseconds, Percent};
use crate::model::{Finding, Measure, Sentence};

/// Churn below this share of all allocations, or below this count, costs too little to report.
const MIN_SHARE: f64 = 0.05;
const MIN_COUNT: u64 = 1_000;

pub fn find(session: &Session, groups: &SiteGroups) -> Vec<Finding> {
    let Some(threshold) = session.temporary else {
        return Vec::new();
    };
    let n_whole: u64 = groups
        .all()
        .map(|group| group.total.count)
        .fold(0, u64::saturating_add);
    let is_relevant = |group: &&SiteGroup| {
        let share = group.temporary.count as f64 / n_whole.max(1) as f64;
        share >= MIN_SHARE && group.temporary.count >= MIN_COUNT
    };
    let mut relevant: Vec<&SiteGroup> = groups.all().filter(is_relevant).collect();
    relevant.sort_by_key(|group| std::cmp::Reverse(group.temporary.count));
    relevant.truncate(MAX_PER_CHECK);
    relevant
        .into_iter()
        .map(|group| finding(session, group, n_whole, threshold))
        .collect()
}

fn finding(session: &Session, group: &SiteGroup, n_whole: u64, threshold: u32) -> Finding {
    let (temporary, total) = (group.temporary, group.total);
    let mean_lifetime_ns = group.block_time_ns.map(|ns| ns / total.count.max(1));
    let template = match threshold {
        1 => {
            "{} of its {} allocations ({}) were freed after at most {} other allocation: {} of all allocations"
        }
        _ => {
            "{} of its {} allocations ({}) were freed after at most {} other allocations: {} of all allocations"
        }
    };
    let mut evidence = vec![Sentence::new(
        template,
        [
            Count(temporary.count),
            Count(total.count),
            Bytes(temporary.bytes),
            Count(threshold.into()),
            Percent(temporary.count as f64, n_whole as f64),
        ],
    )];
    // If the other blocks of the line live long, the mean shows nothing about the blocks that were freed at once.
    let is_all = 10 * temporary.count >= 9 * total.count;
    evidence.extend(
        mean_lifetime_ns
            .filter(|_| is_all)
            .map(|ns| Sentence::new("a block lived {} on average", [Nanoseconds(ns)])),
    );
    Finding {
        name: "churns",
        evidence,
        advice: "this costs time, not memory: reuse a buffer, or move the allocation out of the loop",
        numbers: vec![
            ("temporary_bytes", temporary.bytes.into()),
            ("temporary_count", temporary.count.into()),
            ("count", total.count.into()),
            ("whole_count", n_whole.into()),
            ("threshold", threshold.into()),
            (
                "mean_lifetime_ns",
                mean_lifetime_ns.map_or(Number::Unknown, Number::Unsigned),
            ),
        ],
        measure: Some(Measure::Temporary),
        ..group.finding(
            session,
            "{} repeatedly allocates memory that it frees at once",
            "{} repeatedly allocates memory that is freed at once, allocated by {}",
        )
    }
}
