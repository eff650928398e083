//! The summary at exit of `heaptide run`: the peak, the file, and the command to view it.

use std::path::Path;

use heaptide_analysis::findings::resident_peak;
use heaptide_capture::Capture;
use heaptide_report::text::notes;
use heaptide_report::{shell, units};

/// The peak of larger captures is not computed, because it would delay the exit.
const MAX_EVENTS: u64 = 30_000_000;

/// Returns the lines without a prefix; none if the capture cannot be read.
pub fn run_summary(path: &Path) -> Vec<String> {
    let Ok(capture) = Capture::open(path) else {
        return Vec::new();
    };
    let resident = resident_peak(&capture.registry).map_or(String::new(), |bytes| {
        format!("{} resident", units::size(bytes))
    });
    let is_sampled = capture.header.mode.sample_bytes != 0;
    let mut arenas = None;
    let peak = if capture.n_events() <= MAX_EVENTS {
        let (heap, in_arenas) = heaptide_analysis::peak_bytes(capture);
        arenas = notes::arenas(in_arenas, heap, "at the peak");
        let heap = units::size(heap);
        if is_sampled {
            format!("about {heap} on the heap (sampled), {resident}")
        } else {
            format!("{heap} on the heap, {resident}")
        }
    } else {
        resident
    };
    let name = path.file_name().map(Path::new).unwrap_or(path);
    let here = std::env::current_dir().is_ok_and(|here| path.parent() == Some(&here));
    let shown = if here { name } else { path }.display().to_string();
    let quoted = shell::quote(&shown);
    let mut lines = vec![format!("peak memory: {}", peak.trim_end_matches(", "))];
    lines.extend(arenas);
    lines.extend([
        format!("recorded into {shown}"),
        format!("view it with: heaptide stats {quoted}"),
    ]);
    lines
}
