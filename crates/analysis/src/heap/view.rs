//! A snapshot with its graph. Dominators, referrers and distances are computed on first use and kept.

use std::collections::hash_map::Entry;
use std::sync::OnceLock;

use heaptide_capture::heap::{
    AllocationStacks, EdgeType, HeapSnapshot, NO_OBJECT, Root, RootCategory,
};
use rustc_hash::FxHashMap;

use super::dominators::{Dominators, TOP};
use super::graph::{Bits, Graph};
use super::kinds::{Kinds, type_name};
use super::labels;
use super::paths::{self, Distances, ShortestPaths};
use super::retained;
use super::set::ObjectSet;

pub struct Heap {
    pub snapshot: HeapSnapshot,
    /// References that keep objects alive. Excludes weak references, and references from running code to its namespace.
    pub graph: Graph,
    /// For every object its owner, if it is a `__dict__`.
    pub owners: Vec<u32>,
    pub kinds: Kinds,
    /// The entries of `sys.modules`.
    modules: Bits,
    /// Objects that running code keeps alive: functions, frames, arguments.
    running: Bits,
    /// Objects that roots hold, in the order of the roots, without duplicates.
    pub roots: Vec<u32>,
    /// By object: the position of the first root that holds it.
    root_positions: FxHashMap<u32, u32>,
    referrers: OnceLock<Graph>,
    reached: OnceLock<Bits>,
    dominators: OnceLock<Dominators>,
    retained: OnceLock<Vec<u64>>,
    distances: OnceLock<Distances>,
    type_names: OnceLock<FxHashMap<u32, String>>,
    /// Allocation stacks that were found after the snapshot was opened.
    learnt_stacks: OnceLock<AllocationStacks>,
}

impl Heap {
    pub fn new(snapshot: HeapSnapshot) -> Heap {
        let owners = snapshot.dict_owners();
        let kinds = Kinds::new(&snapshot, &owners);
        let n_objects = snapshot.objects.len();
        let of_roots = |wanted: &dyn Fn(&Root) -> bool| {
            let roots = snapshot.roots.iter().filter(|root| wanted(root));
            Bits::of(n_objects, roots.map(|root| root.object))
        };
        let modules = of_roots(&|root| root.category == RootCategory::Module);
        let running = of_roots(&|root| is_of_running_code(&snapshot, root));
        // Code that runs at the top level of a module has the module's dict as its variables. That reference is left
        // out, so that paths lead through the module, which has a name.
        let is_namespace = |object: u32| {
            let owner = owners.get(object as usize).copied();
            owner.is_some_and(|owner| modules.contains(owner))
        };
        let is_kept =
            |root: &Root| root.category == RootCategory::Module || !is_namespace(root.object);
        let graph = Graph::build(n_objects, |object| {
            let is_running = running.contains(object);
            let edges = snapshot.edges.of(object);
            edges.filter_map(move |(target, label)| {
                let is_weak = label.edge_type() == EdgeType::Weak;
                let only_runs_there = is_running && is_namespace(target);
                (!is_weak && !only_runs_there).then_some(target)
            })
        });
        let mut roots = Vec::new();
        let mut root_positions = FxHashMap::default();
        for (position, root) in snapshot.roots.iter().enumerate() {
            if !is_kept(root) {
                continue;
            }
            if let Entry::Vacant(vacant) = root_positions.entry(root.object) {
                vacant.insert(position as u32);
                roots.push(root.object);
            }
        }
        Heap {
            snapshot,
            graph,
            owners,
            kinds,
            modules,
            running,
            roots,
            root_positions,
            referrers: OnceLock::new(),
            reached: OnceLock::new(),
            dominators: OnceLock::new(),
            retained: OnceLock::new(),
            distances: OnceLock::new(),
            type_names: OnceLock::new(),
            learnt_stacks: OnceLock::new(),
        }
    }

    /// The allocation stacks, if known.
    pub fn stacks(&self) -> Option<&AllocationStacks> {
        let of_snapshot = self.snapshot.stacks.as_ref();
        of_snapshot.or_else(|| self.learnt_stacks.get())
    }

    /// Sets the allocation stacks. Later calls are ignored.
    pub fn learn_stacks(&self, stacks: AllocationStacks) {
        let _ = self.learnt_stacks.set(stacks);
    }

    pub fn n_objects(&self) -> usize {
        self.snapshot.objects.len()
    }

    pub fn bytes(&self, object: u32) -> u64 {
        self.snapshot.objects.bytes(object)
    }

    pub fn bytes_of(&self, set: &ObjectSet) -> u64 {
        set.iter()
            .map(|object| self.bytes(object))
            .fold(0, u64::saturating_add)
    }

    pub fn kind(&self, object: u32) -> &str {
        self.kinds.label(self.kinds.of(object))
    }

