//! The objects of a heap page: kinds, the largest objects of each kind, their holders and their referents.
//!
//! A heap has millions of objects. A page has the largest of each kind, the objects on the paths from roots to them, their
//! dominators, and some referrers. Objects that are not in the page are counted.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use super::diff::HeapDiff;
use super::dominators::TOP;
use super::graph::Bits;
use super::partition::By;
use super::paths::UNREACHED;
use super::set::ObjectSet;
use super::suspects::{Suspects, suspects};
use super::types::{Order, TypeRow, kinds_table};
use super::view::Heap;

#[derive(Clone, Copy, Debug)]
pub struct ExploreLimits {
    /// Objects of each kind.
    pub per_kind: usize,
    /// The number of kinds whose objects are listed; the others have only sums.
    pub max_kinds: usize,
    /// Referrers of each object.
    pub max_referrers: usize,
    /// Children of each object in the dominator tree.
    pub max_children: usize,
    /// Objects in the page.
    pub max_objects: usize,
}

impl Default for ExploreLimits {
    fn default() -> Self {
        ExploreLimits {
            per_kind: 50,
            max_kinds: 2000,
            max_referrers: 8,
            max_children: 12,
            max_objects: 40_000,
        }
    }
}

/// The number of children for each object of a kind, so that users can always expand one level.
const N_BELOW: usize = 3;

/// An object in the page. It refers to others by their position in [`Exploration::objects`].
#[derive(Clone, Debug)]
pub struct PageObject {
    pub object: u32,
    pub dominator: Option<u32>,
    /// The number of objects it dominates directly, in the page or not.
    pub n_children: u32,
    /// The previous object on the shortest path from a root, and the reference; for a root, its name.
    pub before: Option<u32>,
    pub via: String,
    pub n_referrers: u32,
    /// The referrers in the page, with their references.
    pub referrers: Vec<(u32, String)>,
    pub is_new: bool,
    pub is_reachable: bool,
}

#[derive(Clone, Debug)]
pub struct PageKind {
    pub row: TypeRow,
    /// Positions of its largest objects by retained size.
    pub objects: Vec<u32>,
}

pub struct Exploration {
    pub kinds: Vec<PageKind>,
    pub objects: Vec<PageObject>,
    /// Objects that no other object dominates, the largest first.
    pub tops: Vec<u32>,
    pub n_tops: usize,
    pub suspects: Suspects,
    /// Positions of the suspects' accumulation points.
    pub suspect_points: Vec<Option<u32>>,
}

/// Collects the objects of a page. `diff` compares with an earlier snapshot.
pub fn explore(heap: &Heap, diff: Option<&HeapDiff>, limits: ExploreLimits) -> Exploration {
    let new = diff
        .filter(|diff| diff.is_same_process)
        .map(|diff| &diff.new);
    let suspects = suspects(heap, new, 5);
    let table = kinds_table(heap, By::Kind, Order::Retained);
    let mut page = Page::new(heap, limits);
    for suspect in &suspects.suspects {
        page.add_all(suspect.path.iter().copied());
    }
    let tops = page.largest_children(heap.n_objects() as u32);
    let mut level = tops.clone();
    // Adds three levels of the tree. Deeper objects are in the page only if they are large for their kind or on a path.
    for _ in 0..3 {
        page.add_all(level.iter().copied());
        level = level
            .iter()
            .flat_map(|&object| page.largest_children(object))
            .collect();
    }
    let of_kinds = page.largest_of_kinds();
    let mut numbers: Vec<u32> = of_kinds.keys().copied().collect();
    numbers.sort_unstable();
    let in_order = || numbers.iter().filter_map(|kind| of_kinds.get(kind));
    for objects in in_order() {
        page.add_all(objects.iter().copied());
    }
    for object in in_order().flatten() {
        let below = page.largest_children(*object);
        page.add_all(below.into_iter().take(N_BELOW));
    }
    page.add_paths();
    page.add_referrers();
    page.add_paths();
    let kinds = table.rows.into_iter().map(|row| {
        let own = heap
            .kinds
            .find(&row.label)
            .and_then(|kind| of_kinds.get(&kind));
        let objects = own.into_iter().flatten();
        PageKind {
            objects: objects
                .filter_map(|&object| page.position(object))
                .collect(),
            row,
        }
    });
    let kinds = kinds.collect();
    let suspect_points = suspects.suspects.iter();
    let suspect_points = suspect_points
        .map(|suspect| suspect.point.and_then(|point| page.position(point)))
        .collect();
    Exploration {
        kinds,
        objects: page.shown(new),
        tops: tops.iter().filter_map(|&top| page.position(top)).collect(),
        n_tops: page.children.of(heap.n_objects() as u32).len(),
        suspects,
        suspect_points,
    }
}

struct Page<'a> {
    heap: &'a Heap,
    limits: ExploreLimits,
    children: super::graph::Graph,
    objects: Vec<u32>,
    positions: FxHashMap<u32, u32>,
}

