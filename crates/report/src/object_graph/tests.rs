//! Guarantees of the picture, measured in the SVG itself.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::*;

/// The character width in browsers; the writer fits other fonts to it.
const CHARACTER: f64 = 7.3;
const LABEL_CHARACTER: f64 = 6.7;

#[derive(Clone, Copy, Debug)]
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Area {
    fn overlaps(&self, other: &Area) -> bool {
        self.x < other.x + other.width
            && other.x < self.x + self.width
            && self.y < other.y + other.height
            && other.y < self.y + self.height
    }

    fn has(&self, (x, y): Point) -> bool {
        // Touching the border counts as outside.
        let border = 0.5;
        x > self.x + border
            && x < self.x + self.width - border
            && y > self.y + border
            && y < self.y + self.height - border
    }

    fn holds(&self, other: &Area) -> bool {
        self.x <= other.x + 0.1
            && self.y <= other.y + 0.1
            && self.x + self.width + 0.1 >= other.x + other.width
            && self.y + self.height + 0.1 >= other.y + other.height
    }
}

type Point = (f64, f64);

/// The visible elements: boxes, and arrows with the points of their lines and their labels.
struct Seen {
    paper: Area,
    boxes: Vec<Area>,
    arrows: Vec<(Vec<Point>, Option<Area>)>,
}

fn attribute(element: &str, name: &str) -> f64 {
    let (_, rest) = element
        .split_once(&format!(" {name}=\""))
        .unwrap_or_else(|| panic!("no {name} in {element}"));
    let (value, _) = rest.split_once('"').expect("an end");
    value.parse().expect("a number")
}

/// The attributes of all elements with this name.
fn elements<'a>(group: &'a str, name: &str) -> Vec<&'a str> {
    let open = format!("<{name} ");
    group
        .match_indices(&open)
        .map(|(at, _)| &group[at..])
        .collect()
}

/// The area of a text.
fn text_area(element: &str, character: f64) -> Area {
    let (_, rest) = element.split_once('>').expect("an end");
    let (text, _) = rest.split_once('<').expect("an end");
    let text = text.replace("&quot;", "\"").replace("&lt;", "<");
    let text = text.replace("&gt;", ">").replace("&amp;", "&");
    Area {
        x: attribute(element, "x"),
        y: attribute(element, "y") - 10.0,
        width: crate::text::shorten::width(&text) as f64 * character,
        height: 13.0,
    }
}

fn rect_area(element: &str) -> Area {
    Area {
        x: attribute(element, "x"),
        y: attribute(element, "y"),
        width: attribute(element, "width"),
        height: attribute(element, "height"),
    }
}

/// Points along a line at small distances.
fn points(path: &str) -> Vec<Point> {
    let (_, rest) = path.split_once(" d=\"").expect("a line");
    let (data, _) = rest.split_once('"').expect("an end");
    let mut points: Vec<Point> = Vec::new();
    let mut rest = data;
    while let Some(command) = rest.chars().next() {
        let end = rest[1..]
            .find(|c: char| c.is_alphabetic())
            .map_or(rest.len(), |at| at + 1);
        let numbers: Vec<f64> = rest[1..end]
            .split(' ')
            .map(|number| number.parse().expect("a number"))
            .collect();
        let last = points.last().copied().unwrap_or_default();
        match (command, numbers.as_slice()) {
            ('M', &[x, y]) => points.push((x, y)),
            ('V', &[y]) => points.extend((1..=8).map(|at| {
                let part = f64::from(at) / 8.0;
                (last.0, last.1 + (y - last.1) * part)
            })),
            ('C', &[x1, y1, x2, y2, x, y]) => points.extend((1..=32).map(|at| {
                let t = f64::from(at) / 32.0;
                let u = 1.0 - t;
                let mix = |a: f64, b: f64, c: f64, d: f64| {
                    u * u * u * a + 3.0 * u * u * t * b + 3.0 * u * t * t * c + t * t * t * d
                };
                (mix(last.0, x1, x2, x), mix(last.1, y1, y2, y))
            })),
            other => panic!("{other:?}"),
        }
        rest = &rest[end..];
    }
    points
}

