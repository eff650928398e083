//! Every view of a session shows the same common peak of its processes, which equals that of a naive replay.

use heaptide_analysis::aggregate::{GroupBy, ProcessGrouping, TreeLimits, TreeShape};
use heaptide_analysis::model::{Number, PeakMoment};
use heaptide_analysis::{
    Comparison, Filter, FlameTree, Measure, Request, Session, findings, load, load_with, stacks,
    stats, summary, tree,
};
use heaptide_capture::Capture;
use heaptide_testkit::{capture_bytes, header};

/// One allocation or free: microseconds, block, and its size if it is an allocation.
type Event = (u64, u32, Option<u64>);

struct Program {
    start_us: u64,
    end_us: u64,
    events: Vec<Event>,
}

impl Program {
    fn capture(&self, pid: u32) -> Capture {
        let mut script = String::new();
        for &(time, block, size) in &self.events {
            script += &match size {
                Some(size) => format!(
                    "time {time}; alloc b{block} {size} at main:3 > f{}:1;",
                    block % 3
                ),
                None => format!("time {time}; free b{block};"),
            };
        }
        capture(pid, self.start_us, &format!("{script} end {}", self.end_us))
    }

    /// The highest size in each microsecond of the session.
    fn heights(&self, n_us: u64) -> Vec<u64> {
        let mut heights = vec![0; n_us as usize];
        let mut sizes = std::collections::HashMap::new();
        let mut now = 0;
        let mut events = self.events.iter().peekable();
        for time in 0..self.end_us {
            let mut highest = now;
            while let Some(&(_, block, size)) = events.next_if(|event| event.0 == time) {
                match size {
                    Some(size) => {
                        sizes.insert(block, size);
                        now += size;
                    }
                    None => now -= sizes.remove(&block).unwrap_or(0),
                }
                highest = highest.max(now);
            }
            heights[(self.start_us + time) as usize] = highest;
        }
        heights
    }
}

fn capture(pid: u32, start_us: u64, script: &str) -> Capture {
    let mut header = header();
    header.pid = pid;
    header.started_unix_ns += start_us * 1_000;
    Capture::from_bytes(capture_bytes(&header, script)).expect("a capture")
}

fn captures(processes: &[(u64, &str)]) -> Vec<Capture> {
    let processes = processes.iter().zip(1..);
    processes
        .map(|(&(start_us, script), pid)| capture(pid, start_us, script))
        .collect()
}

/// Asserts that every view of the session has the same peak, and returns it.
fn peak_of_all_views(session: &Session) -> u64 {
    let peak = stats(session, 5).peak_bytes;
    let limits = TreeLimits {
        n_biggest: 3,
        max_depth: None,
        min_percent: 0.0,
    };
    let root = &tree(session, Measure::Peak, limits, TreeShape::default()).nodes[0];
    assert_eq!(root.bytes, peak, "tree");
    for by in [
        GroupBy::Function,
        GroupBy::Processes(ProcessGrouping::Process),
        GroupBy::Allocator,
    ] {
        let name = format!("{by:?}");
        assert_eq!(
            summary(session, Measure::Peak, by).total_bytes,
            peak,
            "{name}"
        );
    }
    let model = stacks(session);
    let sites = model.processes.iter().flat_map(|process| &process.sites);
    assert_eq!(
        sites.map(|site| site.peak.bytes).sum::<u64>(),
        peak,
        "sites"
    );
    assert_eq!(model.peak_bytes, peak, "model");
    let flame = FlameTree::new(session).cut(Default::default());
    assert_eq!(flame.peak_bytes, peak, "page");
    let own = flame.own.iter();
    assert_eq!(
        own.map(|own| own.amounts[Measure::Peak as usize].bytes)
            .sum::<u64>(),
        peak
    );
    if let PeakMoment::Common(_) = model.quality.peak_moment {
        let curve = &flame.timeline.all_processes.heap;
        assert_eq!(curve.iter().flatten().max(), Some(&peak), "curve");
    }
    for finding in findings(session) {
        for (name, number) in finding.numbers {
            if name == "whole_peak_bytes" {
                assert_eq!(number, Number::Unsigned(peak), "findings");
            }
        }
    }
    let quality = model.quality;
    let parts = quality
        .processes
        .iter()
        .map(|process| process.at_peak_bytes);
    assert_eq!(parts.sum::<u64>(), peak, "processes");
    peak
}

pub const RISE_AND_FALL: &str =
    "alloc a 1000 at main; time 100; free a; alloc b 10 at main; time 900; end 1000";

#[test]
fn peaks_at_different_times_do_not_add_up_in_any_view() {
    let session = |starts: [u64; 2]| {
        let processes = starts.map(|start| (start, RISE_AND_FALL));
        load(captures(&processes), &mut |_| {})
    };
    assert_eq!(peak_of_all_views(&session([0, 0])), 2000);
    assert_eq!(peak_of_all_views(&session([0, 500])), 1010);
    assert_eq!(peak_of_all_views(&session([0, 5_000])), 1000);
    let apart = stats(&session([0, 500]), 5).quality;
    let own = apart.processes.iter().map(|process| process.peak_bytes);
    assert_eq!(own.collect::<Vec<_>>(), [1000, 1000]);
    assert_eq!(apart.peak_moment, PeakMoment::Common(500_000));
}

