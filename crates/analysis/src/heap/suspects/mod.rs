//! Leak suspects: objects at which bytes accumulate, the kinds of the accumulated objects, their holders, and the shape of
//! the leak.
//!
//! The search descends the dominator tree along large branches. An object below which no large branch is left is an
//! accumulation point. Small branches below a namespace or the top are grouped by kind, because an object that several
//! others hold has none of them as its dominator. A long chain, in which each link holds the next one, is one suspect
//! at its first link: each link alone holds little. Program text (code, functions, types, docstrings) and the import
//! system have no weight. With an earlier snapshot, only new objects have weight.

mod chain;
mod shape;

use heaptide_capture::heap::RootCategory;
use rustc_hash::FxHashMap;

use super::graph::{Bits, Graph};
use super::program_text::{ProgramText, is_interned_table};
use super::set::ObjectSet;
use super::sites::{Site, Sums};
use super::view::Heap;
use chain::Chains;
pub use shape::Shape;

/// The accumulated objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pile {
    pub kind: String,
    pub count: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug)]
pub struct Suspect {
    pub shape: Shape,
    /// The accumulation point; `None` for garbage, which nothing holds.
    pub point: Option<u32>,
    /// Bytes accumulated there.
    pub bytes: u64,
    /// The number of objects it holds directly, or the number of links of a chain.
    pub n_items: u64,
    /// Whether `point` alone keeps them alive, or others also refer to them.
    pub is_sole_holder: bool,
    /// The objects by kind, the most bytes first.
    pub piles: Vec<Pile>,
    /// The shortest path from a root to the point.
    pub path: Vec<u32>,
    /// The lines that allocated most of the bytes, if known.
    pub sites: Vec<Site>,
}

/// The suspects, and the total bytes of the objects that were searched.
#[derive(Clone, Debug)]
pub struct Suspects {
    /// Bytes of all data, or of all new data.
    pub bytes: u64,
    pub suspects: Vec<Suspect>,
}

/// The minimum share of the total bytes that a suspect holds.
const MIN_SHARE: f64 = 0.02;
/// The minimum bytes of a suspect.
const MIN_BYTES: u64 = 64 << 10;
/// The minimum bytes of a suspect if only new objects have weight.
const MIN_NEW_BYTES: u64 = 8 << 10;
const N_PILES: usize = 3;
const N_SITES: usize = 3;
/// The minimum bytes of a site are the bytes of its suspect, divided by this number.
const MIN_SITE_SHARE: u64 = 100;

/// Suspects of a snapshot, the largest first. If `new` is given, only these objects have weight.
pub fn suspects(heap: &Heap, new: Option<&ObjectSet>, n_suspects: usize) -> Suspects {
    let search = Search::new(heap, new);
    let mut points = search.points();
    points.sort_by_key(|one| (std::cmp::Reverse(one.bytes), one.point));
    points.truncate(n_suspects);
    Suspects {
        bytes: search.whole,
        suspects: points.into_iter().map(|one| search.explain(one)).collect(),
    }
}

/// An accumulation point and the objects it holds.
struct Accumulation {
    point: Option<u32>,
    bytes: u64,
    items: Vec<u32>,
    is_sole_holder: bool,
    /// Whether the items are all objects of a chain. Links dominate later links, so each item counts with its own
    /// weight only.
    is_chain: bool,
}

struct Search<'a> {
    heap: &'a Heap,
    text: ProgramText,
    /// The weight of each object, and of all objects it dominates.
    weights: Vec<u64>,
    retained: Vec<u64>,
    children: Graph,
    whole: u64,
    least: u64,
}

