//! The line that holds the most memory at the end of the recording. Every program keeps something until it exits, so this is
//! not one of the [`super::findings`]: only reports about leaks show it.

use super::site_groups::SiteGroups;
use crate::load::Session;
use crate::model::finding::SentenceValue::{Blocks, Bytes, Percent};
use crate::model::{Finding, Measure, Sentence};

/// Returns the line, if at least this share of the peak was alive at the end and a line is responsible for it.
pub fn still_alive(session: &Session, min_peak_share: f64) -> Option<Finding> {
    let groups = SiteGroups::new(session);
    let peak_bytes = groups.sum_bytes(|group| group.peak);
    let whole_bytes = groups.sum_bytes(|group| group.live);
    let lines = groups.all().filter(|group| !group.is_arena);
    let group = lines.max_by_key(|group| group.live.bytes)?;
    let bytes = group.live.bytes;
    if bytes == 0 || (bytes as f64) < peak_bytes as f64 * min_peak_share {
        return None;
    }
    let (headline, headline_in_library) = if groups.arena_bytes(|group| group.live) > bytes {
        (
            "{} holds most at the end apart from Python's arenas",
            "{} holds most at the end apart from Python's arenas, allocated by {}",
        )
    } else {
        (
            "{} holds most at the end",
            "{} holds most at the end, allocated by {}",
        )
    };
    Some(Finding {
        name: "still_alive",
        evidence: vec![Sentence::new(
            "{} in {}, {} of all memory that was not freed",
            [
                Bytes(bytes),
                Blocks(group.live.count),
                Percent(bytes as f64, whole_bytes as f64),
            ],
        )],
        advice: "find what keeps it alive: heaptide heap take, then heaptide heap suspects",
        numbers: vec![
            ("leaked_bytes", bytes.into()),
            ("leaked_count", group.live.count.into()),
            ("whole_leaked_bytes", whole_bytes.into()),
        ],
        measure: Some(Measure::Leaked),
        ..group.finding(session, headline, headline_in_library)
    })
}