#[test]
fn common_peak_of_random_programs_equals_a_naive_replay() {
    let mut state = 7u64;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    // The longest programs have more clock units than a heap series has bins. A bin of several units hides short rises.
    for end_us in [50, 3_000, 60_000] {
        for _ in 0..4 {
            let programs: Vec<Program> = (0..3)
                .map(|_| {
                    let mut events: Vec<Event> = Vec::new();
                    for block in 0..300 {
                        let birth = random(end_us);
                        let lifetime = [0, 1, end_us / 10][random(3) as usize];
                        events.push((birth, block, Some(1 + random(1_000))));
                        events.push((birth + lifetime, block, None));
                    }
                    // The allocation of a block comes before its free.
                    events.sort_by_key(|event| (event.0, event.1, event.2.is_none()));
                    events.retain(|event| event.0 < end_us);
                    let start_us = random(end_us / 2);
                    Program {
                        start_us,
                        end_us,
                        events,
                    }
                })
                .collect();
            let n_us = end_us * 2;
            let heights: Vec<Vec<u64>> = programs.iter().map(|it| it.heights(n_us)).collect();
            let sum_at = |at: usize| heights.iter().map(|it| it[at]).sum::<u64>();
            let expected = (0..n_us as usize).map(sum_at).max().expect("some time");
            let captures = programs.iter().zip(1..).map(|(it, pid)| it.capture(pid));
            let session = load(captures.collect(), &mut |_| {});
            let peak = peak_of_all_views(&session);
            assert_eq!(peak, expected);
            let PeakMoment::Common(ns) = session.peak_moment else {
                panic!("a common peak");
            };
            let first_us = programs.iter().map(|it| it.start_us).min().unwrap_or(0);
            assert_eq!(
                sum_at((ns / 1_000 + first_us) as usize),
                expected,
                "at that moment"
            );
        }
    }
}

#[test]
fn rise_of_one_clock_unit_in_a_long_run_is_found() {
    let long = "alloc a 100 at main; time 777777; alloc b 500 at spike; free b; time 1500000; alloc c 1 at main; end 2000000";
    let other = "alloc a 300 at main; time 777700; free a; time 777777; alloc b 250 at brief; time 777778; free b; \
                 time 1600000; alloc c 1 at main; end 2000000";
    let session = load(captures(&[(0, long), (0, other)]), &mut |_| {});
    assert_eq!(peak_of_all_views(&session), 100 + 500 + 250);
    assert_eq!(session.peak_moment, PeakMoment::Common(777_777_000));
}

#[test]
fn all_views_of_a_time_interval_show_the_same_peak() {
    let one = "alloc a 1000 at main > load; time 300; free a; time 500; alloc b 400 at main > save; end 900";
    let two = "time 400; alloc a 700 at main > load; time 800; alloc b 10 at main; free a; end 900";
    let with = |filter: Filter| {
        let request = Request {
            filter,
            ..Request::default()
        };
        load_with(captures(&[(0, one), (0, two)]), request, &mut |_| {}).expect("something")
    };
    let whole = with(Filter::default());
    assert_eq!(peak_of_all_views(&whole), 1110);
    let late = with(Filter {
        from_ns: Some(600_000),
        ..Filter::default()
    });
    assert_eq!(peak_of_all_views(&late), 1110);
    let early = with(Filter {
        to_ns: Some(350_000),
        ..Filter::default()
    });
    assert_eq!(peak_of_all_views(&early), 1000);
    let between = with(Filter {
        from_ns: Some(310_000),
        to_ns: Some(450_000),
        ..Filter::default()
    });
    assert_eq!(peak_of_all_views(&between), 700);
}

#[test]
fn comparison_uses_the_common_peak_on_both_sides() {
    let load = |starts: [u64; 2]| {
        let processes = starts.map(|start| (start, RISE_AND_FALL));
        load(captures(&processes), &mut |_| {})
    };
    let comparison = Comparison::new(load([0, 0]), load([0, 500]));
    let diff = comparison.diff(Measure::Peak, false);
    assert_eq!(
        (diff.before.peak.bytes, diff.after.peak.bytes),
        (2000, 1010)
    );
    let changes = diff.stacks.iter().map(|stack| stack.change.bytes());
    assert_eq!(changes.sum::<i64>(), -990);
}

#[test]
fn use_own_peaks_restores_the_peak_of_each_process() {
    let mut session = load(
        captures(&[(0, RISE_AND_FALL), (500, RISE_AND_FALL)]),
        &mut |_| {},
    );
    session.use_own_peaks();
    assert_eq!(session.peak_moment, PeakMoment::EachOwn);
    assert_eq!(peak_of_all_views(&session), 2000);
}
