//! Well-known shapes of leaks, each in a heap built by hand, and waste.

use heaptide_analysis::heap::suspects::{Shape, Suspect, suspects};
use heaptide_analysis::heap::waste::{WasteCategory, waste};
use heaptide_analysis::heap::{Heap, ObjectSet};
use heaptide_capture::heap::{
    AllocationFrame, AllocationStacks, EdgeType, Label, Objects, Root, RootCategory,
};
use heaptide_testkit::{Added, HeapBuilder};

const N_LEAKED: usize = 200;

/// A heap with a module `job`, program text that is larger than the leak, and some data.
struct Program {
    heap: HeapBuilder,
    namespace: Added,
}

impl Program {
    fn new() -> Program {
        let mut heap = HeapBuilder::new();
        let module = heap.object("module", 72);
        let namespace = heap.object("dict", 20_000);
        heap.edge(module, namespace, Label::new(EdgeType::DictOf, 0));
        heap.root(RootCategory::Module, "job", module);
        for at in 0..50 {
            let function = heap.object("function", 160);
            heap.named(namespace, function, EdgeType::Key, &format!("f{at}"));
            let code = heap.object("code", 40_000);
            heap.named(function, code, EdgeType::Internal, "__code__");
            let text = heap.object("str", 90_000);
            heap.named(code, text, EdgeType::Internal, "co_consts");
        }
        let settings = heap.object("dict", 2000);
        heap.named(namespace, settings, EdgeType::Key, "settings");
        Program { heap, namespace }
    }

    fn put(&mut self, name: &str, kind: &str, size: u64) -> Added {
        let object = self.heap.object(kind, size);
        self.heap.named(self.namespace, object, EdgeType::Key, name);
        object
    }

    fn below(&mut self, holder: Added, name: &str, kind: &str, size: u64) -> Added {
        let object = self.heap.object(kind, size);
        self.heap.named(holder, object, EdgeType::Internal, name);
        object
    }

    fn fill(&mut self, holder: Added, kind: &str, size: u64) {
        for at in 0..N_LEAKED as u32 {
            let item = self.heap.object(kind, size);
            self.heap
                .edge(holder, item, Label::new(EdgeType::Index, at));
        }
    }

    fn first(self) -> (Heap, Suspect) {
        let heap = Heap::new(self.heap.finish());
        let mut found = suspects(&heap, None, 3).suspects;
        assert!(!found.is_empty());
        (heap, found.remove(0))
    }
}

#[test]
fn cache_of_a_module_is_the_first_suspect() {
    let mut program = Program::new();
    let cache = program.put("cache", "dict", 9000);
    for at in 0..N_LEAKED {
        let item = program.heap.object("job.Order", 1000);
        let key = format!("order {at}");
        program.heap.named(cache, item, EdgeType::Key, &key);
    }
    let (heap, first) = program.first();
    assert_eq!(first.shape, Shape::Container);
    assert_eq!(
        heap.path_text(&first.path),
        "sys.modules['job'].__dict__['cache']"
    );
    assert_eq!(first.bytes, 9000 + 1000 * N_LEAKED as u64);
    assert_eq!(first.piles[0].kind, "job.Order");
    assert_eq!(first.piles[0].count, N_LEAKED as u64);
}

#[test]
fn linked_list_is_one_suspect_at_its_first_link() {
    let mut program = Program::new();
    let queue = program.put("queue", "job.Queue", 48);
    let mut last = queue;
    for _ in 0..5_000 {
        let link = program.heap.object("job.Node", 64);
        program.heap.named(last, link, EdgeType::Attribute, "next");
        let payload = program.heap.object("bytes", 100);
        program
            .heap
            .named(link, payload, EdgeType::Attribute, "data");
        last = link;
    }
    let (heap, first) = program.first();
    assert_eq!(first.shape, Shape::Chain);
    assert_eq!(
        heap.path_text(&first.path),
        "sys.modules['job'].__dict__['queue'].next"
    );
    // Each object counts once, although each link keeps all later ones alive.
    assert_eq!((first.bytes, first.n_items), (5_000 * 164, 5_000));
    let piles: Vec<_> = first
        .piles
        .iter()
        .map(|pile| (pile.kind.as_str(), pile.count, pile.bytes))
        .collect();
    let expected = [
        ("bytes", 5_000, 5_000 * 100),
        ("job.Node", 5_000, 5_000 * 64),
    ];
    assert_eq!(piles, expected);
    assert_eq!(suspects(&heap, None, 10).suspects.len(), 1);
}

