//! Files built byte by byte: complete, cut, changed and packed.

use std::io::Write;
use std::path::Path;

use heaptide_capture::{Allocator, Capture, DamageCategory};
use heaptide_tally::{Sums, Tally, replay};
use heaptide_testkit::memray_files::{aggregated, codes, events, header, thread};
use proptest::prelude::*;

use super::from_bytes;

fn opened(bytes: &[u8]) -> Capture {
    from_bytes(bytes)
        .expect("a file of memray's")
        .expect("a readable one")
}

fn sums(capture: &Capture) -> (Sums, usize) {
    let mut tally = Tally::for_capture(capture).unwrap_or_else(|_| Tally::new(0));
    let damage = replay(capture, &mut |_| {}, &mut |chunk, ops| {
        tally.apply(chunk, ops)
    });
    (tally.finish(), capture.damage.len() + damage.len())
}

/// Returns the names of a site's frames, outermost first.
fn names(capture: &Capture, sums: &Sums, site: usize) -> Vec<String> {
    let mut names = Vec::new();
    let mut at = sums.sites[site].stack;
    while let Some(stack) = sums.stacks.get(at) {
        names.push(capture.registry.codes[&stack.frame.code].name.clone());
        at = stack.parent;
    }
    names.reverse();
    names
}

#[test]
fn events_become_sums_by_site_with_times_threads_and_names() {
    let capture = opened(&events());
    assert_eq!(capture.n_events(), 5);
    let (sums, n_damaged) = sums(&capture);
    assert_eq!(n_damaged, 0);
    assert_eq!(sums.total.bytes, 100 + 50 + 4096);
    assert_eq!(sums.total.count, 3);
    assert_eq!(sums.peak.bytes, 100 + 4096);
    assert_eq!(sums.live.bytes, 100 + 2048);
    assert_eq!(sums.n_unknown_frees, 0);
    assert_eq!(names(&capture, &sums, 0), ["load"]);
    assert_eq!(names(&capture, &sums, 1), ["work"]);
    assert_eq!(sums.sites[2].allocator, Allocator::Mmap);
    let registry = &capture.registry;
    assert_eq!(registry.elapsed_ns(sums.peak_time), 20_000_000);
    assert_eq!(
        registry.end.map(|end| registry.elapsed_ns(end)),
        Some(500_000_000)
    );
    assert_eq!(registry.threads[1].name.as_deref(), Some("w"));
    assert_eq!(registry.codes[&3].first_line, 9);
    assert_eq!(capture.header.command, ["job.py", "--fast"]);
    assert_eq!(
        capture.header.import_paths,
        ["/lib/site-packages", "/srv/job"]
    );
}

#[test]
fn aggregated_file_gives_sites_and_their_sums_at_the_peak_and_at_the_end_but_no_totals() {
    let capture = opened(&aggregated());
    let (sums, n_damaged) = sums(&capture);
    assert_eq!(n_damaged, 0);
    assert!(!sums.has_totals);
    assert_eq!((sums.peak.bytes, sums.peak.count), (160, 16));
    assert_eq!((sums.live.bytes, sums.live.count), (30, 3));
    assert_eq!(names(&capture, &sums, 0), ["load"]);
    assert_eq!(
        names(&capture, &sums, 1),
        ["run", "load"],
        "not the main thread"
    );
    assert_eq!(sums.heap.highest, [160]);
}

#[test]
fn packed_file_has_the_same_content() {
    let mut packer = lz4_flex::frame::FrameEncoder::new(Vec::new());
    for piece in events().chunks(200) {
        packer.write_all(piece).expect("memory");
        packer.flush().expect("memory");
    }
    let mut packed = packer.finish().expect("memory");
    let (whole, n_damaged) = sums(&opened(&packed));
    assert_eq!((whole.n_events, n_damaged), (5, 0));
    packed.truncate(packed.len() - 12);
    let (_, n_damaged) = sums(&opened(&packed));
    assert_eq!(n_damaged, 1, "the cut is reported");
}

#[test]
fn file_of_a_killed_program_with_trailing_zeros_is_read() {
    let mut bytes = events();
    bytes.pop();
    bytes.resize(bytes.len() + 10_000, 0);
    let capture = opened(&bytes);
    let (sums, n_damaged) = sums(&capture);
    assert_eq!((sums.n_events, n_damaged), (5, 0));
    assert_eq!(capture.registry.end, None);
}

#[test]
fn records_after_an_invalid_one_are_left_out_and_reported() {
    let mut bytes = events();
    let last = bytes.len() - 1;
    bytes[last] = 0x3f;
    let capture = opened(&bytes);
    let damage = replay(&capture, &mut |_| {}, &mut |_, _| {});
    assert_eq!(damage.len(), 1);
    assert_eq!(damage[0].category, DamageCategory::WrongForeignRecord);
    assert_eq!(damage[0].offset, last as u64);
}

