//! The output of `heaptide heap` for a small heap.

use heaptide_capture::heap::{EdgeType, Label, RootCategory, write_heap};
use heaptide_testkit::{Added, HeapBuilder, shop};

use crate::{Folder, error_text, printed};

pub fn write(folder: &Folder, name: &str, heap: HeapBuilder) {
    let bytes = write_heap(&heap.finish(), Vec::new()).expect("writing to a vector succeeds");
    folder.write(name, &bytes);
}

fn with_shop() -> Folder {
    let folder = Folder::new();
    write(&folder, "job.heap", shop());
    folder
}

#[test]
fn show_has_the_layout_of_heapy_partitions() {
    let folder = with_shop();
    assert_eq!(
        printed(&folder.heaptide("heap show job.heap -n 3")),
        "\
Partition of a set of 10 objects. Total size = 1160 bytes.
 Index  Count   %     Size   % Cumulative  % Kind (class / dict of class)
     0      1  10      400  34       400  34 dict (no owner)
     1      1  10      216  19       616  53 set
     2      1  10      200  17       816  70 dict of module
<4 more rows: -n 0 shows all.>
"
    );
    let via = printed(&folder.heaptide("heap show job.heap --kind shop.Order --by via"));
    assert!(
        via.contains("     0      1  50       48  50        48  50 \"['a']\", 'list(_)[0]'\n"),
        "{via}"
    );
    let one = printed(&folder.heaptide("heap show job.heap --kind set --by id"));
    assert!(one.starts_with("Set of 1 <set> object. Total size = 216 bytes.\n Index     Size   %   Cumulative  %   Address*Length\n     0      216 100.0       216 100.0 0x"), "{one}");
    let all = printed(&folder.heaptide("heap show job.heap --by id"));
    assert!(all.starts_with("Set of 10 <mixed> objects."), "{all}");
    assert!(all.contains("Cumulative  %   Brief\n"), "{all}");
}

#[test]
fn types_show_the_retained_size_of_each_kind() {
    let folder = with_shop();
    let text = printed(&folder.heaptide("heap types job.heap -n 2"));
    assert_eq!(
        text,
        "\
Partition of a set of 10 objects. Total size = 1160 bytes.
 Index  Count   %     Size   %  Retained   % Kind (class / dict of class)
     0      1  10       72   6      1160 100 module
     1      1  10      200  17      1088  94 dict of module
<5 more rows: -n 0 shows all.>
"
    );
    let json = printed(&folder.heaptide("heap types job.heap --json -n 1 --sort size"));
    assert!(json.contains("\"label\": \"dict (no owner)\""), "{json}");
    assert!(json.contains("\"retained_bytes\": 536"), "{json}");
}

#[test]
fn paths_are_expressions_and_patterns_are_trees() {
    let folder = with_shop();
    assert_eq!(
        printed(&folder.heaptide("heap paths job.heap --kind float -n 1")),
        " 0: sys.modules['job'].__dict__['cache']['a'].__dict__['price']\n<... 2 more paths ...>\n"
    );
    let pattern = printed(&folder.heaptide("heap paths job.heap --kind shop.Order --pattern"));
    let lines: Vec<&str> = pattern.lines().collect();
    assert_eq!(lines[0], "Reference Pattern by <[dict of] class>.");
    assert!(
        lines[1].starts_with(" 0: _ --- [-] 2 shop.Order: 0x"),
        "{pattern}"
    );
    assert!(
        lines[2].starts_with(" 1: a      [-] 1 dict (no owner): 0x"),
        "{pattern}"
    );
    assert!(lines[2].ends_with("*2"), "{pattern}");
    assert_eq!(lines[3], " 2: aa ---- [S] 1 dict of module: job");
    let long = printed(&folder.heaptide("heap paths job.heap --kind set --long"));
    assert!(long.contains("['open']"), "{long}");
    assert!(long.contains("retains 216 bytes"), "{long}");
}

