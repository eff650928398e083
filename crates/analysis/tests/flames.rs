//! The tree of the pages: nothing gets lost in it, and what is cut is said.

use crate::support::{capture, capture_bytes, header};
use heaptide_analysis::aggregate::FlameLimits;
use heaptide_analysis::capture::{Capture, Header};
use heaptide_analysis::model::Flame;
use heaptide_analysis::model::flame::{FlameKind, Measure};
use heaptide_analysis::{Session, flame, load, stats};

fn session(scripts: &[&str]) -> Session {
    let captures = scripts.iter().map(|script| capture(script)).collect();
    load(captures, &mut |_| {})
}

/// Each path with what was allocated at its end: bytes and count at the peak, leaked, in all.
fn paths(flame: &Flame) -> Vec<String> {
    let name = |node: u32| match flame.nodes[node as usize].kind {
        FlameKind::Root => "all".to_owned(),
        FlameKind::NoFrames => "none".to_owned(),
        FlameKind::Cut { n_frames } => format!("cut {n_frames}"),
        FlameKind::Frame(at) => {
            let at = &flame.locations[at as usize];
            format!("{}:{}", flame.texts[at.function as usize], at.line)
        }
    };
    let path = |mut node: u32| {
        let mut names = Vec::new();
        while node != 0 {
            names.push(name(node));
            node = flame.nodes[node as usize].parent;
        }
        names.reverse();
        names.join(" > ")
    };
    let own = flame.own.iter().map(|own| {
        let amounts = own
            .amounts
            .map(|amount| format!("{}/{}", amount.bytes, amount.count));
        let thread = flame.origins[own.origin as usize].thread;
        format!("{} [{thread}] {}", path(own.node), amounts.join(" "))
    });
    own.collect()
}

fn sum(flame: &Flame, measure: Measure) -> u64 {
    let own = flame.own.iter();
    own.map(|own| own.amounts[measure as usize].bytes).sum()
}

#[test]
fn node_holds_its_own_bytes_at_the_peak_at_the_end_and_in_all_by_thread() {
    let script = "
        alloc a 100 at main:3 > load:7
        thread 2 worker
        alloc b 50 at main:3 > load:7
        alloc c 10
        thread 1
        free a
        alloc d 20 at main:3
    ";
    let flame = flame(&session(&[script]), FlameLimits::default());
    let mut paths = paths(&flame);
    paths.sort();
    let expected = [
        "main:3 > load:7 [0] 100/1 0/0 100/1",
        "main:3 > load:7 [1] 50/1 50/1 50/1",
        "main:3 [0] 0/0 20/1 20/1",
        "none [1] 10/1 10/1 10/1",
    ];
    assert_eq!(paths, expected);
    assert_eq!(flame.peak_bytes, 160);
    assert_eq!(flame.threads[1].name.as_deref(), Some("worker"));
    assert!(flame.threads[0].is_main && !flame.threads[1].is_main);
}

#[test]
fn small_frames_become_one_that_says_how_many_and_no_byte_is_lost() {
    let script = "
        alloc a 100000 at main:3 > big:7
        alloc b 5 at main:3 > big:7 > leaf:1 > deeper:2
        alloc c 4 at main:3 > small:9
        alloc d 3 at main:3 > tiny:9
    ";
    let session = session(&[script]);
    let limits = FlameLimits {
        min_share: 0.5,
        ..FlameLimits::default()
    };
    let cut = flame(&session, limits);
    let expected = [
        "main:3 > big:7 [0] 100000/1 100000/1 100000/1",
        "main:3 > big:7 > cut 2 [0] 5/1 5/1 5/1",
        "main:3 > cut 2 [0] 7/2 7/2 7/2",
    ];
    assert_eq!(paths(&cut), expected);
    let few = FlameLimits {
        max_frames: 2,
        ..FlameLimits::default()
    };
    let few = flame(&session, few);
    let n_frames = few.nodes.iter();
    let n_frames = n_frames.filter(|node| matches!(node.kind, FlameKind::Frame(_)));
    assert!(n_frames.count() <= 2);
    for measure in Measure::ALL {
        assert_eq!(sum(&few, measure), 100_012);
    }
}

#[test]
fn tree_of_two_processes_is_one_and_knows_whose_bytes_are_whose() {
    let session = session(&["alloc a 100 at main:3", "alloc b 30 at main:3"]);
    let flame = flame(&session, FlameLimits::default());
    assert_eq!(
        paths(&flame),
        ["main:3 [0] 100/1 100/1 100/1", "main:3 [1] 30/1 30/1 30/1"]
    );
    let processes: Vec<u32> = flame.threads.iter().map(|thread| thread.process).collect();
    assert_eq!(processes, [0, 1]);
    assert_eq!(sum(&flame, Measure::Total), stats(&session, 5).total_bytes);
}

#[test]
fn import_system_is_marked_and_modules_are_named() {
    let script = "
        alloc a 10 at main:3 > _find_and_load@<frozen importlib._bootstrap>:5 > <module>@/usr/lib/python3.12/json.py:1
    ";
    let flame = flame(&session(&[script]), FlameLimits::default());
    let described: Vec<(bool, Option<&str>)> = flame
        .locations
        .iter()
        .map(|at| {
            let module = at.module.map(|module| &*flame.texts[module as usize]);
            (at.is_import_system, module)
        })
        .collect();
    assert_eq!(
        described,
        [(false, Some("job")), (true, None), (false, None)]
    );
}

#[test]
fn source_text_is_taken_from_the_programs_folder_unless_it_is_not_wanted() {
    let folder = std::env::temp_dir().join(format!("heaptide-flames-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    std::fs::write(folder.join("job.py"), "one\n  rows = load()\n").expect("written");
    let header = Header {
        working_directory: folder.display().to_string(),
        // Far in the future, so that the file is older than the run.
        started_unix_ns: 4_000_000_000_000_000_000,
        ..header()
    };
    let session = || {
        let bytes = capture_bytes(&header, "alloc a 10 at main@job.py:2");
        let capture = Capture::from_bytes(bytes).expect("a capture");
        load(vec![capture], &mut |_| {})
    };
    let source = |limits| flame(&session(), limits).locations[0].source.clone();
    assert_eq!(
        source(FlameLimits::default()).as_deref(),
        Some("rows = load()")
    );
    let none = FlameLimits {
        max_source_bytes: 0,
        ..FlameLimits::default()
    };
    assert_eq!(source(none), None);
    std::fs::remove_dir_all(folder).expect("removed");
}