    /// Whether `from` is running code and `to` the namespace of a module. Such a reference does not count: see
    /// [`Heap::graph`].
    pub fn only_runs_in(&self, from: u32, to: u32) -> bool {
        let owner = self.owners.get(to as usize).copied();
        self.running.contains(from) && owner.is_some_and(|owner| self.modules.contains(owner))
    }

    /// The objects that roots reach.
    pub fn reachable(&self) -> ObjectSet {
        self.reached().iter().collect()
    }

    /// The objects that roots reach, as bits. Computes no dominators, which would take much longer.
    fn reached(&self) -> &Bits {
        let reach = || self.graph.reach(self.roots.iter().copied(), |_| false);
        self.reached.get_or_init(reach)
    }

    /// Garbage that the collector has not freed yet.
    pub fn unreachable(&self) -> ObjectSet {
        let reached = self.reached();
        let all = 0..self.n_objects() as u32;
        all.filter(|&object| !reached.contains(object)).collect()
    }

    pub fn all(&self) -> ObjectSet {
        (0..self.n_objects() as u32).collect()
    }

    /// The reversed graph.
    pub fn referrers(&self) -> &Graph {
        self.referrers.get_or_init(|| self.graph.reversed())
    }

    pub fn dominators(&self) -> &Dominators {
        self.dominators.get_or_init(|| {
            let is_dict_of_another = |object: u32| {
                let owner = self.owners.get(object as usize);
                owner.is_some_and(|owner| *owner != NO_OBJECT)
            };
            Dominators::compute(
                &self.graph,
                self.referrers(),
                &self.roots,
                is_dict_of_another,
            )
        })
    }

    /// For every object its retained size.
    pub fn retained(&self) -> &[u64] {
        self.retained
            .get_or_init(|| self.dominators().retained(|object| self.bytes(object)))
    }

    pub fn distances(&self) -> &Distances {
        self.distances
            .get_or_init(|| self.distances_from_roots(|_| false))
    }

    /// Distances from all roots. C code also holds objects that have a name elsewhere; for example, the parser holds
    /// the constants of the running script. So paths from C code count only for objects that no other root reaches.
    fn distances_from_roots(&self, avoided: impl Fn(u32) -> bool) -> Distances {
        self.distances_within(&self.graph, avoided)
    }

    fn distances_within(&self, graph: &Graph, avoided: impl Fn(u32) -> bool) -> Distances {
        let is_c = |root: &u32| {
            self.root_of(*root)
                .is_some_and(|root| root.category == RootCategory::C)
        };
        let roots = self.roots.iter().copied();
        let (by_c, named): (Vec<u32>, Vec<u32>) = roots.partition(is_c);
        let mut distances = Distances::compute(graph, named, &avoided);
        distances.add_last_resort(graph, by_c, &avoided);
        distances
    }

    /// Objects that only a set keeps alive, including the set itself.
    pub fn dominated(&self, set: &ObjectSet) -> ObjectSet {
        retained::dominated(&self.graph, &self.roots, set)
    }

    pub fn referrers_of(&self, set: &ObjectSet) -> ObjectSet {
        paths::referrers_of(self.referrers(), set)
    }

    pub fn referents_of(&self, set: &ObjectSet) -> ObjectSet {
        paths::referents_of(&self.graph, set)
    }

    /// The immediate dominators of objects, without duplicates.
    pub fn dominators_of(&self, set: &ObjectSet) -> ObjectSet {
        let immediate = &self.dominators().immediate;
        let dominators = set.iter().map(|object| immediate[object as usize]);
        dominators.filter(|&dominator| dominator != TOP).collect()
    }

    /// Objects of a kind or a type; `dict` matches dicts of any owner.
    pub fn of_kind(&self, name: &str) -> ObjectSet {
        self.of_kinds(&[name])
    }

    /// Objects of any of these kinds.
    pub fn of_kinds(&self, names: &[impl AsRef<str>]) -> ObjectSet {
        let wanted = names
            .iter()
            .filter_map(|name| self.kinds.find(name.as_ref()));
        let wanted = Bits::of(self.kinds.len(), wanted);
        let types = &self.snapshot.objects.types;
        let is_wanted = |object: &u32| {
            let of_type = self.kinds.of_type(types[*object as usize]);
            wanted.contains(self.kinds.of(*object)) || wanted.contains(of_type)
        };
        (0..self.n_objects() as u32).filter(is_wanted).collect()
    }

    /// The shortest paths from roots to the nearest objects of a set.
    pub fn shortest_paths(&self, set: &ObjectSet, max_paths: usize) -> ShortestPaths {
        paths::shortest_paths(self.referrers(), self.distances(), set, max_paths)
    }

    /// The shortest paths from given objects instead of the roots, or avoiding some objects.
    pub fn paths_from(
        &self,
        sources: Option<&ObjectSet>,
        set: &ObjectSet,
        avoid: &ObjectSet,
        max_paths: usize,
    ) -> ShortestPaths {
        let avoided = |object: u32| avoid.contains(object);
        let distances = match sources {
            None if avoid.is_empty() => return self.shortest_paths(set, max_paths),
            None => self.distances_from_roots(avoided),
            Some(sources) => Distances::compute(&self.graph, sources.iter(), avoided),
        };
        paths::shortest_paths(self.referrers(), &distances, set, max_paths)
    }

