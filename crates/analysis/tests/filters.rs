//! Filters: every report shows the same part, and its numbers do not change.

use heaptide_analysis::aggregate::{FlameLimits, GroupBy, TreeLimits, TreeShape};
use heaptide_analysis::filter::{NoMatch, Pattern};
use heaptide_analysis::model::{NodeContent, PeakMoment};
use heaptide_analysis::{
    Filter, FlameTree, Measure, Request, Session, load_with, stacks, stats, summary, tree,
};
use heaptide_capture::Capture;
use heaptide_testkit::{capture, capture_bytes, header};

const SCRIPT: &str = "
    alloc a 1000 at main@/srv/job/job.py:3 > load@/srv/job/etl/load.py:7
    alloc b 200 at main@/srv/job/job.py:4 > __init__@/usr/lib/site-packages/pandas/core/frame.py:9
    thread 2 pool
    alloc c 30 at work@/srv/job/job.py:9
    alloc d 4
    thread 1
    free a
    alloc e 500 at <module>@/srv/job/job.py:1 > _load@<frozen importlib._bootstrap>:5 > <module>@/srv/job/x.py:2
";

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    let all = texts.iter().map(|text| Pattern::new(text));
    all.map(|pattern| pattern.expect("a pattern")).collect()
}

fn request(filter: Filter) -> Request {
    Request {
        filter,
        ..Request::default()
    }
}

fn loaded(filter: Filter) -> Result<Session, NoMatch> {
    load_with(vec![capture(SCRIPT)], request(filter), &mut |_| {})
}

/// Peak, leaked and total bytes in each report.
fn views(session: &Session) -> [u64; 3] {
    let limits = TreeLimits {
        n_biggest: 100,
        max_depth: None,
        min_percent: 0.0,
    };
    let seen = [Measure::Peak, Measure::Leaked, Measure::Total].map(|view| {
        let of_tree = tree(session, view, limits, TreeShape::default()).nodes[0].bytes;
        assert_eq!(
            summary(session, view, GroupBy::Function).total_bytes,
            of_tree
        );
        of_tree
    });
    let all = stacks(session);
    let sites = || all.processes.iter().flat_map(|process| &process.sites);
    let of_sites: [u64; 3] = [
        sites().map(|site| site.peak.bytes).sum(),
        sites().map(|site| site.leaked.bytes).sum(),
        sites().map(|site| site.total.bytes).sum(),
    ];
    assert_eq!(of_sites, seen);
    let page = FlameTree::new(session).cut(FlameLimits::default());
    let of_page = [0, 1, 2].map(|at| {
        page.own
            .iter()
            .map(|own| own.amounts[at].bytes)
            .sum::<u64>()
    });
    assert_eq!(of_page, seen);
    let numbers = stats(session, 5);
    assert_eq!(
        [numbers.peak_bytes, numbers.total_bytes],
        [seen[0], seen[2]]
    );
    let sizes = session
        .processes
        .iter()
        .flat_map(|process| &process.sums.sizes);
    assert_eq!(sizes.map(|&(size, n)| size * n).sum::<u64>(), seen[2]);
    seen
}

#[test]
fn every_report_shows_the_same_part() {
    let of = |filter: Filter| views(&loaded(filter).expect("something"));
    assert_eq!(of(Filter::default()), [1234, 734, 1734]);
    let include = |texts: &[&str]| {
        of(Filter {
            include: patterns(texts),
            ..Filter::default()
        })
    };
    assert_eq!(include(&["pandas"]), [200, 200, 200]);
    assert_eq!(include(&["etl", "pandas.core.frame"]), [1200, 200, 1200]);
    assert_eq!(include(&["job.py"]), [1230, 730, 1730]);
    let exclude = |texts: &[&str]| {
        of(Filter {
            exclude: patterns(texts),
            ..Filter::default()
        })
    };
    assert_eq!(exclude(&["pandas"]), [1034, 534, 1534]);
    assert_eq!(exclude(&["job.py"]), [4, 4, 4]);
    let both = of(Filter {
        include: patterns(&["job.py"]),
        exclude: patterns(&["*/etl/*", "x"]),
        ..Filter::default()
    });
    assert_eq!(both, [230, 230, 230]);
    let thread = |name: &str| {
        of(Filter {
            threads: vec![name.into()],
            ..Filter::default()
        })
    };
    assert_eq!(thread("pool"), [34, 34, 34]);
    assert_eq!(thread("4712"), [34, 34, 34]);
    assert_eq!(thread("main"), thread("MainThread"));
}

#[test]
fn bytes_of_hidden_imports_count_for_the_importer() {
    let session = loaded(Filter {
        hide_imports: true,
        ..Filter::default()
    });
    let session = session.expect("the capture loads");
    assert_eq!(views(&session), [1234, 734, 1734]);
    let limits = TreeLimits {
        n_biggest: 100,
        max_depth: None,
        min_percent: 0.0,
    };
    let nodes = tree(&session, Measure::Leaked, limits, TreeShape::default()).nodes;
    let functions: Vec<(usize, String)> = nodes
        .iter()
        .filter_map(|node| match &node.content {
            NodeContent::Frame(at) => Some((node.depth, format!("{}:{}", at.function, at.line))),
            _ => None,
        })
        .collect();
    assert!(
        functions.contains(&(1, "<module>:1".into())),
        "{functions:?}"
    );
    assert!(
        functions.contains(&(2, "<module>:2".into())),
        "{functions:?}"
    );
    let all = stacks(&session);
    assert!(all.locations.iter().all(|at| &*at.function != "_load"));
    // A hidden frame does not count twice for its caller.
    let deepest = all.stacks.iter().filter(|stack| {
        let parent = stack.parent.map(|parent| all.stacks[parent].location);
        parent == Some(stack.location)
    });
    assert_eq!(deepest.count(), 0);
}

#[test]
fn filter_that_passes_nothing_lists_the_valid_values() {
    let refused = |filter: Filter| loaded(filter).err().expect("nothing").to_string();
    let none = refused(Filter {
        include: patterns(&["numpy"]),
        threads: vec!["pool".into()],
        ..Filter::default()
    });
    assert_eq!(
        none,
        "no recorded event passes --include numpy --thread pool; widen the filter or omit it"
    );
    let thread = refused(Filter {
        threads: vec!["ghost".into()],
        ..Filter::default()
    });
    assert_eq!(
        thread,
        "no thread has this name; there are MainThread (4711), pool (4712)"
    );
    let process = refused(Filter {
        processes: vec!["1".parse().unwrap()],
        ..Filter::default()
    });
    assert_eq!(
        process,
        "no capture is from this process; there are captures from 4711 (job.py)"
    );
}

#[test]
fn process_filter_skips_the_other_captures() {
    let captures = [1, 2, 3].map(|pid| {
        let mut header = header();
        header.pid = pid;
        let script = format!("alloc a {pid}00 at main");
        Capture::from_bytes(capture_bytes(&header, &script)).expect("a capture")
    });
    let filter = Filter {
        processes: ["2", "3"].map(|it| it.parse().unwrap()).into(),
        ..Filter::default()
    };
    let session = load_with(captures.into(), request(filter), &mut |_| {}).expect("two of them");
    let stats = stats(&session, 5);
    assert_eq!(stats.total_bytes, 500);
    assert!(matches!(stats.quality.peak_moment, PeakMoment::Common(_)));
    assert_eq!(stats.quality.filters, ["--process 2", "--process 3"]);
}
