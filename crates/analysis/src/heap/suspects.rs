//! Leak suspects: where bytes pile up, what piles up there, who holds it, and in which of the well-known ways.
//!
//! From the top of the dominator tree down, branches that hold much are followed to the object below which nothing large
//! is left: there things accumulate. Small branches that hang side by side below a namespace or the top are taken together
//! by kind, because what several hold has no dominator of its own. Program text — code, functions, types, docstrings — weighs
//! nothing; with earlier snapshots only what is new weighs.

use heaptide_capture::heap::{EdgeType, Root, RootCategory};
use rustc_hash::FxHashMap;

use super::dominators::TOP;
use super::graph::{Bits, Graph};
use super::set::ObjectSet;
use super::sites::{Site, Sums};
use super::view::Heap;

/// In which way objects are kept alive that nobody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A container that a module, a class or an object holds on to.
    Container,
    /// Variables of a function that outlives its call.
    Closure,
    /// An exception that was kept, and with it its frames and their variables.
    Traceback,
    /// The results of a cached function.
    LruCache,
    /// Objects that refer to each other and nobody refers to, or that wait in `gc.garbage`.
    Cycle,
    /// A variable of a function that still runs.
    Frame,
    /// Strings that the interpreter keeps because they were interned.
    Interned,
}

impl Shape {
    /// For other programs.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Container => "container",
            Shape::Closure => "closure",
            Shape::Traceback => "traceback",
            Shape::LruCache => "lru_cache",
            Shape::Cycle => "cycle",
            Shape::Frame => "frame",
            Shape::Interned => "interned",
        }
    }
}

/// A kind of what has piled up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pile {
    pub kind: String,
    pub count: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug)]
pub struct Suspect {
    pub shape: Shape,
    /// Where things accumulate; `None` for garbage, which nothing holds.
    pub point: Option<u32>,
    /// Bytes that have piled up there.
    pub bytes: u64,
    /// How many objects hang directly there.
    pub n_items: u64,
    /// Whether `point` alone keeps them alive, or others refer to them too.
    pub is_sole_holder: bool,
    /// What they are, by kind, the most bytes first.
    pub piles: Vec<Pile>,
    /// The shortest way from a root to the point.
    pub path: Vec<u32>,
    /// The lines that allocated most of it, if that is known.
    pub sites: Vec<Site>,
}

/// Everything that weighs, and what of it each suspect holds.
#[derive(Clone, Debug)]
pub struct Suspects {
    /// Bytes that were looked at: of data, or of new data.
    pub bytes: u64,
    pub suspects: Vec<Suspect>,
}

/// What is smaller than this part of what weighs is no suspect.
const MIN_SHARE: f64 = 0.02;
/// Nor what is smaller than this.
const MIN_BYTES: u64 = 8 << 10;
const N_PILES: usize = 3;
const N_SITES: usize = 3;

/// Suspects of a snapshot, the largest first. `new`: only these objects weigh.
pub fn suspects(heap: &Heap, new: Option<&ObjectSet>, n_suspects: usize) -> Suspects {
    let search = Search::new(heap, new);
    let mut found = search.points();
    found.sort_by_key(|one| (std::cmp::Reverse(one.bytes), one.point));
    found.truncate(n_suspects);
    Suspects {
        bytes: search.whole,
        suspects: found.into_iter().map(|one| search.explain(one)).collect(),
    }
}

/// A place, and what hangs there.
struct Accumulation {
    point: Option<u32>,
    bytes: u64,
    items: Vec<u32>,
    is_sole_holder: bool,
}

struct Search<'a> {
    heap: &'a Heap,
    /// What each object weighs, and what all it dominates weigh.
    weights: Vec<u64>,
    retained: Vec<u64>,
    children: Graph,
    whole: u64,
    least: u64,
}

