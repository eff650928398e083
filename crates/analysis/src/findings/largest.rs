//! The line that holds the most memory at the peak.

use super::site_groups::SiteGroups;
use crate::load::Session;
use crate::model::finding::SentenceValue::{Blocks, Bytes, Percent};
use crate::model::{Finding, Measure, Sentence};

/// A line with a smaller share of the peak is not a finding.
const MIN_PEAK_SHARE: f64 = 0.05;

pub fn find(session: &Session, groups: &SiteGroups) -> Option<Finding> {
    let whole_bytes = groups.sum_bytes(|group| group.peak);
    let lines = groups.all().filter(|group| !group.is_arena);
    let group = lines.max_by_key(|group| group.peak.bytes)?;
    let bytes = group.peak.bytes;
    if bytes == 0 || (bytes as f64) < whole_bytes as f64 * MIN_PEAK_SHARE {
        return None;
    }
    let (headline, headline_in_library) = if groups.arena_bytes(|group| group.peak) > bytes {
        (
            "{} holds most at the peak apart from Python's arenas",
            "{} holds most at the peak apart from Python's arenas, allocated by {}",
        )
    } else {
        (
            "{} holds most at the peak",
            "{} holds most at the peak, allocated by {}",
        )
    };
    Some(Finding {
        name: "holds_most",
        evidence: vec![
            Sentence::new(
                "{} in {}, {} of the heap at the peak",
                [
                    Bytes(bytes),
                    Blocks(group.peak.count),
                    Percent(bytes as f64, whole_bytes as f64),
                ],
            ),
            match group.live.bytes {
                0 => Sentence::new("all of it was freed before the end", []),
                left => Sentence::new("{} were still alive at the end", [Bytes(left)]),
            },
        ],
        advice: "process smaller batches here, or free the data sooner",
        numbers: vec![
            ("peak_bytes", bytes.into()),
            ("peak_count", group.peak.count.into()),
            ("whole_peak_bytes", whole_bytes.into()),
            ("leaked_bytes", group.live.bytes.into()),
        ],
        measure: Some(Measure::Peak),
        ..group.finding(session, headline, headline_in_library)
    })
}
