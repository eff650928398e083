//! The line that holds the most memory at the end of the recording. Every program keeps something until it exits, so this is
//! not one of the [`super::findings`]: only reports about leaks and the summary at exit show it. Imported modules are
//! not counted: they stay loaded.

use super::site_groups::{Headlines, SiteGroups};
use crate::load::Session;
use crate::model::finding::SentenceValue::{Blocks, Bytes, Percent};
use crate::model::{Finding, Measure, Sentence};

/// A line with a smaller share of the leaked memory is not a finding: that memory is mostly in arenas, or spread over
/// many lines.
const MIN_ALIVE_SHARE: f64 = 0.05;
const HEADLINES: Headlines = Headlines {
    alone: "{} holds most at the end",
    all: "{} holds most at the end, allocated by {}",
    mostly: "{} holds most at the end, mostly allocated by {}",
    largest_part: "{} holds most at the end, the largest part allocated by {}",
};
/// For a line that holds less than Python's arenas.
const APART_FROM_ARENAS: Headlines = Headlines {
    alone: "{} holds most at the end apart from Python's arenas",
    all: "{} holds most at the end apart from Python's arenas, allocated by {}",
    mostly: "{} holds most at the end apart from Python's arenas, mostly allocated by {}",
    largest_part: "{} holds most at the end apart from Python's arenas, the largest part allocated by {}",
};

/// Returns the finding. `None` if no line holds at least `min_peak_share` of the peak and the minimum share of the
/// leaked memory.
pub fn still_alive(session: &Session, min_peak_share: f64) -> Option<Finding> {
    let groups = SiteGroups::new(session);
    let peak_bytes = groups.sum_bytes(|group| group.peak);
    let whole_bytes = groups.sum_bytes(|group| group.live);
    let line = groups.largest_line(|group| (!group.is_import).then_some(group.live.bytes))?;
    let bytes = line.live.bytes;
    let least = f64::max(
        peak_bytes as f64 * min_peak_share,
        whole_bytes as f64 * MIN_ALIVE_SHARE,
    );
    if bytes == 0 || (bytes as f64) < least {
        return None;
    }
    let headlines = match groups.arena_bytes(|group| group.live) > bytes {
        true => &APART_FROM_ARENAS,
        false => &HEADLINES,
    };
    Some(Finding {
        name: "still_alive",
        evidence: vec![Sentence::new(
            "{} in {}, {} of all memory that was not freed",
            [
                Bytes(bytes),
                Blocks(line.live.count),
                Percent(bytes as f64, whole_bytes as f64),
            ],
        )],
        advice: "find what keeps it alive: heaptide heap take, then heaptide heap suspects",
        numbers: vec![
            ("leaked_bytes", bytes.into()),
            ("leaked_count", line.live.count.into()),
            ("whole_leaked_bytes", whole_bytes.into()),
        ],
        measure: Some(Measure::Leaked),
        ..line.finding(session, headlines)
    })
}
