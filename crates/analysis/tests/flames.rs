//! The call tree of pages: no byte is lost, and cut frames are counted.

use heaptide_analysis::Measure;
use heaptide_analysis::aggregate::FlameLimits;
use heaptide_analysis::model::Flame;
use heaptide_analysis::model::flame::FlameContent;
use heaptide_analysis::{FlameTree, Request, Session, load, load_with, stats};
use heaptide_capture::{Capture, Header};
use heaptide_testkit::{capture, capture_bytes, header};

fn session(scripts: &[&str]) -> Session {
    let captures = scripts.iter().map(|script| capture(script)).collect();
    load(captures, &mut |_| {})
}

/// Each path with the allocations of its last frame: bytes and count at the peak, leaked, in total.
fn paths(flame: &Flame) -> Vec<String> {
    let name = |node: u32| match flame.nodes[node as usize].content {
        FlameContent::Root => "all".to_owned(),
        FlameContent::NoFrames => "none".to_owned(),
        FlameContent::Cut { n_frames } => format!("cut {n_frames}"),
        FlameContent::Frame(at) => {
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
        let amounts = [0, 1, 2].map(|at| own.amounts[at]);
        let amounts = amounts.map(|amount| format!("{}/{}", amount.bytes, amount.count));
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
fn node_has_its_own_bytes_at_the_peak_at_the_end_and_in_total_by_thread() {
    let script = "
        alloc a 100 at main:3 > load:7
        thread 2 worker
        alloc b 50 at main:3 > load:7
        alloc c 10
        thread 1
        free a
        alloc d 20 at main:3
    ";
    let flame = FlameTree::new(&session(&[script])).cut(FlameLimits::default());
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
fn small_frames_are_merged_and_counted_and_no_byte_is_lost() {
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
    let cut = FlameTree::new(&session).cut(limits);
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
    let few = FlameTree::new(&session).cut(few);
    let n_frames = few.nodes.iter();
    let n_frames = n_frames.filter(|node| matches!(node.content, FlameContent::Frame(_)));
    assert!(n_frames.count() <= 2);
    for measure in [Measure::Peak, Measure::Leaked, Measure::Total] {
        assert_eq!(sum(&few, measure), 100_012);
    }
}

#[test]
fn two_processes_share_a_tree_and_keep_their_own_bytes() {
    let session = session(&["alloc a 100 at main:3", "alloc b 30 at main:3"]);
    let flame = FlameTree::new(&session).cut(FlameLimits::default());
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
    let flame = FlameTree::new(&session(&[script])).cut(FlameLimits::default());
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
fn source_text_is_read_from_the_programs_folder_unless_disabled() {
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
    let source = |limits| {
        FlameTree::new(&session()).cut(limits).locations[0]
            .source
            .clone()
    };
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

/// Bytes allocated from edge `a` to edge `b` at each path, and the part of them that was alive at `b`.
fn between(flame: &Flame, a: usize, b: usize) -> Vec<(String, i64, i64)> {
    let names = paths(flame);
    let mut sums: Vec<(String, i64, i64)> = Vec::new();
    for life in &flame.lives.entries {
        let (birth, death) = (usize::from(life.birth), usize::from(life.death));
        if !(a..b).contains(&birth) {
            continue;
        }
        let path = names[life.own as usize].split(" [").next().unwrap_or("");
        let alive = if death >= b { life.bytes } else { 0 };
        match sums.iter_mut().find(|(known, ..)| known == path) {
            Some(sum) => (sum.1, sum.2) = (sum.1 + life.bytes, sum.2 + alive),
            None => sums.push((path.to_owned(), life.bytes, alive)),
        }
    }
    sums
}

fn with_lives(scripts: &[(u64, &str)], max_lives: usize) -> Flame {
    let captures = scripts.iter().map(|&(start_us, script)| {
        let mut header = header();
        header.started_unix_ns += start_us * 1_000;
        Capture::from_bytes(capture_bytes(&header, script)).expect("a capture")
    });
    let request = Request {
        lives: true,
        temporary: Some(1),
        ..Request::default()
    };
    let session = load_with(captures.collect(), request, &mut |_| {}).expect("no filter");
    let limits = FlameLimits {
        max_lives,
        ..FlameLimits::default()
    };
    FlameTree::new(&session).cut(limits)
}

const GROWING: &str = "
    alloc a 100 at main:3 > load:7; time 2500; alloc b 10 at main:3 > load:7; alloc t 1 at main:3; free t
    time 5000; free a; alloc c 1000 at main:3; time 7500; alloc d 5 at main:3; free d; time 10000; free b; end 20000
";

#[test]
fn page_has_bytes_allocated_between_two_edges_and_alive_at_the_second() {
    let flame = with_lives(&[(0, GROWING)], 1000);
    let edge = |ns: u64| {
        let edges = &flame.lives.edges_ns;
        let at = edges.iter().position(|&edge| edge == ns);
        at.unwrap_or_else(|| panic!("{ns} is no edge of {edges:?}"))
    };
    assert_eq!(flame.lives.edges_ns.len(), 201);
    let ms = |from: u64, to: u64| between(&flame, edge(from * 100_000), edge(to * 100_000));
    let load = "main:3 > load:7".to_owned();
    let main = "main:3".to_owned();
    assert_eq!(ms(0, 25), [(load.clone(), 100, 100)]);
    assert_eq!(ms(25, 50), [(main.clone(), 1, 0), (load.clone(), 10, 10)]);
    assert_eq!(
        ms(25, 200),
        [(main.clone(), 1006, 1000), (load.clone(), 10, 0)]
    );
    assert_eq!(ms(0, 200), [(main, 1006, 1000), (load, 110, 0)]);
}

#[test]
fn too_many_lifetimes_get_fewer_bins_without_loss() {
    let whole = with_lives(&[(0, GROWING), (4_000, GROWING)], 1000);
    let few = with_lives(&[(0, GROWING), (4_000, GROWING)], 8);
    let n_bins = |flame: &Flame| flame.lives.edges_ns.len() - 1;
    assert_eq!(n_bins(&whole), 200);
    assert!(n_bins(&few) < 200 && few.lives.entries.len() <= 8);
    let all = |flame: &Flame| between(flame, 0, n_bins(flame));
    assert_eq!(all(&few), all(&whole));
    for (at, ns) in few.lives.edges_ns.iter().enumerate() {
        let same = whole.lives.edges_ns.iter().position(|edge| edge == ns);
        let same = same.expect("an edge that was there before");
        assert_eq!(between(&few, 0, at), between(&whole, 0, same));
    }
}

#[test]
fn temporary_is_a_separate_measure() {
    let flame = with_lives(&[(0, GROWING)], 1000);
    let temporary = flame.own.iter().map(|own| own.amounts[3]);
    let (bytes, count) = temporary.fold((0, 0), |sum, amount| {
        (sum.0 + amount.bytes, sum.1 + amount.count)
    });
    assert_eq!((bytes, count), (6, 2));
}

#[test]
fn spike_shorter_than_a_bin_is_exact_in_the_data_of_a_page() {
    // A hundred seconds in bins of half a second; the spike lasts for a millisecond.
    let mut script = String::new();
    for second in 0..100 {
        script += &format!(
            "time {}; alloc c{second} 1000 at keep:2; ",
            second * 1_000_000
        );
        if second == 40 {
            script += "time 40123000; alloc spike 900000 at burst:5; time 40124000; free spike; ";
        }
    }
    let flame = with_lives(&[(0, &(script + "end 100000000"))], usize::MAX);
    assert_eq!(flame.peak_bytes, 941_000);
    assert_eq!(sum(&flame, Measure::Peak), 941_000);
    // The peak lasts until the spike is freed.
    assert_eq!(flame.processes[0].peak_ns, 40_124_000_000);
    let n_edges = flame.lives.edges_ns.len();
    let alive = |edge: usize| -> i64 {
        let all = between(&flame, 0, edge).into_iter();
        all.map(|(_, _, kept)| kept).sum()
    };
    assert!((1..n_edges).all(|edge| alive(edge) <= 100_000));
}