impl<'a> Search<'a> {
    fn new(heap: &'a Heap, new: Option<&ObjectSet>) -> Search<'a> {
        let text = program_text(heap);
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
        let whole = weights.iter().sum();
        let retained = heap
            .dominators()
            .retained(|object| weights[object as usize]);
        Search {
            heap,
            retained,
            children: heap.dominators().children(),
            whole,
            least: MIN_BYTES.max((whole as f64 * MIN_SHARE) as u64),
            weights,
        }
    }

    /// Goes down from the top along large branches.
    fn points(&self) -> Vec<Accumulation> {
        let mut found = Vec::new();
        let top = self.heap.n_objects() as u32;
        let mut open = vec![top];
        while let Some(object) = open.pop() {
            let (large, small): (Vec<u32>, Vec<u32>) = self
                .children
                .of(object)
                .iter()
                .partition(|&&child| self.retained[child as usize] >= self.least);
            if object == top {
                self.garbage(&large, &small, &mut found);
                let reached = |child: &u32| self.heap.dominators().reachable.contains(*child);
                let (large, small): (Vec<u32>, Vec<u32>) = (
                    large.into_iter().filter(reached).collect(),
                    small.into_iter().filter(reached).collect(),
                );
                self.side_by_side(None, &small, &mut found);
                open.extend(large);
                continue;
            }
            if self.is_namespace(object) {
                self.side_by_side(Some(object), &small, &mut found);
                open.extend(large);
                continue;
            }
            // Several large things of one kind in one place are a pile of large things.
            let is_pile = large.len() > 1 && self.are_alike(&large);
            let mut items = small;
            if is_pile {
                items.extend(&large);
            } else {
                open.extend(&large);
            }
            let hanging = items.iter().map(|&child| self.retained[child as usize]);
            let bytes = hanging.sum::<u64>() + self.weights[object as usize];
            if bytes >= self.least {
                found.push(Accumulation {
                    point: Some(object),
                    bytes,
                    items,
                    is_sole_holder: true,
                });
            }
        }
        found
    }

    /// What no root reaches, all together: it is one thing, the collector's.
    fn garbage(&self, large: &[u32], small: &[u32], found: &mut Vec<Accumulation>) {
        let reachable = &self.heap.dominators().reachable;
        let all = large.iter().chain(small).copied();
        let items: Vec<u32> = all.filter(|&child| !reachable.contains(child)).collect();
        let bytes = self.sum(&items);
        if bytes >= self.least {
            found.push(Accumulation {
                point: None,
                bytes,
                items,
                is_sole_holder: true,
            });
        }
    }

    /// Small branches that are large together, by kind. Whoever refers to most of them is where they accumulate.
    fn side_by_side(&self, below: Option<u32>, small: &[u32], found: &mut Vec<Accumulation>) {
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
            found.push(Accumulation {
                point: Some(point),
                bytes,
                items,
                is_sole_holder: is_interned_table(self.heap, point),
            });
        }
    }

