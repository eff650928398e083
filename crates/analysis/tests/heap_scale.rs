//! Heaps with long chains and wide containers: the work grows with the number of objects, not with its square, and no
//! recursion uses the native stack. Compares processor times of one thread, so that the load of the machine does not matter.

use std::time::Duration;

use heaptide_analysis::heap::explore::{ExploreLimits, explore};
use heaptide_analysis::heap::picture;
use heaptide_analysis::heap::suspects::suspects;
use heaptide_analysis::heap::types::{Order, kinds_table};
use heaptide_analysis::heap::waste::waste;
use heaptide_analysis::heap::{By, Heap, ObjectSet};
use heaptide_capture::heap::{EdgeType, Label, RootCategory};
use heaptide_testkit::{HeapBuilder, thread_cpu_time};

const N_SMALL: u32 = 5_000;
/// Eight times as many objects take about eight times as long; with quadratic work they take 64 times as long.
const FACTOR: u32 = 8;
const MAX_RATIO: u32 = 30;

/// A module `job` whose variable `head` is a list. It holds all other objects, or only the first of a chain.
fn heap(n_objects: u32, is_wide: bool) -> Heap {
    let mut heap = HeapBuilder::new();
    let module = heap.object_at(0x1000, "module", 72);
    let namespace = heap.object_at(0x1010, "dict", 232);
    heap.edge(module, namespace, Label::new(EdgeType::DictOf, 0));
    heap.root(RootCategory::Module, "job", module);
    let head = heap.object_at(0x1020, "list", 64);
    heap.named(namespace, head, EdgeType::Key, "head");
    let mut last = head;
    for at in 0..n_objects {
        let next = heap.object_at(0x2000 + u64::from(at) * 16, "dict", 64);
        if is_wide {
            heap.edge(head, next, Label::new(EdgeType::Index, at));
        } else {
            heap.named(last, next, EdgeType::Attribute, "next");
        }
        last = next;
    }
    Heap::new(heap.finish())
}

fn chain(n_objects: u32) -> Heap {
    heap(n_objects, false)
}

fn wide(n_objects: u32) -> Heap {
    heap(n_objects, true)
}

/// The shortest of three processor times that `work` takes on heaps of each size.
fn times(make: impl Fn(u32) -> Heap, work: impl Fn(&Heap)) -> [Duration; 2] {
    [N_SMALL, FACTOR * N_SMALL].map(|n_objects| {
        let heap = make(n_objects);
        work(&heap);
        let one = || {
            let start = thread_cpu_time();
            work(&heap);
            thread_cpu_time() - start
        };
        let shortest = (0..3).map(|_| one()).min();
        shortest.unwrap_or_default()
    })
}

#[track_caller]
fn assert_linear(what: &str, make: impl Fn(u32) -> Heap, work: impl Fn(&Heap)) {
    let [small, large] = times(make, work);
    // Half a millisecond more, because the smaller time may be close to zero.
    let limit = MAX_RATIO * (small + Duration::from_micros(500));
    assert!(large < limit, "{what}: {small:?} and {large:?}");
}

fn last_object(heap: &Heap) -> ObjectSet {
    std::iter::once(heap.n_objects() as u32 - 1).collect()
}

#[test]
fn suspects_of_a_linked_list_take_linear_time() {
    assert_linear("suspects", chain, |heap| {
        let found = suspects(heap, None, 5);
        assert!(!found.suspects.is_empty());
        for suspect in &found.suspects {
            assert!(heap.path_text(&suspect.path).len() < 10_000);
        }
    });
}

#[test]
fn page_of_a_linked_list_and_of_a_wide_list_takes_linear_time() {
    let limits = ExploreLimits {
        max_objects: 2_000,
        ..ExploreLimits::default()
    };
    assert_linear("explore chain", chain, |heap| {
        explore(heap, None, limits);
    });
    assert_linear("explore wide", wide, |heap| {
        explore(heap, None, limits);
    });
}

#[test]
fn path_to_the_end_of_a_linked_list_takes_linear_time() {
    assert_linear("paths", chain, |heap| {
        let paths = heap.shortest_paths(&last_object(heap), 3);
        assert_eq!((paths.paths.len(), paths.n_paths), (1, 1));
        assert_eq!(paths.paths[0].len(), heap.n_objects());
        assert!(
            heap.path_text(&paths.paths[0])
                .contains("more references ...>")
        );
    });
}

#[test]
fn waste_and_types_of_chains_and_wide_lists_take_linear_time() {
    for make in [chain, wide] {
        assert_linear("waste", make, |heap| {
            waste(heap);
        });
        assert_linear("types", make, |heap| {
            kinds_table(heap, By::Kind, Order::Retained);
        });
    }
}

#[test]
fn picture_of_a_long_path_counts_its_middle() {
    let heap = chain(N_SMALL);
    let end = heap.n_objects() as u32 - 1;
    let drawn = picture::path(&heap, end);
    assert!(drawn.boxes.len() < 100);
    let hidden = drawn.boxes.iter().find_map(|one| match one.role {
        picture::Role::More(n_objects) => Some(n_objects),
        _ => None,
    });
    assert_eq!(hidden, Some(heap.n_objects() - drawn.boxes.len() + 1));
    assert_eq!(drawn.arrows.len(), drawn.boxes.len() - 1);
}

#[test]
fn long_chain_needs_no_deep_native_stack() {
    let work = || {
        let heap = chain(200_000);
        assert!(!suspects(&heap, None, 1).suspects.is_empty());
    };
    let thread = std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(work);
    thread.expect("a thread").join().expect("no overflow");
}