impl<'a> Search<'a> {
    fn new(heap: &'a Heap, new: Option<&ObjectSet>) -> Search<'a> {
        let text = ProgramText::new(heap);
        let is_new = new.map(|set| Bits::of(heap.n_objects(), set.iter()));
        let weights: Vec<u64> = (0..heap.n_objects() as u32)
            .map(|object| {
                let counts = is_new.as_ref().is_none_or(|new| new.contains(object));
                if counts && !text.contains(object) {
                    heap.bytes(object)
                } else {
                    0
                }
            })
            .collect();
        let whole = weights.iter().copied().fold(0, u64::saturating_add);
        let least = match new {
            Some(_) => MIN_NEW_BYTES,
            None => MIN_BYTES,
        };
        let retained = heap
            .dominators()
            .retained(|object| weights[object as usize]);
        Search {
            heap,
            text,
            retained,
            children: heap.dominators().children(),
            whole,
            least: least.max((whole as f64 * MIN_SHARE) as u64),
            weights,
        }
    }

    /// Follows large branches from the top down.
    fn points(&self) -> Vec<Accumulation> {
        let mut points = Vec::new();
        let top = self.heap.n_objects() as u32;
        let mut open = vec![top];
        let mut chains = Chains::new(self.heap);
        while let Some(object) = open.pop() {
            if object != top && self.follow_chain(object, &mut chains, &mut open, &mut points) {
                continue;
            }
            let (large, small): (Vec<u32>, Vec<u32>) = self
                .children
                .of(object)
                .iter()
                .partition(|&&child| self.retained[child as usize] >= self.least);
            if object == top {
                self.garbage(&large, &small, &mut points);
                let reached = |child: &u32| self.heap.dominators().reachable.contains(*child);
                let (large, small): (Vec<u32>, Vec<u32>) = (
                    large.into_iter().filter(reached).collect(),
                    small.into_iter().filter(reached).collect(),
                );
                self.side_by_side(None, &small, &mut points);
                open.extend(large);
                continue;
            }
            if self.is_namespace(object) {
                self.side_by_side(Some(object), &small, &mut points);
                open.extend(large);
                continue;
            }
            // Several large objects of one kind below one object are its items, not separate suspects.
            let is_pile = large.len() > 1 && self.are_alike(&large);
            let mut items = small;
            if is_pile {
                items.extend(&large);
            } else {
                open.extend(&large);
            }
            let held = items.iter().map(|&child| self.retained[child as usize]);
            let bytes = held.fold(self.weights[object as usize], u64::saturating_add);
            if bytes >= self.least {
                points.push(Accumulation {
                    point: Some(object),
                    bytes,
                    items,
                    is_sole_holder: true,
                    is_chain: false,
                });
            }
        }
        points
    }

    /// Adds all objects that no root reaches as one accumulation: the collector will free them.
    fn garbage(&self, large: &[u32], small: &[u32], points: &mut Vec<Accumulation>) {
        let reachable = &self.heap.dominators().reachable;
        let all = large.iter().chain(small).copied();
        let items: Vec<u32> = all.filter(|&child| !reachable.contains(child)).collect();
        let bytes = self.sum(&items);
        if bytes >= self.least {
            points.push(Accumulation {
                point: None,
                bytes,
                items,
                is_sole_holder: true,
                is_chain: false,
            });
        }
    }

    /// Adds small branches of one kind whose sum is large. Their point is the object that refers to most of them, or
    /// else the namespace `below`.
    fn side_by_side(&self, below: Option<u32>, small: &[u32], points: &mut Vec<Accumulation>) {
        let mut kinds: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        let data = small.iter().filter(|&&child| !self.is_namespace(child));
        for &child in data {
            let kind = self.heap.kinds.of(child);
            kinds.entry(kind).or_default().push(child);
        }
        for items in kinds.into_values() {
            let bytes = self.sum(&items);
            if bytes < self.least {
                continue;
            }
            let Some(point) = self.common_referrer(&items).or(below) else {
                continue;
            };
            points.push(Accumulation {
                point: Some(point),
                bytes,
                items,
                is_sole_holder: is_interned_table(self.heap, point),
                is_chain: false,
            });
        }
    }

    /// The object that refers to most of these objects, if that is at least half. Of several that refer to equally many,
    /// the largest one. Types and modules do not count.
    fn common_referrer(&self, items: &[u32]) -> Option<u32> {
        let mut counts: FxHashMap<u32, usize> = FxHashMap::default();
        for &item in items {
            let mut last = None;
            for &referrer in self.heap.referrers().of(item) {
                if last != Some(referrer) {
                    *counts.entry(referrer).or_default() += 1;
                    last = Some(referrer);
                }
            }
        }
        let most = counts.into_iter().filter(|&(referrer, _)| {
            !self.is_namespace(referrer) && self.heap.dominators().reachable.contains(referrer)
        });
        let most = most.max_by_key(|&(referrer, count)| {
            let bytes = self.heap.bytes(referrer);
            (count, bytes, std::cmp::Reverse(referrer))
        });
        most.filter(|&(_, count)| 2 * count >= items.len() && count > 1)
            .map(|(referrer, _)| referrer)
    }

    fn sum(&self, items: &[u32]) -> u64 {
        items
            .iter()
            .map(|&item| self.retained[item as usize])
            .fold(0, u64::saturating_add)
    }

    fn are_alike(&self, objects: &[u32]) -> bool {
        let kind = |object: &u32| self.heap.kinds.of(*object);
        objects
            .iter()
            .all(|object| kind(object) == kind(&objects[0]))
    }

    /// Modules, classes, their dicts and the interpreter's roots hold the parts of a program. A large one is not an
    /// accumulation point.
    fn is_namespace(&self, object: u32) -> bool {
        matches!(
            self.heap.kind(object),
            "module" | "dict of module" | "dict of type"
        ) || self.heap.type_names().contains_key(&object)
            || self.text.is_class(object)
            || self
                .heap
                .root_of(object)
                .is_some_and(|root| root.category == RootCategory::Interpreter)
    }

    fn explain(&self, accumulation: Accumulation) -> Suspect {
        let heap = self.heap;
        let path = accumulation
            .point
            .and_then(|point| heap.distances().path_to(point))
            .unwrap_or_default();
        Suspect {
            shape: self.shape(&accumulation, &path),
            point: accumulation.point,
            bytes: accumulation.bytes,
            n_items: self.n_items(&accumulation),
            is_sole_holder: accumulation.is_sole_holder,
            piles: self.piles(&accumulation),
            sites: self.sites(&accumulation),
            path,
        }
    }

    fn n_items(&self, accumulation: &Accumulation) -> u64 {
        let items = accumulation.items.iter();
        let Some(point) = accumulation.point.filter(|_| accumulation.is_chain) else {
            return items.len() as u64;
        };
        let kind = self.heap.kinds.of(point);
        let links = items.filter(|&&item| self.heap.kinds.of(item) == kind);
        links.count() as u64
    }

    fn piles(&self, accumulation: &Accumulation) -> Vec<Pile> {
        let bytes_of = if accumulation.is_chain {
            &self.weights
        } else {
            &self.retained
        };
        let mut kinds: FxHashMap<u32, (u64, u64)> = FxHashMap::default();
        for &item in &accumulation.items {
            let bytes = bytes_of[item as usize];
            if bytes == 0 {
                continue;
            }
            let sum = kinds.entry(self.heap.kinds.of(item)).or_default();
            sum.0 += 1;
            sum.1 = sum.1.saturating_add(bytes);
        }
        let piles = kinds.into_iter().map(|(kind, (count, bytes))| Pile {
            kind: self.heap.kinds.label(kind).to_owned(),
            count,
            bytes,
        });
        let mut piles: Vec<Pile> = piles.collect();
        piles.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.kind.cmp(&b.kind)));
        piles.truncate(N_PILES);
        piles
    }

    /// The lines that allocated the items and everything they dominate.
    fn sites(&self, accumulation: &Accumulation) -> Vec<Site> {
        if self.heap.stacks().is_none() {
            return Vec::new();
        }
        let mut sums = Sums::new(self.heap);
        let mut open: Vec<u32> = accumulation.items.clone();
        open.extend(
            accumulation
                .point
                .filter(|_| accumulation.is_sole_holder && accumulation.items.is_empty()),
        );
        while let Some(object) = open.pop() {
            sums.add(object, self.weights[object as usize]);
            if !accumulation.is_chain {
                open.extend(self.children.of(object));
            }
        }
        let mut sites = sums.largest(N_SITES);
        // CPython reuses freed lists, dicts and tuples without an allocation, so a few objects have the line of an
        // earlier owner.
        sites.retain(|site| site.bytes >= accumulation.bytes / MIN_SITE_SHARE);
        sites
    }
}
