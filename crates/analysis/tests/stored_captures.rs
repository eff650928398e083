//! Captures in earlier versions of the format, stored as files: every later release reads them.

use heaptide_analysis::{load, stats};
use heaptide_capture::Capture;

/// Version 1, which has no jobs. The testkit wrote it, from this program:
///
/// ```text
/// alloc a 1000 at main:3 > load:7; time 500; alloc b 200000 mmap at main:4; free a; resident 70000
/// thread 2 pool; alloc c 30 at work:9; time 900; end 2000
/// ```
const VERSION_1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/version-1.tide");

#[test]
fn capture_of_format_version_1_is_still_read() {
    let bytes = std::fs::read(VERSION_1).expect("the file");
    assert_eq!(bytes[8..12], 1_u32.to_le_bytes());
    let capture = Capture::from_bytes(bytes).expect("a capture");
    assert_eq!((capture.header.pid, capture.n_events()), (4711, 4));
    assert!(capture.damage.is_empty() && capture.registry.jobs.is_empty());
    let stats = stats(&load(vec![capture], &mut |_| {}), 5);
    assert_eq!(stats.total_bytes, 201_030);
    assert_eq!(stats.peak_bytes, 201_000);
    let process = &stats.quality.processes[0];
    assert_eq!(process.resident_peak_bytes, Some(70_000));
    assert_eq!(process.n_threads, 2);
    let largest = stats.top_by_size[0].location.as_ref();
    assert_eq!(
        largest.map(|at| (&*at.function, at.line)),
        Some(("main", 4))
    );
}