impl<'a> Page<'a> {
    fn new(heap: &'a Heap, limits: ExploreLimits) -> Page<'a> {
        Page {
            heap,
            limits,
            children: heap.dominators().children(),
            objects: Vec::new(),
            positions: FxHashMap::default(),
        }
    }

    fn position(&self, object: u32) -> Option<u32> {
        self.positions.get(&object).copied()
    }

    fn add_all(&mut self, objects: impl Iterator<Item = u32>) {
        for object in objects {
            if self.objects.len() >= self.limits.max_objects {
                return;
            }
            if let Entry::Vacant(position) = self.positions.entry(object) {
                position.insert(self.objects.len() as u32);
                self.objects.push(object);
            }
        }
    }

    fn largest_children(&self, parent: u32) -> Vec<u32> {
        let mut own = self.children.of(parent).to_vec();
        self.sort(&mut own);
        own.truncate(self.limits.max_children);
        own
    }

    fn sort(&self, objects: &mut [u32]) {
        let retained = self.heap.retained();
        objects.sort_by_key(|&one| (std::cmp::Reverse(retained[one as usize]), one));
    }

    fn largest_of_kinds(&self) -> FxHashMap<u32, Vec<u32>> {
        let mut kinds: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for object in 0..self.heap.n_objects() as u32 {
            kinds
                .entry(self.heap.kinds.of(object))
                .or_default()
                .push(object);
        }
        let retained = self.heap.retained();
        let mut all: Vec<(u64, u32)> = kinds
            .iter()
            .map(|(&kind, objects)| {
                let largest = objects.iter().map(|&one| retained[one as usize]).max();
                (largest.unwrap_or(0), kind)
            })
            .collect();
        all.sort_by_key(|&(largest, kind)| (std::cmp::Reverse(largest), kind));
        for &(_, kind) in all.iter().skip(self.limits.max_kinds) {
            kinds.remove(&kind);
        }
        for objects in kinds.values_mut() {
            let n_shown = self.limits.per_kind.min(objects.len());
            if n_shown < objects.len() {
                // Only the largest must be sorted.
                objects.select_nth_unstable_by_key(n_shown, |&one| {
                    (std::cmp::Reverse(retained[one as usize]), one)
                });
                objects.truncate(n_shown);
            }
            self.sort(objects);
        }
        kinds
    }

    /// Adds the previous object on each object's path from a root, and its dominator.
    fn add_paths(&mut self) {
        let distances = self.heap.distances();
        let immediate = &self.heap.dominators().immediate;
        let mut at = 0;
        while at < self.objects.len() {
            let object = self.objects[at] as usize;
            let before = distances.before[object];
            let dominator = immediate[object];
            self.add_all([before].into_iter().filter(|&one| one != UNREACHED));
            self.add_all([dominator].into_iter().filter(|&one| one != TOP));
            at += 1;
        }
    }

    fn add_referrers(&mut self) {
        let n_objects = self.objects.len();
        for at in 0..n_objects {
            let referrers = self.heap.referrers().of(self.objects[at]);
            let some: Vec<u32> = referrers
                .iter()
                .copied()
                .take(self.limits.max_referrers)
                .collect();
            self.add_all(some.into_iter());
        }
    }

    fn shown(&self, new: Option<&ObjectSet>) -> Vec<PageObject> {
        let heap = self.heap;
        let new = new.map(|set| Bits::of(heap.n_objects(), set.iter()));
        let immediate = &heap.dominators().immediate;
        let distances = heap.distances();
        let shown = self.objects.iter().map(|&object| {
            let before = distances.before[object as usize];
            let via = if before == UNREACHED {
                let root = heap.root_of(object);
                root.map(|root| super::labels::root(&heap.snapshot, root))
                    .unwrap_or_default()
            } else {
                first_reference(heap, before, object)
            };
            let mut referrers: Vec<(u32, String)> = Vec::new();
            let mut last = None;
            let mut n_referrers = 0;
            for &referrer in heap.referrers().of(object) {
                if last == Some(referrer) {
                    continue;
                }
                last = Some(referrer);
                n_referrers += 1;
                if referrers.len() < self.limits.max_referrers {
                    if let Some(position) = self.position(referrer) {
                        referrers.push((position, first_reference(heap, referrer, object)));
                    }
                }
            }
            PageObject {
                object,
                dominator: Some(immediate[object as usize]).and_then(|one| self.position(one)),
                n_children: self.children.of(object).len() as u32,
                before: self.position(before),
                via,
                n_referrers,
                referrers,
                is_new: new.as_ref().is_some_and(|new| new.contains(object)),
                is_reachable: heap.dominators().reachable.contains(object),
            }
        });
        shown.collect()
    }
}

fn first_reference(heap: &Heap, from: u32, to: u32) -> String {
    heap.first_reference(from, to).unwrap_or_default()
}