#[test]
fn data_at_the_end_of_a_chain_is_a_separate_suspect() {
    let mut program = Program::new();
    let mut last = program.put("first", "job.Node", 64);
    for _ in 0..500 {
        let link = program.heap.object("job.Node", 1_000);
        program.heap.named(last, link, EdgeType::Attribute, "next");
        last = link;
    }
    for name in ["orders", "invoices"] {
        let list = program.below(last, name, "list", 8_000);
        program.fill(list, "job.Order", 5_000);
    }
    let heap = Heap::new(program.heap.finish());
    let found = suspects(&heap, None, 10).suspects;
    let sizes: Vec<_> = found.iter().map(|one| (one.shape, one.bytes)).collect();
    // The last link belongs to the data that it holds.
    let data = 1_000 + 2 * (8_000 + 5_000 * N_LEAKED as u64);
    let expected = [(Shape::Container, data), (Shape::Chain, 64 + 499 * 1_000)];
    assert_eq!(sizes, expected);
}

#[test]
fn variables_of_a_closure_are_reported_as_a_closure() {
    let mut program = Program::new();
    let callback = program.put("callback", "function", 160);
    let cells = program.below(callback, "__closure__", "tuple", 48);
    let cell = program.heap.object("cell", 40);
    program
        .heap
        .edge(cells, cell, Label::new(EdgeType::Index, 0));
    let rows = program.heap.object("list", 2000);
    program.heap.named(cell, rows, EdgeType::Cell, "rows");
    program.fill(rows, "bytes", 1000);
    let (heap, first) = program.first();
    assert_eq!(first.shape, Shape::Closure);
    assert_eq!(
        heap.path_text(&first.path),
        "sys.modules['job'].__dict__['callback'].__closure__[0].cell_contents"
    );
}

#[test]
fn many_closures_over_data_are_reported_as_a_closure() {
    let mut program = Program::new();
    let callbacks = program.put("callbacks", "list", 2000);
    for at in 0..N_LEAKED as u32 {
        let callback = program.heap.object("function", 160);
        let label = Label::new(EdgeType::Index, at);
        program.heap.edge(callbacks, callback, label);
        let cells = program.below(callback, "__closure__", "tuple", 48);
        let cell = program.heap.object("cell", 40);
        program
            .heap
            .edge(cells, cell, Label::new(EdgeType::Index, 0));
        let row = program.heap.object("bytes", 1000);
        program.heap.named(cell, row, EdgeType::Cell, "row");
    }
    let (heap, first) = program.first();
    assert_eq!(first.shape, Shape::Closure);
    assert_eq!(
        heap.path_text(&first.path),
        "sys.modules['job'].__dict__['callbacks']"
    );
}

#[test]
fn variables_of_a_stored_exception_are_reported_as_a_traceback() {
    let mut program = Program::new();
    let error = program.put("last_error", "ValueError", 80);
    let traceback = program.below(error, "__traceback__", "traceback", 64);
    let frame = program.below(traceback, "tb_frame", "frame", 400);
    let rows = program.heap.object("list", 2000);
    program.heap.named(frame, rows, EdgeType::Local, "rows");
    program.fill(rows, "bytes", 1000);
    let (heap, first) = program.first();
    assert_eq!(first.shape, Shape::Traceback);
    assert_eq!(
        heap.path_text(&first.path),
        "sys.modules['job'].__dict__['last_error'].__traceback__.tb_frame.f_locals['rows']"
    );
}