fn drawn(graph: &Graph) -> String {
    let mut out = Vec::new();
    svg(&mut out, graph).expect("writing to a vector succeeds");
    String::from_utf8(out).expect("text")
}

fn seen(graph: &Graph) -> Seen {
    let text = drawn(graph);
    let mut seen = Seen {
        paper: Area {
            x: 0.0,
            y: 0.0,
            width: attribute(&text, "width"),
            height: attribute(&text, "height"),
        },
        boxes: Vec::new(),
        arrows: Vec::new(),
    };
    for group in text.split("<g ").skip(1) {
        if group.starts_with("class=\"arrow") {
            let label = elements(group, "text").first().map(|text| {
                let area = text_area(text, LABEL_CHARACTER);
                assert!(rect_area(elements(group, "rect")[0]).holds(&area));
                area
            });
            seen.arrows
                .push((points(elements(group, "path")[0]), label));
        } else if group.contains("<title>") {
            let area = rect_area(elements(group, "rect")[0]);
            for line in elements(group, "text") {
                assert!(area.holds(&text_area(line, CHARACTER)), "{line}");
            }
            seen.boxes.push(area);
        }
    }
    seen
}

/// Checks the guarantees.
fn check(graph: &Graph) {
    let seen = seen(graph);
    assert_eq!(seen.boxes.len(), graph.nodes.len());
    let arrows = graph.arrows();
    assert_eq!(seen.arrows.len(), arrows.len());
    let labels: Vec<(usize, Area)> = seen
        .arrows
        .iter()
        .enumerate()
        .filter_map(|(at, (_, label))| Some((at, (*label)?)))
        .collect();
    let n_labelled = arrows.iter().filter(|one| !one.labels.is_empty()).count();
    assert_eq!(labels.len(), n_labelled, "every reference is named");
    for (at, one) in seen.boxes.iter().enumerate() {
        assert!(seen.paper.holds(one));
        for other in &seen.boxes[at + 1..] {
            assert!(!one.overlaps(other), "boxes {one:?} {other:?}");
        }
        for (_, label) in &labels {
            assert!(!one.overlaps(label), "a label on a box: {label:?} {one:?}");
        }
    }
    for (at, (_, one)) in labels.iter().enumerate() {
        assert!(seen.paper.holds(one));
        for (_, other) in &labels[at + 1..] {
            assert!(!one.overlaps(other), "labels {one:?} {other:?}");
        }
    }
    for (number, (line, _)) in seen.arrows.iter().enumerate() {
        for &point in line {
            for one in &seen.boxes {
                assert!(!one.has(point), "an arrow through a box: {point:?} {one:?}");
            }
            for (of, label) in &labels {
                assert!(
                    *of == number || !label.has(point),
                    "an arrow through another's label: {point:?} {label:?}"
                );
            }
        }
        let ends = [line[0], line[line.len() - 1]];
        for (node, end) in [arrows[number].from, arrows[number].to].iter().zip(
            // A line is drawn from the higher box to the lower one.
            if touches(&seen.boxes[arrows[number].from], ends[0]) {
                ends
            } else {
                [ends[1], ends[0]]
            },
        ) {
            assert!(touches(&seen.boxes[*node], end), "an arrow ends at a box");
        }
    }
}

fn touches(area: &Area, (x, y): Point) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() < 0.2;
    let is_beside = y > area.y && y < area.y + area.height && near(x, area.x + area.width);
    let is_above = near(y, area.y) || near(y, area.y + area.height);
    is_beside || is_above && x > area.x && x < area.x + area.width
}

fn node(line: &str, row: i32) -> Node {
    Node {
        lines: vec!["dict".into(), line.into()],
        role: if row == 0 {
            BoxRole::Start
        } else {
            BoxRole::Object
        },
        row,
        has_finalizer: false,
        attributes: Vec::new(),
    }
}

