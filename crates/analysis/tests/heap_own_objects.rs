//! Objects that Heaptide's own functions use while they take a snapshot.

use heaptide_analysis::heap::waste::waste;
use heaptide_analysis::heap::{Heap, examples};
use heaptide_capture::heap::{EdgeType, Label, RootCategory};
use heaptide_testkit::{Added, HeapBuilder};

/// Adds a module and returns its namespace.
fn module(heap: &mut HeapBuilder, name: &str) -> Added {
    let module = heap.object("module", 72);
    let namespace = heap.object("dict", 500);
    heap.edge(module, namespace, Label::new(EdgeType::DictOf, 0));
    heap.root(RootCategory::Module, name, module);
    namespace
}

/// Adds a frame of a function of a module, and returns the list in its local variable.
fn frame(heap: &mut HeapBuilder, name: &str, namespace: Added) -> Added {
    let function = heap.object("function", 160);
    heap.named(function, namespace, EdgeType::Internal, "__globals__");
    heap.root(RootCategory::Frame, &format!("{name} function"), function);
    let local = heap.object("list", 56);
    heap.root(RootCategory::Frame, &format!("{name}.local"), local);
    local
}

#[test]
fn objects_of_heaptide_are_neither_waste_nor_examples() {
    let mut heap = HeapBuilder::new();
    let own = module(&mut heap, "heaptide.inspection");
    let job = module(&mut heap, "job");
    // The function that takes the snapshot is the innermost frame; a wrapper of Heaptide's calls the program.
    let local = frame(&mut heap, "thread 1/heap_snapshot", own);
    let value = heap.object("list", 56);
    heap.root(RootCategory::Frame, "thread 1/heap_snapshot value 0", value);
    // Only the arguments hold the list `redact`. The program also holds the list `shared`.
    let arguments = heap.object("dict", 300);
    heap.root(
        RootCategory::Frame,
        "thread 1/heap_snapshot.arguments",
        arguments,
    );
    let redact = heap.object("list", 56);
    heap.named(arguments, redact, EdgeType::Key, "redact");
    let shared = heap.object("list", 56);
    heap.named(arguments, shared, EdgeType::Key, "data");
    heap.named(job, shared, EdgeType::Key, "data");
    let of_program = frame(&mut heap, "thread 1/main", job);
    let of_wrapper = frame(&mut heap, "thread 1/wrapper", own);

    let heap = Heap::new(heap.finish());
    let lists = heap.of_kind("list");
    assert_eq!(lists.len(), 6);
    let of_program = [shared.0, of_program.0, of_wrapper.0];
    assert_eq!(examples(&heap, &lists, 3), of_program);
    assert_eq!(examples(&heap, &lists, 4)[1..], of_program);
    assert_eq!(examples(&heap, &lists, 4)[0], local.0);
    assert_eq!(examples(&heap, &lists, 9).len(), 6);
    let found = waste(&heap).rows;
    let lists: Vec<u64> = found
        .iter()
        .filter(|row| row.what.starts_with("list"))
        .map(|row| row.count)
        .collect();
    assert_eq!(lists.iter().sum::<u64>(), 3, "{found:?}");
}

#[test]
fn script_of_a_command_from_outside_is_heaptides_but_not_the_program_that_it_interrupts() {
    let mut heap = HeapBuilder::new();
    let attached = module(&mut heap, "heaptide.attached");
    let script = heap.object("dict", 500);
    let job = module(&mut heap, "job");
    for (name, namespace) in [
        ("take_heap", attached),
        ("act", script),
        ("visit", script),
        ("<module>", script),
    ] {
        frame(&mut heap, &format!("thread 2/{name}"), namespace);
    }
    let of_module = frame(&mut heap, "thread 2/<module>", job);
    let of_other = frame(&mut heap, "thread 1/act", job);
    let heap = Heap::new(heap.finish());
    let lists = heap.of_kind("list");
    assert_eq!(lists.len(), 6);
    assert_eq!(examples(&heap, &lists, 2), [of_module.0, of_other.0]);
}

#[test]
fn frame_objects_of_python_3_10_are_recognised_by_their_namespace() {
    let mut heap = HeapBuilder::new();
    let own = module(&mut heap, "heaptide.inspection");
    let job = module(&mut heap, "job");
    let mut lists = Vec::new();
    for (name, namespace) in [("heap_snapshot", own), ("main", job)] {
        let frame = heap.object("frame", 400);
        heap.named(frame, namespace, EdgeType::Internal, "f_globals");
        let local = heap.object("list", 56);
        heap.named(frame, local, EdgeType::Internal, "local");
        heap.root(RootCategory::Frame, &format!("thread 1/{name}"), frame);
        lists.push(local);
    }
    let heap = Heap::new(heap.finish());
    assert_eq!(examples(&heap, &heap.of_kind("list"), 1), [lists[1].0]);
}