#[test]
fn results_of_a_cached_function_are_reported_as_an_lru_cache() {
    let mut program = Program::new();
    let wrapper = program.put("fetch", "functools._lru_cache_wrapper", 200);
    let cache = program.below(wrapper, "cache", "dict", 9000);
    program.fill(cache, "bytes", 1000);
    let (heap, first) = program.first();
    assert_eq!(first.shape, Shape::LruCache);
    assert_eq!(
        heap.path_text(&first.path),
        "sys.modules['job'].__dict__['fetch']->cache"
    );
}

#[test]
fn objects_that_only_refer_to_each_other_are_reported_as_a_cycle() {
    let mut program = Program::new();
    for _ in 0..N_LEAKED {
        let one = program.heap.object("job.Node", 600);
        let other = program.heap.object("job.Node", 600);
        let unreachable = Objects::TRACKED | Objects::UNREACHABLE;
        program.heap.flags(one, unreachable);
        program.heap.flags(other, unreachable);
        program.heap.named(one, other, EdgeType::Attribute, "peer");
        program.heap.named(other, one, EdgeType::Attribute, "peer");
    }
    let (_, first) = program.first();
    assert_eq!(first.shape, Shape::Cycle);
    assert_eq!(first.point, None);
    assert_eq!(first.n_items, N_LEAKED as u64);
    assert_eq!(first.bytes, 1200 * N_LEAKED as u64);
    assert_eq!(first.piles[0].kind, "job.Node");
}

#[test]
fn interned_strings_are_a_suspect_without_the_bytes_of_their_table() {
    let with_table = |n_strings: u32| {
        let mut program = Program::new();
        let table = program.heap.object("dict", 300_000);
        let name = "interned strings";
        program.heap.root(RootCategory::Interpreter, name, table);
        for at in 0..n_strings {
            let string = program.heap.object("str", 1000);
            let label = Label::new(EdgeType::KeyOf, at);
            program.heap.edge(table, string, label);
        }
        program
    };
    let (heap, first) = with_table(N_LEAKED as u32).first();
    assert_eq!(first.shape, Shape::Interned);
    assert_eq!(first.bytes, 1000 * N_LEAKED as u64);
    assert!(first.is_sole_holder);
    assert_eq!(heap.path_text(&first.path), "<interned strings>");
    let ordinary = Heap::new(with_table(2).heap.finish());
    assert!(suspects(&ordinary, None, 5).suspects.is_empty());
}

#[test]
fn objects_in_two_containers_are_a_suspect_without_a_sole_holder() {
    // The larger container is named, and the first of two that have the same size.
    for (list_bytes, dict_bytes, expected) in [
        (2000, 9000, "by_name"),
        (9000, 2000, "orders"),
        (9000, 9000, "orders"),
    ] {
        let mut program = Program::new();
        let list = program.put("orders", "list", list_bytes);
        let index = program.put("by_name", "dict", dict_bytes);
        for at in 0..N_LEAKED as u32 {
            let item = program.heap.object("job.Order", 1000);
            program
                .heap
                .edge(list, item, Label::new(EdgeType::Index, at));
            program
                .heap
                .named(index, item, EdgeType::Key, &format!("n{at}"));
        }
        let (heap, first) = program.first();
        assert!(!first.is_sole_holder);
        assert_eq!(first.bytes, 1000 * N_LEAKED as u64);
        assert_eq!(
            heap.path_text(&first.path),
            format!("sys.modules['job'].__dict__['{expected}']")
        );
    }
}

#[test]
fn only_new_objects_count_when_there_is_a_baseline() {
    let mut program = Program::new();
    let old = program.put("old", "list", 2000);
    program.fill(old, "bytes", 10_000);
    let fresh = program.put("fresh", "list", 2000);
    program.fill(fresh, "job.Order", 1000);
    let heap = Heap::new(program.heap.finish());
    let all = suspects(&heap, None, 1);
    assert!(heap.path_text(&all.suspects[0].path).ends_with("['old']"));
    let new: ObjectSet = heap.of_kind("job.Order");
    let found = suspects(&heap, Some(&new), 1);
    assert_eq!(found.bytes, 1000 * N_LEAKED as u64);
    assert!(
        heap.path_text(&found.suspects[0].path)
            .ends_with("['fresh']")
    );
}