#[test]
fn error_names_an_unsupported_format_and_other_files_are_not_memray() {
    let mut bytes = events();
    bytes[7] = 11;
    let error = from_bytes(&bytes).expect("memray's").expect_err("too old");
    assert!(error.to_string().contains("in its format 11"));
    assert!(from_bytes(b"\x89TIDE\r\n\x1a").is_none());
    assert!(from_bytes(b"").is_none());
    assert!(super::open(Path::new("/nowhere/at/all")).is_none());
}

#[test]
fn record_longer_than_the_window_is_read() {
    let mut bytes = header(false);
    bytes.extend([0x0e, 1]);
    bytes.extend(b"big\0job.py\0");
    // Half a megabyte of line table.
    bytes.extend([2, 0x80, 0x80, 0x20]);
    bytes.extend(std::iter::repeat_n(0x80, 512 << 10));
    bytes.push(1);
    let capture = opened(&bytes);
    assert_eq!(capture.registry.codes[&1].line_table.len(), 512 << 10);
}

proptest! {
    #[test]
    fn truncated_file_is_read_with_at_most_one_damage(cut in 0usize..2000, is_aggregated: bool) {
        let bytes = if is_aggregated { aggregated() } else { events() };
        let bytes = &bytes[..cut.min(bytes.len())];
        if let Some(Ok(capture)) = from_bytes(bytes) {
            let (sums, n_damaged) = sums(&capture);
            prop_assert!(sums.n_events <= 5);
            prop_assert!(n_damaged <= 1);
        }
    }

    #[test]
    fn any_bytes_after_a_header_are_read_without_panic(
        random in prop::collection::vec(any::<u8>(), 0..3000),
        is_aggregated: bool,
        is_native: bool,
    ) {
        let mut bytes = header(is_aggregated);
        bytes[15] = u8::from(is_native);
        bytes.extend(codes());
        bytes.extend(thread(1));
        bytes.extend(random);
        sums(&opened(&bytes));
    }

    #[test]
    fn any_changed_byte_is_read_without_panic(at in 0usize..2000, value: u8, is_aggregated: bool) {
        let mut bytes = if is_aggregated { aggregated() } else { events() };
        let at = at % bytes.len();
        bytes[at] = value;
        if let Some(Ok(capture)) = from_bytes(&bytes) {
            sums(&capture);
        }
    }
}

#[test]
fn written_events_are_read_with_the_same_stacks_threads_and_sizes() {
    use super::write::{EventWriter, FORMAT_OF_1_20, Line, Preface, StackNode, Thread};
    let header = heaptide_capture::Header {
        command: vec!["job.py".into()],
        started_unix_ns: 1_000_000_000,
        python_allocator: "pymalloc".into(),
        ..Default::default()
    };
    let line = |function, line| Line {
        function,
        file: "job.py",
        line,
    };
    let node = |parent, line| StackNode { parent, line };
    let preface = Preface {
        format: FORMAT_OF_1_20,
        header: &header,
        n_events: 5,
        duration_ms: 30,
        main_thread: 7,
        lines: &[line("main", 3), line("load", 500), line("work", 12)],
        stacks: &[node(None, 0), node(Some(0), 1), node(Some(0), 2)],
        threads: &[Thread {
            number: 7,
            name: "MainThread",
        }],
    };
    let mut bytes = Vec::new();
    let mut writer = EventWriter::begin(&mut bytes, &preface).expect("a vector");
    let wrote = |result: std::io::Result<()>| result.expect("a vector");
    wrote(writer.alloc(7, Some(1), Allocator::Malloc, 0x1000, 100));
    wrote(writer.alloc(8, None, Allocator::Mmap, 0x7f00_0000_0000, 8192));
    wrote(writer.alloc(7, Some(2), Allocator::PymallocMalloc, 0x2000, 50));
    wrote(writer.resident(20, 9_000));
    wrote(writer.free(7, 0x2000));
    wrote(writer.free_range(8, 0x7f00_0000_0000, 4096));
    wrote(writer.finish());
    let capture = opened(&bytes);
    let (sums, n_damaged) = sums(&capture);
    assert_eq!(n_damaged, 0);
    assert_eq!(sums.total.bytes, 100 + 8192 + 50);
    assert_eq!(sums.peak.bytes, 100 + 8192 + 50);
    assert_eq!(sums.live.bytes, 100 + 4096);
    assert_eq!(names(&capture, &sums, 0), ["main", "load"]);
    assert!(names(&capture, &sums, 1).is_empty());
    assert_eq!(names(&capture, &sums, 2), ["main", "work"]);
    assert_eq!(capture.registry.codes[&2].first_line, 500);
    assert_eq!(
        capture.registry.threads[0].name.as_deref(),
        Some("MainThread")
    );
}
