//! Analyses of small heaps that are built by hand.

use heaptide_analysis::heap::diff::{diff, leaked, only_in};
use heaptide_analysis::heap::pattern::{Flag, reference_pattern};
use heaptide_analysis::heap::{By, Heap, ObjectSet, Partition};
use heaptide_capture::heap::{EdgeType, Label, Objects, RootCategory};
use heaptide_testkit::{HeapBuilder, shop};

fn rows(heap: &Heap, set: &ObjectSet, by: By) -> Vec<(String, u64, u64)> {
    let partition = Partition::of(heap, set, by);
    let rows = partition.rows.into_iter();
    rows.map(|row| (row.label, row.count, row.bytes)).collect()
}

fn row(label: &str, count: u64, bytes: u64) -> (String, u64, u64) {
    (label.to_owned(), count, bytes)
}

#[test]
fn dicts_are_distinguished_by_their_owner() {
    let heap = Heap::new(shop().finish());
    assert_eq!(
        rows(&heap, &heap.all(), By::Kind),
        [
            row("dict (no owner)", 1, 400),
            row("set", 1, 216),
            row("dict of module", 1, 200),
            row("dict of shop.Order", 2, 128),
            row("shop.Order", 2, 96),
            row("module", 1, 72),
            row("float", 2, 48),
        ]
    );
    let types = rows(&heap, &heap.all(), By::Type);
    assert_eq!(types[0], row("dict", 4, 728));
    assert_eq!(heap.of_kind("dict").len(), 4);
    assert_eq!(heap.of_kind("dict of shop.Order").len(), 2);
}

#[test]
fn members_of_a_row_are_the_objects_that_it_counts() {
    let heap = Heap::new(shop().finish());
    let all = heap.all();
    for (_, by) in By::ALL {
        let partition = Partition::of(&heap, &all, by);
        let mut n_members = 0;
        for (at, row) in partition.rows.iter().enumerate() {
            let members = partition.members(&all, at);
            assert_eq!(members.len() as u64, row.count);
            assert_eq!(heap.bytes_of(&members), row.bytes);
            n_members += members.len();
        }
        assert_eq!(n_members, heap.n_objects());
    }
}

#[test]
fn via_and_referrers_name_every_reference() {
    let heap = Heap::new(shop().finish());
    let orders = heap.of_kind("shop.Order");
    assert_eq!(
        rows(&heap, &orders, By::Via),
        [
            row("\"['a']\", 'list(_)[0]'", 1, 48),
            row("\"['b']\"", 1, 48)
        ]
    );
    assert_eq!(
        rows(&heap, &orders, By::Referrers),
        [
            row("dict (no owner)", 1, 48),
            row("dict (no owner), set", 1, 48)
        ]
    );
    let kinds = rows(&heap, &heap.referrers_of(&orders), By::Kind);
    assert_eq!(kinds, [row("dict (no owner)", 1, 400), row("set", 1, 216)]);
}

#[test]
fn paths_are_expressions_from_a_module() {
    let heap = Heap::new(shop().finish());
    let found = heap.shortest_paths(&heap.of_kind("float"), 10);
    let texts: Vec<String> = found
        .paths
        .iter()
        .map(|path| heap.path_text(path))
        .collect();
    assert_eq!(
        texts,
        [
            "sys.modules['job'].__dict__['cache']['a'].__dict__['price']",
            "sys.modules['job'].__dict__['cache']['b'].__dict__['price']",
            "list(sys.modules['job'].__dict__['open'])[0].__dict__['price']",
        ]
    );
    let cache = heap.of_kind("dict (no owner)");
    let around = heap.paths_from(None, &heap.of_kind("float"), &cache, 10);
    assert_eq!(around.n_paths, 1);
}

#[test]
fn objects_held_twice_are_retained_by_neither_holder() {
    let heap = Heap::new(shop().finish());
    let cache = heap.of_kind("dict (no owner)");
    // Its own 400 bytes, and the order that no other object holds.
    assert_eq!(heap.bytes_of(&heap.dominated(&cache)), 400 + 136);
    let both = cache.union(&heap.of_kind("set"));
    assert_eq!(heap.bytes_of(&heap.dominated(&both)), 400 + 216 + 272);
}

#[test]
fn pattern_shows_holders_by_kind_until_a_module() {
    let heap = Heap::new(shop().finish());
    let prices = heap.of_kind("float");
    let found = reference_pattern(&heap, &prices, 7, &ObjectSet::default());
    let rows: Vec<(Vec<usize>, Flag, &str)> = found
        .iter()
        .map(|row| (row.path.clone(), row.flag, row.label.as_str()))
        .collect();
    assert_eq!(
        rows,
        [
            (vec![], Flag::Expanded, "float"),
            (vec![0], Flag::Expanded, "dict of shop.Order"),
            (vec![0, 0], Flag::Expanded, "shop.Order"),
            (vec![0, 0, 0], Flag::Expanded, "dict (no owner)"),
            (vec![0, 0, 0, 0], Flag::Stopped, "dict of module"),
            (vec![0, 0, 1], Flag::Expanded, "set"),
            (vec![0, 0, 1, 0], Flag::Seen(4), "dict of module"),
        ]
    );
}