#[test]
fn suspect_names_the_lines_that_allocated_it() {
    let mut program = Program::new();
    let cache = program.put("cache", "list", 2000);
    program.fill(cache, "bytes", 1000);
    let mut snapshot = program.heap.finish();
    let frame = |function: &str, line: u32| AllocationFrame {
        function: function.into(),
        file: "job.py".into(),
        line,
    };
    let bytes = snapshot.types.iter().position(|one| one.name == "bytes");
    let of_objects = snapshot.objects.types.iter();
    let of_objects = of_objects.map(|&one| u32::from(Some(one as usize) == bytes));
    let mut of_objects: Vec<u32> = of_objects.collect();
    // One object in a reused block, whose stack is that of an earlier object.
    let reused = of_objects.iter().position(|&stack| stack == 1).unwrap();
    of_objects[reused] = 2;
    snapshot.stacks = Some(AllocationStacks {
        of_objects,
        stacks: vec![vec![], vec![0, 1], vec![2]],
        frames: vec![frame("main", 3), frame("load", 17), frame("earlier", 5)],
    });
    let heap = Heap::new(snapshot);
    let found = suspects(&heap, None, 1);
    let sites = &found.suspects[0].sites;
    assert_eq!((sites[0].function.as_str(), sites[0].line), ("load", 17));
    assert_eq!(sites[0].bytes, 1000 * (N_LEAKED as u64 - 1));
    assert_eq!(sites.len(), 1, "a line with less than 1% is left out");
}

#[test]
fn waste_and_missing_values_are_reported() {
    let mut program = Program::new();
    // 56 bytes and capacity for 20 items, of which 2 are used.
    let spare = program.put("spare", "list", 56 + 160);
    for at in 0..2 {
        let item = program.heap.object("str", 50);
        program.heap.value(item, "'same'");
        program
            .heap
            .edge(spare, item, Label::new(EdgeType::Index, at));
    }
    program.put("empty", "set", 216);
    let sparse = program.put("sparse", "dict", 100_000);
    let item = program.heap.object("int", 28);
    program.heap.named(sparse, item, EdgeType::Key, "one");
    let report = waste(&Heap::new(program.heap.finish()));
    assert!(report.has_values);
    let row = |category: WasteCategory, what: &str| {
        let mut rows = report.rows.iter();
        rows.find(|row| row.category == category && row.what == what)
            .unwrap_or_else(|| panic!("{what} is not in {:?}", report.rows))
    };
    assert_eq!(
        row(WasteCategory::SpareList, "list spare of module").bytes,
        18 * 8
    );
    assert_eq!(row(WasteCategory::Empty, "set empty of module").bytes, 216);
    assert_eq!(row(WasteCategory::DuplicateText, "str 'same'").bytes, 50);
    let sparse = row(
        WasteCategory::SparseDict,
        "dict (no owner) sparse of module",
    );
    assert!(sparse.bytes > 99_000);

    let without_values = waste(&Heap::new(Program::new().heap.finish()));
    assert!(!without_values.has_values);
}

