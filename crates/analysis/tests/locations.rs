//! Locations, modules, and the shape of the tree.

use heaptide_analysis::aggregate::{TreeLimits, TreeShape};
use heaptide_analysis::model::{NodeContent, Stats};
use heaptide_analysis::{Measure, Session, load, stats, tree};
use heaptide_testkit::capture;

fn session(script: &str) -> Session {
    load(vec![capture(script)], &mut |_| {})
}

fn locations(stats: &Stats) -> Vec<String> {
    let location = |sum: &heaptide_analysis::model::LocationSum| match &sum.location {
        Some(at) => format!("{}:{}:{} {}", at.function, at.file, at.line, sum.bytes),
        None => format!("none {}", sum.bytes),
    };
    stats.top_by_size.iter().map(location).collect()
}

#[test]
fn location_is_the_innermost_function_file_and_line() {
    let script = "
        alloc a 10 at main:3 > load:7
        alloc b 20 at main:4 > load:7
        alloc c 5 at main:3 > load:8
        alloc d 1
    ";
    let expected = [
        "load:/srv/job/job.py:7 30",
        "load:/srv/job/job.py:8 5",
        "none 1",
    ];
    assert_eq!(locations(&stats(&session(script), 5)), expected);
}

#[test]
fn frames_of_the_profiler_are_left_out_everywhere_and_those_of_its_launcher_at_the_root() {
    let own = "_run@/opt/heaptide/run.py:9 > main@/opt/heaptide/x.py:2";
    let runpy = "run_module@<frozen runpy>:5 > _run_code@/usr/lib/python3.12/runpy.py:6";
    let script = format!(
        "alloc a 10 at {own} > {runpy} > main:3 > helper@/opt/heaptide/x.py:4
         alloc b 20 at {own}
         alloc c 30 at run_module@<frozen runpy>:5 > main:3
         alloc d 40 at {own} > main:8 > run_path@<frozen runpy>:1"
    );
    let session = session(&script);
    let limits = TreeLimits {
        n_biggest: 100,
        max_depth: None,
        min_percent: 0.0,
    };
    let shown: Vec<String> = tree(&session, Measure::Total, limits, TreeShape::default())
        .nodes
        .iter()
        .map(|node| {
            let name = match &node.content {
                NodeContent::Frame(at) => at.function.to_string(),
                other => format!("{other:?}"),
            };
            format!("{}{name} {}", " ".repeat(node.depth), node.bytes)
        })
        .collect();
    let expected = [
        "Root 100",
        " main 40",
        "  run_path 40",
        " run_module 30",
        "  main 30",
        " NoFrames 20",
        " main 10",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn launcher_of_the_profiler_is_hidden() {
    let own = "main@/opt/heaptide/__main__.py:9";
    let module = "_run_module_as_main@<frozen runpy>:5 > _run_code@<frozen runpy>:6";
    let command = "<module>@/venv/bin/heaptide:8";
    let shown = |script: &str| locations(&stats(&session(script), 5));
    let script =
        format!("alloc a 10 at {command} > {own} > main:3; alloc b 5 at {command} > {own}");
    assert_eq!(shown(&script), ["main:/srv/job/job.py:3 10", "none 5"]);
    // After the program has ended, a stack has only the frame of the command. A program of the same name is not hidden.
    let end = "alloc b 5 at <module>@/venv/bin/heaptide:9";
    let script = format!("alloc a 10 at {command} > {own} > main:3; {end}");
    assert_eq!(shown(&script), ["main:/srv/job/job.py:3 10", "none 5"]);
    assert_eq!(shown(end), ["<module>:/venv/bin/heaptide:9 5"]);
    let script = format!("alloc a 10 at {module}; alloc b 5 at {module} > {own} > main:3");
    assert_eq!(shown(&script), ["none 10", "main:/srv/job/job.py:3 5"]);
    // A program that python -m started, and that uses the profiler itself, keeps its frames.
    let script = format!(
        "alloc a 10 at {module} > main:3 > start@/opt/heaptide/tracker.py:4; alloc b 5 at {module}"
    );
    let expected = ["main:/srv/job/job.py:3 10", "_run_code:<frozen runpy>:6 5"];
    assert_eq!(shown(&script), expected);
}

#[test]
fn module_is_that_of_the_first_frame_outside_the_standard_library() {
    let json = "loads@/usr/lib/python3.12/json/__init__.py:3";
    let pandas = "read@/usr/lib/python3.12/site-packages/pandas/io.py:3";
    let script = format!(
        "alloc a 10 at main > {json}
         alloc b 20 at main > {pandas} > {json}
         alloc c 5 at {json}
         alloc d 1"
    );
    let stats = stats(&session(&script), 5);
    let modules: Vec<(&str, u64, u64)> = stats
        .modules_by_size
        .iter()
        .map(|sum| (&*sum.module, sum.bytes, sum.count))
        .collect();
    assert_eq!(
        modules,
        [("pandas", 20, 1), ("job", 10, 1), ("<root>", 6, 2)]
    );
}

#[test]
fn tree_sums_up_small_nodes_and_stacks_that_are_not_the_largest() {
    let script = "
        alloc a 600 at main > a
        alloc b 300 at main > b
        alloc c 60 at main > c
        alloc d 30 at main > d
        alloc e 10 at other
    ";
    let session = session(script);
    let nodes = |n_biggest, max_depth, min_percent| -> Vec<(usize, u64, u64)> {
        let limits = TreeLimits {
            n_biggest,
            max_depth,
            min_percent,
        };
        let tree = tree(&session, Measure::Peak, limits, TreeShape::default());
        tree.nodes
            .iter()
            .map(|node| (node.depth, node.bytes, node.count))
            .collect()
    };
    assert_eq!(
        nodes(2, None, 0.0),
        [
            (0, 1000, 5),
            (1, 900, 2),
            (2, 600, 1),
            (2, 300, 1),
            (1, 100, 3)
        ]
    );
    assert_eq!(
        nodes(9, None, 10.0),
        [
            (0, 1000, 5),
            (1, 990, 4),
            (2, 600, 1),
            (2, 300, 1),
            (2, 90, 2),
            (1, 10, 1)
        ]
    );
    assert_eq!(
        nodes(9, Some(1), 0.0),
        [(0, 1000, 5), (1, 990, 4), (1, 10, 1)]
    );
}

#[test]
fn sizes_are_counted_in_ten_bins_with_exact_edges() {
    let mut script = String::new();
    for (n, size) in [0u64, 1, 2, 3, 8, 64, 64, 512, 4096, 100_000]
        .iter()
        .enumerate()
    {
        script += &format!("alloc b{n} {size} at main;");
    }
    let histogram = stats(&session(&script), 5)
        .histogram
        .expect("there are sizes");
    assert_eq!((histogram.smallest, histogram.largest), (0, 100_000));
    let bins: Vec<(u64, u64, u64)> = histogram
        .bins
        .iter()
        .map(|bin| (bin.from, bin.to, bin.count))
        .collect();
    assert_eq!(bins[0], (0, 3, 3), "0, 1 and 2 are smaller than 3");
    assert_eq!(bins[1], (3, 10, 2));
    assert_eq!(bins[9].1, 100_000);
    assert_eq!(bins.iter().map(|bin| bin.2).sum::<u64>(), 10);
}

#[test]
fn memory_of_a_job_tracer_belongs_to_no_line_of_the_program() {
    let tracer = "__exit__@/opt/heaptide/leaks/tracer.py:9";
    let script = format!(
        "alloc a 10 at main:3 > {tracer}
         alloc b 20 at main:3 > {tracer} > collect@/usr/lib/python3.12/weakref.py:8
         alloc c 40 at main:3 > {tracer} > finalize:7
         alloc d 80 at main:3 > {tracer} > finalize:7 > dumps@/usr/lib/python3.12/json.py:1
         alloc e 160 at main:4 > heap@/opt/heaptide/heap.py:2"
    );
    let session = session(&script);
    let expected = [
        "main:/srv/job/job.py:4 160",
        "dumps:/usr/lib/python3.12/json.py:1 80",
        "finalize:/srv/job/job.py:7 40",
        "Heaptide itself:<heaptide>:0 30",
    ];
    assert_eq!(locations(&stats(&session, 5)), expected);
    let limits = TreeLimits {
        n_biggest: 100,
        max_depth: None,
        min_percent: 0.0,
    };
    let tree = tree(&session, Measure::Total, limits, TreeShape::default());
    let of_function = |function: &str| {
        tree.nodes.iter().find_map(|node| match &node.content {
            NodeContent::Frame(at) if &*at.function == function => Some((node.depth, node.bytes)),
            _ => None,
        })
    };
    // The frames of the program stay callers of its own code below the tracer.
    assert_eq!(of_function("finalize"), Some((2, 120)));
    assert_eq!(of_function("Heaptide itself"), Some((1, 30)));
}
