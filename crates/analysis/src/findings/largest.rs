//! The line that holds the most memory at the peak.

use super::site_groups::{Headlines, SiteGroups};
use crate::load::Session;
use crate::model::finding::SentenceValue::{Blocks, Bytes, Percent};
use crate::model::{Finding, Measure, Sentence};

/// A line with a smaller share of the peak is not a finding.
const MIN_PEAK_SHARE: f64 = 0.05;
const HEADLINES: Headlines = Headlines {
    alone: "{} holds most at the peak",
    all: "{} holds most at the peak, allocated by {}",
    mostly: "{} holds most at the peak, mostly allocated by {}",
    largest_part: "{} holds most at the peak, the largest part allocated by {}",
};
/// For a line that holds less than Python's arenas.
const APART_FROM_ARENAS: Headlines = Headlines {
    alone: "{} holds most at the peak apart from Python's arenas",
    all: "{} holds most at the peak apart from Python's arenas, allocated by {}",
    mostly: "{} holds most at the peak apart from Python's arenas, mostly allocated by {}",
    largest_part: "{} holds most at the peak apart from Python's arenas, the largest part allocated by {}",
};

pub fn find(session: &Session, groups: &SiteGroups) -> Option<Finding> {
    let whole_bytes = groups.sum_bytes(|group| group.peak);
    let line = groups.largest_line(|group| Some(group.peak.bytes))?;
    let bytes = line.peak.bytes;
    if bytes == 0 || (bytes as f64) < whole_bytes as f64 * MIN_PEAK_SHARE {
        return None;
    }
    let headlines = match groups.arena_bytes(|group| group.peak) > bytes {
        true => &APART_FROM_ARENAS,
        false => &HEADLINES,
    };
    Some(Finding {
        name: "holds_most",
        evidence: vec![
            Sentence::new(
                "{} in {}, {} of the heap at the peak",
                [
                    Bytes(bytes),
                    Blocks(line.peak.count),
                    Percent(bytes as f64, whole_bytes as f64),
                ],
            ),
            match line.live.bytes {
                0 => Sentence::new("all of it was freed before the end", []),
                left if session.processes.len() > 1 => Sentence::new(
                    "{} were still alive when their processes ended",
                    [Bytes(left)],
                ),
                left => Sentence::new("{} were still alive at the end", [Bytes(left)]),
            },
        ],
        advice: "process smaller batches here, or free the data sooner",
        numbers: vec![
            ("peak_bytes", bytes.into()),
            ("peak_count", line.peak.count.into()),
            ("whole_peak_bytes", whole_bytes.into()),
            ("leaked_bytes", line.live.bytes.into()),
        ],
        measure: Some(Measure::Peak),
        ..line.finding(session, headlines)
    })
}