/// Names as in real programs, and hostile ones.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z_]{1,12}",
        2 => "\\['[a-z]{1,20}'\\]",
        1 => "[a-z._]{60,90}",
        1 => "[数据处理模块жёлтый🎈<&\">\u{301}\u{7}]{1,24}",
        1 => Just(String::new()),
    ]
}

fn graph(max_nodes: usize, max_edges: usize) -> impl Strategy<Value = Graph> {
    let nodes = proptest::collection::vec((name(), -4..=1i32), 1..=max_nodes);
    let edges = proptest::collection::vec((any::<usize>(), any::<usize>(), name()), 0..=max_edges);
    (nodes, edges).prop_map(|(nodes, edges)| {
        let n = nodes.len();
        Graph {
            nodes: nodes.iter().map(|(line, row)| node(line, *row)).collect(),
            edges: edges
                .into_iter()
                .map(|(from, to, label)| (from % n, to % n, label))
                .collect(),
        }
    })
}

fn for_all(cases: u32, graphs: impl Strategy<Value = Graph>) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let seed = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, seed);
    runner
        .run(&graphs, |graph| {
            check(&graph);
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn labels_boxes_and_arrows_do_not_overlap_in_any_graph() {
    for_all(80, graph(12, 30));
}

#[test]
fn labels_boxes_and_arrows_do_not_overlap_in_dense_graphs() {
    for_all(5, graph(60, 200));
}

/// Every box of one row refers to every box of the next.
fn mesh(rows: &[usize]) -> Graph {
    let mut graph = Graph::default();
    let mut previous: Vec<usize> = Vec::new();
    for (row, &n) in rows.iter().enumerate() {
        let first = graph.nodes.len();
        for at in 0..n {
            let row = row as i32 - rows.len() as i32 + 1;
            graph.nodes.push(node(&format!("{at} items"), row));
        }
        for to in first..graph.nodes.len() {
            for &from in &previous {
                let label = format!("['key {from} {to}']");
                graph.edges.push((from, to, label));
            }
        }
        previous = (first..graph.nodes.len()).collect();
    }
    graph
}

#[test]
fn graphs_with_references_between_all_boxes_are_readable_and_not_too_wide() {
    for rows in [&[20, 1][..], &[1, 20, 1], &[10, 10], &[6, 6, 6], &[120, 1]] {
        let graph = mesh(rows);
        check(&graph);
        let paper = seen(&graph).paper;
        assert!(
            paper.width < 4.0 * paper.height.max(600.0),
            "{rows:?}: {paper:?}"
        );
    }
}

#[test]
fn several_references_from_one_object_to_another_share_an_arrow() {
    let mut graph = mesh(&[1, 1]);
    graph.edges = (0..5).map(|at| (0, 1, format!("[{at}]"))).collect();
    check(&graph);
    let text = drawn(&graph);
    assert!(text.contains(">[0], [1], … 3 more</text>"), "{text}");
    assert!(text.contains("[3]\n[4]</title>"), "{text}");
}

#[test]
fn long_names_are_cut_in_the_middle_and_complete_in_the_title() {
    let mut graph = mesh(&[1, 1]);
    let long = format!("/srv/{}/load.py:12 run", "folder/".repeat(12));
    graph.nodes[0].lines[1].clone_from(&long);
    graph.edges[0].2 = format!("['{}']", "k".repeat(80));
    check(&graph);
    let text = drawn(&graph);
    assert!(text.contains("<title>dict\n/srv/folder/folder/"), "{text}");
    assert!(text.contains("/load.py:12 run</text>"), "{text}");
    assert!(seen(&graph).paper.width < 420.0);
}

#[test]
fn the_same_graph_is_drawn_the_same_way() {
    let graph = mesh(&[7, 9, 4]);
    assert_eq!(drawn(&graph), drawn(&graph.clone()));
}

#[test]
fn references_to_itself_within_a_row_and_upwards_have_arrows() {
    let mut graph = mesh(&[2, 2]);
    graph.edges.push((0, 0, "self".into()));
    graph.edges.push((0, 1, "next".into()));
    graph.edges.push((1, 0, String::new()));
    graph.edges.push((3, 0, "parent".into()));
    check(&graph);
}