    /// Who refers to most of some objects, if that is most of them; types and modules are nobody here.
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
        let most = most.max_by_key(|&(referrer, count)| (count, std::cmp::Reverse(referrer)));
        most.filter(|&(_, count)| 2 * count >= items.len() && count > 1)
            .map(|(referrer, _)| referrer)
    }

    fn sum(&self, items: &[u32]) -> u64 {
        items.iter().map(|&item| self.retained[item as usize]).sum()
    }

    fn are_alike(&self, objects: &[u32]) -> bool {
        let kind = |object: &u32| self.heap.kinds.of(*object);
        objects
            .iter()
            .all(|object| kind(object) == kind(&objects[0]))
    }

    /// Modules, classes and their dicts hold a program's parts; nothing accumulates there by itself.
    fn is_namespace(&self, object: u32) -> bool {
        matches!(
            self.heap.kind(object),
            "module" | "dict of module" | "dict of type"
        ) || self.heap.type_names().contains_key(&object)
            || self
                .heap
                .root_of(object)
                .is_some_and(|root| root.category == RootCategory::Interpreter)
    }

    fn explain(&self, found: Accumulation) -> Suspect {
        let heap = self.heap;
        let path = found
            .point
            .and_then(|point| heap.distances().path_to(point))
            .unwrap_or_default();
        Suspect {
            shape: self.shape(&found, &path),
            point: found.point,
            bytes: found.bytes,
            n_items: found.items.len() as u64,
            is_sole_holder: found.is_sole_holder,
            piles: self.piles(&found.items),
            sites: self.sites(&found),
            path,
        }
    }

    fn piles(&self, items: &[u32]) -> Vec<Pile> {
        let mut kinds: FxHashMap<u32, (u64, u64)> = FxHashMap::default();
        for &item in items {
            let retained = self.retained[item as usize];
            if retained == 0 {
                continue;
            }
            let sum = kinds.entry(self.heap.kinds.of(item)).or_default();
            sum.0 += 1;
            sum.1 += retained;
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

    /// Where everything below was allocated, by line.
    fn sites(&self, found: &Accumulation) -> Vec<Site> {
        if self.heap.stacks().is_none() {
            return Vec::new();
        }
        let mut sums = Sums::new(self.heap);
        let mut open: Vec<u32> = found.items.clone();
        open.extend(
            found
                .point
                .filter(|_| found.is_sole_holder && found.items.is_empty()),
        );
        while let Some(object) = open.pop() {
            sums.add(object, self.weights[object as usize]);
            open.extend(self.children.of(object));
        }
        sums.largest(N_SITES)
    }

    fn shape(&self, found: &Accumulation, path: &[u32]) -> Shape {
        if found.point.is_none() || self.is_in_gc_garbage(path) {
            return Shape::Cycle;
        }
        if path
            .first()
            .is_some_and(|&root| is_interned_table(self.heap, root))
        {
            return Shape::Interned;
        }
        // From the point towards the root, then what hangs at the point: the nearest tells.
        let near = path.iter().rev().find_map(|&object| self.telling(object));
        if let Some(shape) = near {
            return shape;
        }
        let mut below = self.piles(&found.items).into_iter();
        let held = below.next().and_then(|pile| {
            let kind = pile.kind.as_str();
            let example = found.items.iter();
            let mut example = example.filter(|&&item| self.heap.kind(item) == kind);
            example.next().and_then(|&item| self.telling_of_item(item))
        });
        let is_frame = |object: &u32| self.heap.kind(*object) == "types.FrameType";
        let root = path.first().and_then(|&root| self.heap.root_of(root));
        let from_frame = root.is_some_and(|root| root.category == RootCategory::Frame);
        held.unwrap_or(if from_frame || path.iter().any(is_frame) {
            Shape::Frame
        } else {
            Shape::Container
        })
    }

    fn telling(&self, object: u32) -> Option<Shape> {
        match self.heap.kind(object) {
            "types.TracebackType" => Some(Shape::Traceback),
            "types.CellType" => Some(Shape::Closure),
            "functools._lru_cache_wrapper" => Some(Shape::LruCache),
            _ => None,
        }
    }

    /// What a thing that has piled up says about why: an exception with its traceback, a function with its variables.
    fn telling_of_item(&self, item: u32) -> Option<Shape> {
        let refers_to = |kind: &str| {
            let mut targets = self.heap.graph.of(item).iter();
            targets.any(|&target| self.heap.kind(target) == kind)
        };
        if refers_to("types.TracebackType") {
            return Some(Shape::Traceback);
        }
        let edges = self.heap.snapshot.edges.of(item);
        let mut names = edges.filter(|(_, label)| label.edge_type() == EdgeType::Internal);
        let has_closure =
            names.any(|(_, label)| self.heap.snapshot.names.get(label.number()) == "__closure__");
        (has_closure || refers_to("types.CellType"))
            .then_some(Shape::Closure)
            .or_else(|| self.telling(item))
    }

    fn is_in_gc_garbage(&self, path: &[u32]) -> bool {
        let text = self.heap.path_text(path);
        text.starts_with("sys.modules['gc']") && text.contains("garbage")
    }
}

fn is_interned_table(heap: &Heap, object: u32) -> bool {
    let root = heap.root_of(object);
    root.is_some_and(|root| {
        root.category == RootCategory::Interpreter
            && heap.snapshot.names.get(root.name) == Root::INTERNED_STRINGS
    })
}

/// Code, functions, types, modules and their dicts, what belongs to code: constants, names, docstrings; and the table of
/// all those names.
fn program_text(heap: &Heap) -> Bits {
    let is_text: Vec<bool> = (0..heap.kinds.len() as u32)
        .map(|kind| {
            matches!(
                heap.kinds.label(kind),
                "types.CodeType"
                    | "function"
                    | "module"
                    | "dict of module"
                    | "dict of type"
                    | "types.WrapperDescriptorType"
                    | "types.MethodDescriptorType"
                    | "types.ClassMethodDescriptorType"
                    | "types.GetSetDescriptorType"
                    | "types.MemberDescriptorType"
                    | "types.BuiltinMethodType"
            )
        })
        .collect();
    let mut text = Bits::new(heap.n_objects());
    let immediate = &heap.dominators().immediate;
    for &object in &heap.dominators().order {
        let dominator = immediate[object as usize];
        // What code dominates is its constants; a function may dominate what it closes over.
        let of_code = dominator != TOP
            && text.contains(dominator)
            && (heap.kind(dominator) == "types.CodeType"
                || !is_text_kind(heap, dominator, &is_text));
        if is_text_kind(heap, object, &is_text) || of_code {
            text.insert(object);
        }
    }
    let roots = heap.roots.iter().copied();
    for table in roots.filter(|&root| is_interned_table(heap, root)) {
        text.insert(table);
    }
    for object in 0..heap.n_objects() as u32 {
        for (target, label) in heap.snapshot.edges.of(object) {
            let has_doc = matches!(label.edge_type(), EdgeType::Key | EdgeType::Internal)
                && heap.snapshot.names.get(label.number()) == "__doc__";
            if has_doc {
                text.insert(target);
            }
        }
    }
    text
}

fn is_text_kind(heap: &Heap, object: u32, is_text: &[bool]) -> bool {
    is_text[heap.kinds.of(object) as usize] || heap.type_names().contains_key(&object)
}