    /// Like [`Heap::paths_from`], but ignores some references: from an object of the first set of a pair in
    /// `references` to an object of the second.
    pub fn paths_without(
        &self,
        sources: Option<&ObjectSet>,
        set: &ObjectSet,
        avoid: &ObjectSet,
        references: &[(&ObjectSet, &ObjectSet)],
        max_paths: usize,
    ) -> ShortestPaths {
        if references.is_empty() {
            return self.paths_from(sources, set, avoid, max_paths);
        }
        let avoided = |object: u32| avoid.contains(object);
        let rest = Graph::build(self.n_objects(), |from| {
            let left: Vec<&ObjectSet> = references
                .iter()
                .filter(|(first, _)| first.contains(from))
                .map(|(_, second)| *second)
                .collect();
            let targets = self.graph.of(from).iter().copied();
            targets.filter(move |&to| !left.iter().any(|second| second.contains(to)))
        });
        let distances = match sources {
            None => self.distances_within(&rest, avoided),
            Some(sources) => Distances::compute(&rest, sources.iter(), avoided),
        };
        paths::shortest_paths(&rest.reversed(), &distances, set, max_paths)
    }

    /// The first root that holds an object.
    pub fn root_of(&self, object: u32) -> Option<&Root> {
        let position = self.root_positions.get(&object)?;
        self.snapshot.roots.get(*position as usize)
    }

    /// The texts of all references from one object to another: `.x`, `['x']`.
    pub fn references_between(&self, from: u32, to: u32) -> Vec<String> {
        let edges = self.snapshot.edges.of(from);
        let between =
            edges.filter(|&(target, label)| target == to && label.edge_type() != EdgeType::Weak);
        between
            .map(|(_, label)| labels::reference(&self.snapshot, label))
            .collect()
    }

    /// The text of the first reference from one object to another.
    pub fn first_reference(&self, from: u32, to: u32) -> Option<String> {
        let mut edges = self.snapshot.edges.of(from);
        let edge =
            edges.find(|&(target, label)| target == to && label.edge_type() != EdgeType::Weak);
        edge.map(|(_, label)| labels::reference(&self.snapshot, label))
    }

    /// The steps of a path as texts: the root, then each reference.
    pub fn path_steps(&self, path: &[u32]) -> Vec<String> {
        let Some(&first) = path.first() else {
            return Vec::new();
        };
        let root = match self.root_of(first) {
            Some(root) => labels::root(&self.snapshot, root),
            None => format!("<{} at {}>", self.kind(first), self.address(first)),
        };
        std::iter::once(root).chain(self.references(path)).collect()
    }

    /// The references from each object of a path to the next.
    pub fn references(&self, path: &[u32]) -> impl Iterator<Item = String> {
        path.windows(2).map(|pair| {
            let mut references = self.references_between(pair[0], pair[1]);
            match references.len() {
                1 => references.remove(0),
                0 => "->?".to_owned(),
                // This is heapy's notation for parallel references.
                _ => format!("<{}>", references.join(",")),
            }
        })
    }

    /// A path as one expression: `sys.modules['job'].__dict__['cache']['a']`. In the middle of a long path, such as
    /// through a linked list, references are only counted.
    pub fn path_text(&self, path: &[u32]) -> String {
        let hidden = paths::hidden(path);
        let mut steps = self.path_steps(&path[..hidden.start]);
        if !hidden.is_empty() {
            steps.push(format!("<... {} more references ...>", hidden.len()));
            steps.extend(self.references(&path[hidden.end - 1..]));
        }
        labels::expression(&steps)
    }

    /// Types that are objects of the snapshot, with their names.
    pub fn type_names(&self) -> &FxHashMap<u32, String> {
        self.type_names.get_or_init(|| {
            let types = self.snapshot.types.iter();
            let known = types.filter(|one| one.object != NO_OBJECT);
            known.map(|one| (one.object, type_name(one))).collect()
        })
    }

    /// The address as `hex(id(object))` writes it.
    pub fn address(&self, object: u32) -> String {
        let address = self.snapshot.objects.addresses.get(object as usize);
        format!("{:#x}", address.copied().unwrap_or(0))
    }
}

/// Whether a root is a running function, its frame, or an argument of C code.
fn is_of_running_code(snapshot: &HeapSnapshot, root: &Root) -> bool {
    let types = &snapshot.objects.types;
    let own = types.get(root.object as usize);
    let own = own.and_then(|&number| snapshot.types.get(number as usize));
    matches!(root.category, RootCategory::Frame | RootCategory::C)
        && own.is_some_and(|own| matches!(own.name.as_str(), "function" | "frame" | "tuple"))
}
