//! The same bytes in rows by function, line, file, thread and so on, and in trees of other shapes.

use heaptide_analysis::aggregate::{GroupBy, ProcessGrouping, TreeLimits, TreeShape};
use heaptide_analysis::model::NodeContent;
use heaptide_analysis::{Measure, Session, load, summary, tree};
use heaptide_testkit::capture;

const SCRIPT: &str = "
    alloc a 100 at main:3 > load:7
    alloc b 20 at main:4 > load:8
    alloc c 3 mmap at main:3 > parse@/usr/lib/python3.12/json/decoder.py:9
    thread 2 pool
    alloc d 4000 at work@/srv/job/pool.py:1 > load:7
";

fn session() -> Session {
    load(vec![capture(SCRIPT)], &mut |_| {})
}

fn rows(by: GroupBy) -> Vec<String> {
    let mut rows = summary(&session(), Measure::Peak, by).functions;
    rows.sort_by_key(|row| std::cmp::Reverse(row.total_bytes));
    let row = |row: &heaptide_analysis::model::FunctionSum| {
        format!(
            "{} {} {}/{}",
            row.function, row.file, row.total_bytes, row.own_bytes
        )
    };
    rows.iter().map(row).collect()
}

#[test]
fn rows_are_functions_lines_files_modules_threads_processes_or_allocators() {
    let job = "/srv/job/job.py";
    assert_eq!(
        rows(GroupBy::Location)[..2],
        [
            format!("load {job}:7 4100/4100"),
            "work /srv/job/pool.py:1 4000/0".into()
        ]
    );
    assert_eq!(rows(GroupBy::Function)[0], format!("load {job} 4120/4120"));
    assert_eq!(
        rows(GroupBy::Module),
        [
            "job  4123/4120",
            "pool  4000/0",
            "the standard library  3/3"
        ]
    );
    assert_eq!(rows(GroupBy::File)[0], format!("{job}  4123/4120"));
    assert_eq!(
        rows(GroupBy::Thread),
        [
            "pool (4712 of process 4711)  4000/4000",
            "MainThread (4711 of process 4711)  123/123"
        ]
    );
    assert_eq!(
        rows(GroupBy::Processes(ProcessGrouping::Process)),
        ["process 4711 (job.py)  4123/4123"]
    );
    assert_eq!(rows(GroupBy::Allocator), ["MALLOC  4120/4120", "MMAP  3/3"]);
}

fn nodes(shape: TreeShape) -> Vec<String> {
    let limits = TreeLimits {
        n_biggest: 100,
        max_depth: None,
        min_percent: 0.0,
    };
    let nodes = tree(&session(), Measure::Peak, limits, shape).nodes;
    let node = |node: &heaptide_analysis::model::TreeNode| match &node.content {
        NodeContent::Frame(at) => {
            format!("{} {}:{} {}", node.depth, at.function, at.line, node.bytes)
        }
        other => format!("{} {other:?} {}", node.depth, node.bytes),
    };
    nodes.iter().map(node).collect()
}

#[test]
fn inverted_tree_begins_with_the_allocating_function() {
    let shape = TreeShape {
        is_inverted: true,
        by_function: false,
    };
    assert_eq!(
        nodes(shape),
        [
            "0 Root 4123",
            "1 load:7 4100",
            "2 work:1 4000",
            "2 main:3 100",
            "1 load:8 20",
            "2 main:4 20",
            "1 parse:9 3",
            "2 main:3 3"
        ]
    );
}

#[test]
fn lines_of_a_function_can_be_merged_into_one_node() {
    let shape = TreeShape {
        is_inverted: false,
        by_function: true,
    };
    assert_eq!(
        nodes(shape),
        [
            "0 Root 4123",
            "1 work:0 4000",
            "2 load:0 4000",
            "1 main:0 123",
            "2 load:0 120",
            "2 parse:0 3"
        ]
    );
}
