//! Blocks at the peak, at the end, and in total.

use heaptide_analysis::aggregate::GroupBy;
use heaptide_analysis::{Measure, Session, load, stats, summary};
use heaptide_testkit::capture;

fn session(script: &str) -> Session {
    load(vec![capture(script)], &mut |_| {})
}

/// Function, total and own bytes in a measure, sorted by name.
fn functions(script: &str, view: Measure) -> Vec<(String, u64, u64)> {
    let mut rows: Vec<(String, u64, u64)> = summary(&session(script), view, GroupBy::Function)
        .functions
        .iter()
        .map(|row| (row.function.to_string(), row.total_bytes, row.own_bytes))
        .collect();
    rows.sort();
    rows
}

fn row(name: &str, total: u64, own: u64) -> (String, u64, u64) {
    (name.into(), total, own)
}

const PROGRAM: &str = "
    alloc kept 100 at main:1
    alloc big 1000 at main:2 > load:5
    free big
    alloc late 300 at main:3 > save:2
";

#[test]
fn block_freed_after_the_peak_is_in_the_peak_but_not_leaked() {
    let at_peak = [row("load", 1000, 1000), row("main", 1100, 100)];
    assert_eq!(functions(PROGRAM, Measure::Peak), at_peak);
    let leaked = [row("main", 400, 100), row("save", 300, 300)];
    assert_eq!(functions(PROGRAM, Measure::Leaked), leaked);
}

#[test]
fn totals_count_allocations_and_not_frees() {
    let stats = stats(&session(PROGRAM), 5);
    assert_eq!(
        (stats.n_allocations, stats.total_bytes, stats.peak_bytes),
        (3, 1400, 1100)
    );
}

#[test]
fn block_counts_once_for_a_recursive_function() {
    let script = "alloc a 10 at f:1 > f:2 > f:2 > g:1";
    assert_eq!(
        functions(script, Measure::Peak),
        [row("f", 10, 0), row("g", 10, 10)]
    );
}

#[test]
fn block_freed_by_another_thread_is_not_live() {
    let script = "
        alloc a 10 at main
        thread 2
        free a
        alloc b 5 at work
        thread 1
        alloc c 1 at main
    ";
    assert_eq!(
        functions(script, Measure::Leaked),
        [row("main", 1, 1), row("work", 5, 5)]
    );
    assert_eq!(stats(&session(script), 5).peak_bytes, 10);
}

#[test]
fn free_that_the_allocator_refused_leaves_the_block_alive() {
    let script = "alloc a 10 at main; free a; refuse; alloc b 5 at main";
    assert_eq!(functions(script, Measure::Leaked), [row("main", 15, 15)]);
    assert_eq!(stats(&session(script), 5).peak_bytes, 15);
}

#[test]
fn mapping_released_in_parts_keeps_the_rest() {
    let script = "alloc m 12288 mmap at main; unmap m+4096 4096";
    assert_eq!(
        functions(script, Measure::Leaked),
        [row("main", 8192, 8192)]
    );
}

#[test]
fn mapped_file_is_counted_separately_from_the_heap() {
    let script = "alloc a 100 at main; alloc f 1000000 mmap_file at main";
    let stats = stats(&session(script), 5);
    assert_eq!((stats.peak_bytes, stats.total_bytes), (100, 1_000_100));
    assert_eq!(stats.quality.mapped_files_bytes, 1_000_000);
}

#[test]
fn sampled_blocks_are_weighted_and_have_an_error() {
    let mut header = heaptide_testkit::header();
    header.mode.sample_bytes = 1 << 19;
    let script = "alloc a 1024 at main; alloc b 100000000 at main";
    let bytes = heaptide_testkit::capture_bytes(&header, script);
    let capture = heaptide_capture::Capture::from_bytes(bytes).expect("a capture");
    let stats = stats(&load(vec![capture], &mut |_| {}), 5);
    assert_eq!(stats.n_allocations, 513 + 1);
    assert_eq!(stats.total_bytes, (1 << 19) + 512 + 100_000_000);
    let sampling = stats.quality.sampling.expect("a sampled capture");
    assert_eq!(sampling.mean_bytes, 1 << 19);
    let one_sample = 1.96 * (1 << 19) as f64;
    assert!((sampling.total_error_bytes / one_sample - 1.0).abs() < 0.01);
}