#[test]
fn weak_references_hold_nothing() {
    let mut builder = shop();
    let reference = builder.object("weakref.ReferenceType", 72);
    builder.root(RootCategory::C, "", reference);
    let alone = builder.object("shop.Order", 48);
    builder.flags(alone, Objects::TRACKED | Objects::UNREACHABLE);
    builder.edge(reference, alone, Label::new(EdgeType::Weak, 0));
    let heap = Heap::new(builder.finish());
    assert_eq!(heap.unreachable().len(), 1);
    assert!(heap.referrers_of(&heap.unreachable()).is_empty());
}

#[test]
fn differences_match_objects_by_identity() {
    let before = Heap::new(shop().finish());
    let mut later = shop();
    // No object of the earlier snapshot has this address.
    let extra = later.object_at(0x9000, "shop.Order", 48);
    later.root(RootCategory::C, "", extra);
    let after = Heap::new(later.finish());
    let found = diff(&before, &after, By::Kind);
    assert!(found.is_same_process);
    assert_eq!((found.new.len(), found.gone.len()), (1, 0));
    assert_eq!(found.rows.len(), 1);
    assert_eq!(found.rows[0].label, "shop.Order");
    assert_eq!((found.rows[0].count(), found.rows[0].bytes()), (1, 48));
    let back = diff(&after, &before, By::Kind);
    assert_eq!((back.rows[0].count(), back.gone.len()), (-1, 1));
}

#[test]
fn object_of_another_type_at_the_same_address_is_new() {
    let mut one = HeapBuilder::new();
    one.object_at(0x100, "str", 50);
    let mut other = HeapBuilder::new();
    other.object_at(0x100, "bytes", 50);
    let (one, other) = (Heap::new(one.finish()), Heap::new(other.finish()));
    assert_eq!(only_in(&other, &one).len(), 1);
}

#[test]
fn leaked_objects_appeared_under_load_and_are_still_alive() {
    let with = |addresses: &[u64]| {
        let mut builder = HeapBuilder::new();
        for &address in addresses {
            builder.object_at(address, "shop.Order", 48);
        }
        Heap::new(builder.finish())
    };
    let baseline = with(&[0x10]);
    let load = with(&[0x10, 0x20, 0x30]);
    let after = with(&[0x10, 0x30, 0x40]);
    let found = leaked(&baseline, &load, &after);
    let addresses: Vec<String> = found.iter().map(|object| after.address(object)).collect();
    assert_eq!(addresses, ["0x30"]);
}

#[test]
fn a_module_holds_its_namespace_while_code_runs_in_it() {
    let mut program = HeapBuilder::new();
    let module = program.object("module", 72);
    let namespace = program.object("dict", 200);
    program.edge(module, namespace, Label::new(EdgeType::DictOf, 0));
    program.root(RootCategory::Module, "job", module);
    let cache = program.object("dict", 5000);
    program.named(namespace, cache, EdgeType::Key, "cache");
    let running = program.object("function", 160);
    program.named(running, namespace, EdgeType::Attribute, "__globals__");
    program.root(RootCategory::Frame, "thread 1/<module> function", running);
    let arguments = program.object("tuple", 56);
    program.edge(arguments, namespace, Label::new(EdgeType::Index, 0));
    program.root(RootCategory::C, "", arguments);
    let heap = Heap::new(program.finish());
    let held = heap.of_kind("dict (no owner)");
    assert_eq!(
        heap.bytes_of(&heap.dominated(&heap.of_kind("module"))),
        5272
    );
    assert_eq!(
        rows(
            &heap,
            &heap.dominators_of(&heap.of_kind("dict of module")),
            By::Kind
        ),
        [row("module", 1, 72)]
    );
    let found = heap.shortest_paths(&held, 10);
    assert_eq!(found.n_paths, 1);
    assert_eq!(
        heap.path_text(&found.paths[0]),
        "sys.modules['job'].__dict__['cache']"
    );
    assert!(heap.unreachable().is_empty());
}

#[test]
fn paths_from_c_code_are_used_only_if_there_is_no_other() {
    let mut program = HeapBuilder::new();
    let code = program.object("code", 200);
    program.root(RootCategory::Frame, "thread 1/<module> f_code", code);
    let constants = program.object("tuple", 56);
    program.named(code, constants, EdgeType::Internal, "co_consts");
    let constant = program.object("bytes", 5000);
    program.edge(constants, constant, Label::new(EdgeType::Index, 3));
    let parsed = program.object("list", 100);
    program.root(RootCategory::C, "", parsed);
    program.edge(parsed, constant, Label::new(EdgeType::Index, 7));
    let held_by_c = program.object("bytearray", 60);
    program.edge(parsed, held_by_c, Label::new(EdgeType::Index, 8));
    let heap = Heap::new(program.finish());
    let paths_to = |kind: &str| -> Vec<String> {
        let found = heap.shortest_paths(&heap.of_kind(kind), 10);
        assert_eq!(found.n_paths, found.paths.len() as u64);
        found
            .paths
            .iter()
            .map(|path| heap.path_text(path))
            .collect()
    };
    assert_eq!(
        paths_to("bytes"),
        ["<frame thread 1/<module> f_code>.co_consts[3]"]
    );
    assert_eq!(paths_to("bytearray"), ["<held by C code>[8]"]);
    // Both roots still hold it.
    assert_eq!(
        heap.bytes_of(&heap.dominated(&heap.of_kind("types.CodeType"))),
        200 + 56
    );
    let object = heap.of_kind("bytearray").numbers()[0];
    assert_eq!(
        heap.distances().path_to(object).map(|path| path.len()),
        Some(2)
    );
}
