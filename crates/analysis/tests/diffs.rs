//! Comparisons of two recordings.

use heaptide_analysis::Measure;
use heaptide_analysis::model::Diff;
use heaptide_analysis::{Comparison, FlameLimits, Session, load};
use heaptide_capture::{Capture, Header};
use heaptide_testkit::{capture_bytes, header};

fn session(header: &Header, scripts: &[&str]) -> Session {
    let captures = scripts.iter().map(|script| {
        let bytes = capture_bytes(header, script);
        Capture::from_bytes(bytes).expect("a capture")
    });
    load(captures.collect(), &mut |_| {})
}

fn compare(before: &str, after: &str) -> Comparison {
    let header = header();
    Comparison::new(session(&header, &[before]), session(&header, &[after]))
}

/// `leaf < caller: before → after`, in the order of the result.
fn lines(diff: &Diff) -> Vec<String> {
    let name = |at: &heaptide_analysis::model::Location| match at.line {
        0 => at.function.to_string(),
        line => format!("{}:{line}", at.function),
    };
    let line = |stack: &heaptide_analysis::model::DiffStack| {
        let frames: Vec<String> = diff.locations_of(stack).map(name).collect();
        let change = &stack.change;
        format!(
            "{}: {} → {}",
            frames.join(" < "),
            change.before.bytes,
            change.after.bytes
        )
    };
    diff.stacks.iter().map(line).collect()
}

#[test]
fn stacks_that_changed_are_listed_with_the_largest_change_first() {
    let comparison = compare(
        "alloc a 100 at main:3 > load:7; alloc b 50 at main:4; alloc c 10 at main:5 > gone:1",
        "alloc a 300 at main:3 > load:7; alloc b 50 at main:4; alloc d 20 at main:6 > fresh:1; alloc e 5",
    );
    let diff = comparison.diff(Measure::Peak, true);
    let expected = [
        "load:7 < main:3: 100 → 300",
        "fresh:1 < main:6: 0 → 20",
        "gone:1 < main:5: 10 → 0",
        ": 0 → 5",
    ];
    assert_eq!(lines(&diff), expected);
    let whole = diff.whole(Measure::Peak);
    assert_eq!((whole.before.bytes, whole.after.bytes), (160, 375));
    assert_eq!(whole.bytes(), 215);
    assert!(!whole.is_noise());
    assert_eq!(whole.certain_growth(), 215);
}

#[test]
fn moved_line_is_a_change_only_by_line() {
    let comparison = compare(
        "alloc a 100 at main:3 > load:7",
        "alloc a 100 at main:3 > load:9",
    );
    let by_function = comparison.diff(Measure::Peak, false);
    assert_eq!(lines(&by_function), Vec::<String>::new());
    let by_line = comparison.diff(Measure::Peak, true);
    assert_eq!(by_line.stacks.len(), 2);
}

#[test]
fn measure_selects_the_compared_blocks() {
    let comparison = compare(
        "alloc a 100 at main:3; free a",
        "alloc a 100 at main:3; alloc b 50 at main:3; free a",
    );
    let bytes = |measure| comparison.diff(measure, true).whole(measure).bytes();
    assert_eq!(bytes(Measure::Peak), 50);
    assert_eq!(bytes(Measure::Leaked), 50);
    assert_eq!(bytes(Measure::Total), 50);
    let leaked = comparison.diff(Measure::Leaked, true);
    assert_eq!(lines(&leaked), ["main:3: 0 → 50"]);
}

#[test]
fn files_of_different_installations_are_the_same() {
    let old = header();
    let new = Header {
        import_paths: vec!["/home/me/job".into(), "/usr/lib/python3.13".into()],
        stdlib_paths: vec!["/usr/lib/python3.13".into()],
        ..header()
    };
    let before =
        "alloc a 100 at main@/srv/job/job.py:3 > loads@/usr/lib/python3.12/json/__init__.py:5";
    let after =
        "alloc a 70 at main@/home/me/job/job.py:3 > loads@/usr/lib/python3.13/json/__init__.py:5";
    let comparison = Comparison::new(session(&old, &[before]), session(&new, &[after]));
    let diff = comparison.diff(Measure::Peak, true);
    assert_eq!(lines(&diff), ["loads:5 < main:3: 100 → 70"]);
    let files: Vec<&str> = diff.locations.iter().map(|at| &*at.file).collect();
    assert!(files.contains(&"/home/me/job/job.py"), "{files:?}");
}

#[test]
fn several_captures_of_a_side_are_added() {
    let header = header();
    let one = "alloc a 100 at main:3";
    let comparison = Comparison::new(
        session(&header, &[one, one]),
        session(&header, &[one, one, one]),
    );
    let diff = comparison.diff(Measure::Peak, false);
    assert_eq!(lines(&diff), ["main: 200 → 300"]);
    assert_eq!(comparison.n_before(), 2);
}

#[test]
fn sampled_change_within_the_sampling_error_is_noise() {
    let mut sampled = header();
    sampled.mode.sample_bytes = 1 << 20;
    let script = |n: usize| {
        let blocks = (0..n).map(|at| format!("alloc b{at} 64 at main:3"));
        blocks.collect::<Vec<_>>().join(";")
    };
    let compare = |before: usize, after: usize| {
        let sides = [before, after].map(|n| session(&sampled, &[&script(n)]));
        let [before, after] = sides;
        let comparison = Comparison::new(before, after);
        comparison.diff(Measure::Peak, true).stacks[0].change
    };
    let small = compare(9, 10);
    assert!(small.is_noise() && small.certain_growth() == 0);
    let large = compare(10, 100);
    assert!(!large.is_noise());
    assert!(large.certain_growth() > 0 && large.certain_growth() < large.bytes() as u64);
}

#[test]
fn tree_of_both_sides_keeps_every_byte_on_its_side_and_aligns_their_start() {
    let early = header();
    let late = Header {
        started_unix_ns: early.started_unix_ns + 86_400_000_000_000,
        ..header()
    };
    let comparison = Comparison::new(
        session(&early, &["alloc a 100 at main:3; time 500; end 1000"]),
        session(&late, &["alloc a 70 at main:3; time 500; end 2000"]),
    );
    let flame = comparison.flame_tree().cut(FlameLimits::default());
    let mut sums = [0, 0];
    for own in &flame.own {
        let thread = flame.origins[own.origin as usize].thread;
        let process = flame.threads[thread as usize].process;
        sums[usize::from(process as usize >= comparison.n_before())] +=
            own.amounts[Measure::Peak as usize].bytes;
    }
    assert_eq!(sums, [100, 70]);
    assert_eq!(flame.end_unix_ns - flame.start_unix_ns, 2_000_000);
    assert_eq!(flame.processes[0].start_ns, 0);
    assert_eq!(flame.processes[1].start_ns, 0);
}
