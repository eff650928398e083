//! Retention computed by the fast algorithms, compared with slow ones that follow the definitions.

use heaptide_analysis::heap::dominators::{Dominators, TOP};
use heaptide_analysis::heap::graph::Graph;
use heaptide_analysis::heap::paths::{Distances, UNREACHED, shortest_paths};
use heaptide_analysis::heap::retained::{dominated, retained_by_groups};
use heaptide_analysis::heap::set::ObjectSet;
use proptest::prelude::*;

type Pairs = Vec<(u32, u32)>;

/// A graph of up to 24 objects, some of which are roots; sparse graphs have garbage and long paths.
fn graphs() -> impl Strategy<Value = (usize, Pairs, Vec<u32>)> {
    (1usize..24).prop_flat_map(|n| {
        let number = 0..n as u32;
        let pairs = prop::collection::vec((number.clone(), number.clone()), 0..(3 * n));
        let roots = prop::collection::vec(number, 0..4);
        (Just(n), pairs, roots)
    })
}

/// By definition: the objects that are reached if those in `without` are removed.
fn reached(n: usize, pairs: &Pairs, roots: &[u32], without: &[u32]) -> Vec<bool> {
    let mut reached = vec![false; n];
    for &root in roots {
        reached[root as usize] = !without.contains(&root);
    }
    loop {
        let before = reached.clone();
        for &(from, to) in pairs {
            if reached[from as usize] && !without.contains(&to) {
                reached[to as usize] = true;
            }
        }
        if reached == before {
            return reached;
        }
    }
}

fn size(object: u32) -> u64 {
    1 << (object % 40)
}

proptest! {
    #[test]
    fn dominators_match_the_definition((n, pairs, roots) in graphs()) {
        let graph = Graph::from_pairs(n, &pairs);
        let tree = Dominators::compute(&graph, &graph.reversed(), &roots, |_| false);
        let all = reached(n, &pairs, &roots, &[]);
        let retained = tree.retained(size);
        for holder in 0..n as u32 {
            let without = reached(n, &pairs, &roots, &[holder]);
            let mut sum = 0;
            for object in (0..n as u32).filter(|&object| all[object as usize]) {
                let expected = object == holder || !without[object as usize];
                prop_assert_eq!(tree.dominates(holder, object), expected, "{} over {}", holder, object);
                if expected {
                    sum += size(object);
                }
            }
            if all[holder as usize] {
                prop_assert_eq!(retained[holder as usize], sum);
            }
            prop_assert_eq!(tree.reachable.contains(holder), all[holder as usize]);
        }
    }

    #[test]
    fn every_object_is_in_the_tree_once_and_after_its_dominator((n, pairs, roots) in graphs()) {
        let graph = Graph::from_pairs(n, &pairs);
        let tree = Dominators::compute(&graph, &graph.reversed(), &roots, |_| false);
        let mut seen = vec![false; n];
        for &object in &tree.order {
            let dominator = tree.immediate[object as usize];
            prop_assert!(dominator == TOP || seen[dominator as usize]);
            prop_assert!(!seen[object as usize]);
            seen[object as usize] = true;
        }
        prop_assert!(seen.iter().all(|&seen| seen));
        let top_sum: u64 = tree.children().of(n as u32).iter().map(|&o| tree.retained(size)[o as usize]).sum();
        prop_assert_eq!(top_sum, (0..n as u32).map(size).sum::<u64>());
    }

    #[test]
    fn groups_retain_objects_that_are_unreachable_without_them((n, pairs, roots) in graphs(), groups in prop::collection::vec(0u32..70, 24)) {
        let graph = Graph::from_pairs(n, &pairs);
        let all = reached(n, &pairs, &roots, &[]);
        // Group 69 means "no group", so that some objects are in no group; numbers above 63 need a second batch.
        let group_of = |object: u32| Some(groups[object as usize]).filter(|&group| group != 69);
        let retained = retained_by_groups(&graph, &roots, 69, group_of, size);
        for group in 0..69u32 {
            let members: Vec<u32> = (0..n as u32).filter(|&object| group_of(object) == Some(group)).collect();
            let without = reached(n, &pairs, &roots, &members);
            let expected: Vec<u32> = (0..n as u32)
                .filter(|&object| members.contains(&object) || all[object as usize] && !without[object as usize])
                .collect();
            let sum: u64 = expected.iter().map(|&object| size(object)).sum();
            prop_assert_eq!(retained[group as usize], sum);
            let set: ObjectSet = members.iter().copied().collect();
            let found = dominated(&graph, &roots, &set);
            prop_assert_eq!(found.numbers(), &expected[..]);
        }
    }

    #[test]
    fn all_shortest_paths_and_no_longer_ones_are_found((n, pairs, roots) in graphs(), wanted in prop::collection::vec(0u32..24, 1..3)) {
        let graph = Graph::from_pairs(n, &pairs);
        let distances = Distances::compute(&graph, roots.iter().copied(), |_| false);
        let set: ObjectSet = wanted.iter().copied().filter(|&object| (object as usize) < n).collect();
        let found = shortest_paths(&graph.reversed(), &distances, &set, usize::MAX);
        // By definition: all paths, ordered by length, without repeating an object.
        let mut paths: Vec<Vec<u32>> = roots.iter().map(|&root| vec![root]).collect();
        paths.sort();
        paths.dedup();
        let mut expected: Vec<Vec<u32>> = Vec::new();
        for _ in 0..n {
            expected = paths.iter().filter(|path| set.contains(path[path.len() - 1])).cloned().collect();
            if !expected.is_empty() || paths.len() > 20_000 {
                break;
            }
            let mut longer: Vec<Vec<u32>> = paths
                .iter()
                .flat_map(|path| {
                    let last = path[path.len() - 1];
                    let next = pairs.iter().filter(move |&&(from, to)| from == last && !path.contains(&to));
                    next.map(|&(_, to)| path.iter().copied().chain([to]).collect())
                })
                .collect();
            longer.sort();
            longer.dedup();
            paths = longer;
        }
        prop_assume!(paths.len() <= 20_000);
        let mut paths = found.paths.clone();
        paths.sort();
        prop_assert_eq!(&paths, &expected);
        prop_assert_eq!(found.n_paths, expected.len() as u64);
        for object in 0..n as u32 {
            match distances.path_to(object) {
                Some(path) => prop_assert_eq!(path.len() as u32, distances.steps[object as usize] + 1),
                None => prop_assert_eq!(distances.steps[object as usize], UNREACHED),
            }
        }
    }
}

#[test]
fn deep_lists_do_not_overflow_the_stack() {
    let n = 300_000u32;
    let pairs: Pairs = (0..n - 1).map(|object| (object, object + 1)).collect();
    let graph = Graph::from_pairs(n as usize, &pairs);
    let tree = Dominators::compute(&graph, &graph.reversed(), &[0], |_| false);
    assert_eq!(tree.retained(|_| 1)[0], u64::from(n));
    let distances = Distances::compute(&graph, [0], |_| false);
    assert_eq!(distances.steps[n as usize - 1], n - 1);
}

#[test]
fn garbage_begins_with_an_instance_and_not_with_its_dict() {
    // Two cycles of an instance and its dict: in one the dict comes first, in the other the instance.
    let is_dict = |object: u32| object == 1 || object == 4;
    let graph = Graph::from_pairs(5, &[(1, 2), (2, 1), (3, 4), (4, 3)]);
    let tree = Dominators::compute(&graph, &graph.reversed(), &[0], is_dict);
    assert_eq!(tree.immediate, [TOP, 2, TOP, TOP, 3]);
}