#[test]
fn dominators_are_a_tree_with_its_largest_branches_first() {
    let folder = with_shop();
    let text = printed(&folder.heaptide("heap dominators job.heap"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "Dominator tree of 10 objects. Total size = 1160 bytes."
    );
    assert!(
        lines[2].contains("1.16 kB 100") && lines[2].ends_with("sys.modules['job']  module job"),
        "{text}"
    );
    assert!(
        lines[3].ends_with("  .__dict__  dict of module job"),
        "{text}"
    );
    assert!(
        lines[4].contains("536 B") && lines[4].contains("['cache']"),
        "{text}"
    );
}

#[test]
fn diff_has_the_layout_of_heapy_differences() {
    let folder = with_shop();
    let mut later = shop();
    let extra = later.object_at(0x9000, "shop.Order", 48);
    later.root(heaptide_capture::heap::RootCategory::C, "", extra);
    write(&folder, "later.heap", later);
    assert_eq!(
        printed(&folder.heaptide("heap diff job.heap later.heap")),
        "\
Summary of difference operation (A-B).
        Count     Size
  A        11     1208
  B        10     1160
  A-B       1       48  =      4.14 % of B

Differences by kind, largest absolute size diffs first.
 Index  Count     Size  Cumulative  % of B Kind (class / dict of class)
     0      1       48        48      4.14 shop.Order

1 objects (48 bytes) are new, 0 (0 bytes) were freed.
"
    );
    let leaked = printed(&folder.heaptide("heap diff job.heap later.heap later.heap"));
    assert!(
        leaked.starts_with(
            "Objects that appeared under load and are still alive.\nPartition of a set of 1 object."
        ),
        "{leaked}"
    );
}

#[test]
fn type_may_be_a_bare_class_name_or_a_class_of_the_script() {
    let folder = with_shop();
    let full = printed(&folder.heaptide("heap paths job.heap --kind shop.Order"));
    assert_eq!(
        printed(&folder.heaptide("heap paths job.heap --type Order")),
        full
    );
    let dicts = printed(&folder.heaptide("heap show job.heap --type dict"));
    assert!(dicts.contains("dict (no owner)"), "{dicts}");
    let mut heap = HeapBuilder::new();
    heap.header().command = vec!["/srv/job.py".into()];
    for module in ["__main__", "a", "b"] {
        let class = if module == "__main__" {
            "Order"
        } else {
            "Item"
        };
        let object = heap.object(&format!("{module}.{class}"), 48);
        heap.root(RootCategory::Module, module, object);
    }
    write(&folder, "script.heap", heap);
    let of_script = printed(&folder.heaptide("heap show script.heap --kind job.Order"));
    assert!(of_script.contains("__main__.Order"), "{of_script}");
    let several = folder.heaptide("heap paths script.heap --kind Item");
    assert_eq!(
        error_text(&several),
        "heaptide: several types are named Item: use one of a.Item, b.Item\n"
    );
}

#[test]
fn invalid_arguments_give_one_message_and_an_exit_code() {
    let folder = with_shop();
    let unknown = folder.heaptide("heap paths job.heap --kind order");
    assert_eq!(unknown.status.code(), Some(3));
    assert_eq!(
        error_text(&unknown),
        "heaptide: no object is of the type order: did you mean dict of shop.Order, shop.Order?\n"
    );
    let nothing = folder.heaptide("heap paths job.heap");
    assert_eq!(nothing.status.code(), Some(2));
    let nowhere = folder.heaptide("heap show job.heap --address 0x1");
    assert_eq!(nowhere.status.code(), Some(3));
    let missing = folder.heaptide("heap types no.heap");
    assert_eq!(missing.status.code(), Some(1));
    assert!(error_text(&missing).starts_with("heaptide: there is no file no.heap"));
    folder.capture("job.tide", "");
    let capture = folder.heaptide("heap types job.tide");
    assert!(
        error_text(&capture).starts_with("heaptide: job.tide is a recording, not a heap snapshot")
    );
    let nowhere = folder.heaptide("heap take -o no/job.heap job.py");
    assert!(error_text(&nowhere).starts_with("heaptide: there is no folder no: create it"));
}

/// The shop with a hundred receipts of a kilobyte in its cache.
fn leaking_shop() -> HeapBuilder {
    let mut heap = shop();
    let cache = Added(2);
    for at in 0..100 {
        let receipt = heap.object("shop.Receipt", 1000);
        heap.named(cache, receipt, EdgeType::Key, &format!("r{at}"));
    }
    heap
}

#[test]
fn suspects_have_objects_holder_and_advice() {
    let folder = with_shop();
    write(&folder, "later.heap", leaking_shop());
    let expected = "\
1. 100 × shop.Receipt accumulate in a dict: 100 kB, 100% of the heap without program code
   held by  sys.modules['job'].__dict__['cache']
   of which 100 × shop.Receipt, 100 kB
   limit its size, or remove items that are no longer needed
";
    let text = printed(&folder.heaptide("heap suspects --baseline job.heap later.heap"));
    assert_eq!(text, expected);
    let json = printed(&folder.heaptide("heap suspects --json later.heap"));
    assert!(json.contains("\"shape\": \"container\""), "{json}");
    let none = printed(&folder.heaptide("heap suspects job.heap"));
    assert!(none.starts_with("No suspects"), "{none}");
}

#[test]
fn waste_reports_savings_and_missing_values() {
    let folder = with_shop();
    let text = printed(&folder.heaptide("heap waste job.heap"));
    assert!(text.contains("are wasted, 0%.\n"), "{text}");
    assert!(!text.contains("(no owner)"), "{text}");
    assert!(text.ends_with("records them.\n"), "{text}");
    let json = printed(&folder.heaptide("heap waste job.heap --json"));
    assert!(json.contains("\"has_values\": false"), "{json}");
}

#[test]
fn graph_is_drawn_in_the_format_of_the_file_extension() {
    let folder = with_shop();
    printed(&folder.heaptide("heap graph job.heap --kind float -o float.svg"));
    let svg = std::fs::read_to_string(folder.path().join("float.svg")).expect("a picture");
    assert!(
        svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
        "{svg}"
    );
    for part in ["shop.Order", "['price']", "float"] {
        assert!(svg.contains(part), "{part}: {svg}");
    }
    printed(&folder.heaptide("heap graph job.heap --kind float --way -o float.html"));
    let page = std::fs::read_to_string(folder.path().join("float.html")).expect("a page");
    assert!(page.contains("default-src 'none'") && !page.contains("HEAPTIDE-DATA-GOES-HERE"));
    let path = printed(&folder.heaptide("heap graph job.heap --type float --path"));
    assert!(path.contains("sys.modules['job']"), "{path}");
    let dot = printed(&folder.heaptide("heap graph job.heap --kind float"));
    assert!(dot.starts_with("digraph ObjectGraph {\n"), "{dot}");
    assert!(dot.contains("[label=\"['price']\"]"), "{dot}");
    assert!(dot.contains("job\\n↑ 1 more\""), "its module: {dot}");
    let all = printed(&folder.heaptide("heap graph job.heap --kind float --depth 5"));
    assert!(!all.contains("more"), "nothing is left out: {all}");
    let unknown = folder.heaptide("heap graph job.heap --kind float -o float.gif");
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn numbers_of_items_in_a_graph_are_grouped() {
    let folder = Folder::new();
    let mut heap = HeapBuilder::new();
    let list = heap.object("list", 56);
    heap.root(RootCategory::Module, "job", list);
    for at in 0..1200 {
        let item = heap.object("float", 24);
        heap.edge(list, item, Label::new(EdgeType::Index, at));
    }
    write(&folder, "list.heap", heap);
    let dot = printed(&folder.heaptide("heap graph list.heap --kind float"));
    assert!(dot.contains("1,200 items"), "{dot}");
}

/// Numbers of an array in the exported file.
fn numbers(text: &str, key: &str) -> Vec<u64> {
    let start = format!("\"{key}\":[");
    let at = text.find(&start).expect("the array is there") + start.len();
    let end = at + text[at..].find(']').expect("the array ends");
    let numbers = text[at..end].split(',').map(str::trim);
    numbers
        .filter(|number| !number.is_empty())
        .map(|number| number.parse().expect("only digits"))
        .collect()
}

#[test]
fn heapsnapshot_has_the_structure_that_devtools_reads() {
    let folder = with_shop();
    let mut heap = leaking_shop();
    let array = heap.object("numpy.ndarray", 112);
    heap.extra(array, 5 << 30);
    heap.named(Added(1), array, EdgeType::Key, "samples");
    write(&folder, "big.heap", heap);
    assert_eq!(
        printed(&folder.heaptide("heap export big.heap")),
        "Wrote heaptide-heap-big.heapsnapshot\n"
    );
    let path = folder.path().join("heaptide-heap-big.heapsnapshot");
    let text = std::fs::read_to_string(path).expect("a file");
    let (nodes, edges) = (numbers(&text, "nodes"), numbers(&text, "edges"));
    assert_eq!((nodes.len() % 7, edges.len() % 3), (0, 0));
    let n_nodes = nodes.len() / 7;
    assert!(text.contains(&format!(
        "\"node_count\":{n_nodes},\"edge_count\":{}",
        edges.len() / 3
    )));
    let node = |at: usize| &nodes[7 * at..7 * at + 7];
    let n_edges: u64 = (0..n_nodes).map(|at| node(at)[4]).sum();
    assert_eq!(n_edges as usize, edges.len() / 3);
    let mut ids: Vec<u64> = (0..n_nodes).map(|at| node(at)[2]).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), n_nodes);
    // DevTools stores every number in 32 bits.
    let numbers = nodes.iter().chain(&edges);
    assert!(numbers.max() <= Some(&u64::from(u32::MAX)));
    assert!(
        edges
            .chunks(3)
            .all(|edge| edge[2] % 7 == 0 && edge[2] / 7 < n_nodes as u64)
    );
    // Sizes above 32 bits are split over several nodes, so the total is exact.
    let bytes: u64 = (0..n_nodes).map(|at| node(at)[3]).sum();
    assert_eq!(bytes, 1160 + 100_000 + 112 + (5 << 30));
    // Every node is reachable from the top.
    let mut reached = vec![false; n_nodes];
    let mut first = vec![0usize; n_nodes + 1];
    for at in 0..n_nodes {
        first[at + 1] = first[at] + node(at)[4] as usize;
    }
    let mut open = vec![0usize];
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut reached[at], true) {
            open.extend(
                edges[3 * first[at]..3 * first[at + 1]]
                    .chunks(3)
                    .map(|edge| edge[2] as usize / 7),
            );
        }
    }
    assert!(reached.iter().all(|&reached| reached));
    let order: Vec<usize> = [
        "\"snapshot\"",
        "\"nodes\"",
        "\"edges\"",
        "\"trace_function_infos\"",
        "\"trace_tree\"",
        "\"samples\"",
        "\"locations\"",
        "\"strings\"",
    ]
    .iter()
    .map(|key| text.find(&format!("{key}:")).expect("the key is there"))
    .collect();
    assert!(order.is_sorted());
}