#[test]
fn instances_with_dicts_are_reported_as_waste_that_slots_avoid() {
    let mut program = Program::new();
    let orders = program.put("orders", "tuple", 2000);
    for at in 0..N_LEAKED as u32 {
        let order = program.heap.object("job.Order", 48);
        program
            .heap
            .edge(orders, order, Label::new(EdgeType::Index, at));
        let own = program.heap.object("dict", 184);
        program
            .heap
            .edge(order, own, Label::new(EdgeType::DictOf, 0));
        let price = program.heap.object("float", 24);
        program.heap.named(own, price, EdgeType::Key, "price");
        let class = program.heap.object("job.Meta", 1000);
        let bases = program.heap.object("tuple", 48);
        let names = program.heap.object("dict", 184);
        program
            .heap
            .named(class, bases, EdgeType::Internal, "__mro__");
        program
            .heap
            .edge(class, names, Label::new(EdgeType::DictOf, 0));
    }
    let mut snapshot = program.heap.finish();
    use heaptide_capture::heap::TypeInfo;
    for one in &mut snapshot.types {
        if one.name == "Order" || one.name == "Meta" {
            one.flags |= TypeInfo::HEAP | TypeInfo::DICT;
        }
    }
    let report = waste(&Heap::new(snapshot));
    let rows: Vec<_> = report
        .rows
        .iter()
        .filter(|row| row.category == WasteCategory::NoSlots)
        .collect();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].what, "job.Order");
    assert_eq!(rows[0].count, N_LEAKED as u64);
    assert_eq!(rows[0].bytes, (184 + 16 - 8) * N_LEAKED as u64);
}

/// The import system of every program: finders with their caches, specs, classes without instances, interned strings.
fn add_import_system(program: &mut Program) {
    let heap = &mut program.heap;
    let sys = heap.object("module", 72);
    let namespace = heap.object("dict", 5000);
    heap.edge(sys, namespace, Label::new(EdgeType::DictOf, 0));
    heap.root(RootCategory::Module, "sys", sys);
    let cache = heap.object("dict", 90_000);
    heap.named(namespace, cache, EdgeType::Key, "path_importer_cache");
    for at in 0..N_LEAKED {
        let finder = heap.object("_frozen_importlib_external.FileFinder", 5000);
        heap.named(cache, finder, EdgeType::Key, &format!("/lib/{at}"));
        let paths = heap.object("set", 216);
        heap.named(finder, paths, EdgeType::Internal, "_path_cache");
        let spec = heap.object("_frozen_importlib.ModuleSpec", 800);
        heap.named(namespace, spec, EdgeType::Key, &format!("spec {at}"));
        let own = heap.object("dict", 1000);
        heap.edge(spec, own, Label::new(EdgeType::DictOf, 0));
        let class = heap.object("abc.ABCMeta", 3000);
        heap.named(namespace, class, EdgeType::Key, &format!("class {at}"));
        let order = heap.object("tuple", 48);
        heap.named(class, order, EdgeType::Internal, "__mro__");
    }
    let interned = heap.object("dict", 400_000);
    heap.root(RootCategory::Interpreter, Root::INTERNED_STRINGS, interned);
    let subclasses = heap.object("dict", 90_000);
    heap.root(RootCategory::C, "", subclasses);
    for at in 0..N_LEAKED as u32 {
        let reference = heap.object("weakref.ReferenceType", 800);
        heap.edge(subclasses, reference, Label::new(EdgeType::Index, at));
    }
}

#[test]
fn clean_program_has_no_suspects_and_no_waste_of_the_import_system() {
    let mut program = Program::new();
    add_import_system(&mut program);
    let mut snapshot = program.heap.finish();
    use heaptide_capture::heap::TypeInfo;
    for one in &mut snapshot.types {
        if one.name == "ModuleSpec" {
            one.flags |= TypeInfo::HEAP | TypeInfo::DICT;
        }
    }
    let heap = Heap::new(snapshot);
    let found = suspects(&heap, None, 5).suspects;
    assert!(found.is_empty(), "{found:?}");
    let rows = waste(&heap).rows;
    let settings = "dict (no owner) settings of module";
    assert!(rows.iter().all(|row| row.what == settings), "{rows:?}");
}

#[test]
fn leak_is_found_beside_the_import_system() {
    let mut program = Program::new();
    add_import_system(&mut program);
    let cache = program.put("cache", "list", 9000);
    program.fill(cache, "job.Order", 1000);
    let (heap, first) = program.first();
    assert_eq!(
        heap.path_text(&first.path),
        "sys.modules['job'].__dict__['cache']"
    );
}
