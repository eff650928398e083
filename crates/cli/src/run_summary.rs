//! What `heaptide run` says when the program has ended: the peak, the file, and how to look at it.

use std::path::Path;

use heaptide_analysis::findings::resident_peak;
use heaptide_capture::Capture;
use heaptide_report::{shell, units};

/// Beyond this the peak is left to the reports: nobody wants to wait for a line of farewell.
const MAX_EVENTS: u64 = 30_000_000;

/// The lines, without a prefix. Empty if the capture cannot be read.
pub fn run_summary(path: &Path) -> Vec<String> {
    let Ok(capture) = Capture::open(path) else {
        return Vec::new();
    };
    let resident = resident_peak(&capture.registry).map_or(String::new(), |bytes| {
        format!("{} resident", units::size(bytes))
    });
    let is_sampled = capture.header.mode.sample_bytes != 0;
    let peak = if capture.n_events() <= MAX_EVENTS {
        let heap = units::size(heaptide_analysis::peak_bytes(capture));
        if is_sampled {
            format!("about {heap} on the heap by its samples, {resident}")
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
    vec![
        format!("peak memory: {}", peak.trim_end_matches(", ")),
        format!("recorded into {shown}"),
        format!("look at it with: heaptide stats {quoted}"),
    ]
}