#[test]
fn json_and_dot_exports_contain_every_object() {
    let folder = with_shop();
    let json = printed(&folder.heaptide("heap export job.heap --format json -o -"));
    assert_eq!(json.matches("\"number\": ").count(), 10);
    assert!(json.contains("\"['cache']\""), "{json}");
    let dot = printed(&folder.heaptide("heap export job.heap --format dot -o -"));
    for (kind, count) in [
        ("dict", 4),
        ("module", 1),
        ("set", 1),
        ("shop.Order", 2),
        ("float", 2),
    ] {
        let label = format!("[label=\"{kind}");
        assert_eq!(dot.matches(&label).count(), count, "{kind}: {dot}");
    }
}

#[test]
fn explore_page_has_no_placeholder_is_small_and_is_not_overwritten() {
    let folder = with_shop();
    write(&folder, "later.heap", leaking_shop());
    assert_eq!(
        printed(&folder.heaptide("heap explore --baseline job.heap later.heap -o page.html")),
        "Wrote page.html\n"
    );
    let page = std::fs::read_to_string(folder.path().join("page.html")).expect("a page");
    assert!(!page.contains("HEAPTIDE-DATA-GOES-HERE"));
    assert!(page.len() < 200_000, "{}", page.len());
    let again = folder.heaptide("heap explore job.heap -o page.html");
    assert_eq!(again.status.code(), Some(1));
    let message = error_text(&again);
    assert!(message.contains("page.html exists already"), "{message}");
    let kept = std::fs::read_to_string(folder.path().join("page.html"));
    assert_eq!(kept.expect("a page"), page);
    printed(&folder.heaptide("heap explore job.heap -f -o page.html"));
    let replaced = std::fs::read_to_string(folder.path().join("page.html"));
    assert_ne!(replaced.expect("a page"), page);
}
