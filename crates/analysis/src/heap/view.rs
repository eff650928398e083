//! A snapshot opened for questions. What an answer needs is made when it is first asked for, and kept.

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
    /// Who keeps whom alive: weak references are not in it, nor is the namespace that running code runs in.
    pub graph: Graph,
    /// For every object the one whose `__dict__` it is.
    pub owners: Vec<u32>,
    pub kinds: Kinds,
    /// The entries of `sys.modules`.
    modules: Bits,
    /// What is alive because code runs: functions, frames, arguments.
    running: Bits,
    /// Objects that roots hold, in the order of the roots, each once.
    pub roots: Vec<u32>,
    /// The place of the first root that holds an object, by object.
    root_places: FxHashMap<u32, u32>,
    referrers: OnceLock<Graph>,
    dominators: OnceLock<Dominators>,
    retained: OnceLock<Vec<u64>>,
    distances: OnceLock<Distances>,
    type_names: OnceLock<FxHashMap<u32, String>>,
    /// Where objects were allocated, if that was learnt after the snapshot was opened.
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
        // The variables of code that runs at a module's top are the module's: the module holds them, and has a name.
        let is_namespace = |object: u32| {
            let owner = owners.get(object as usize).copied();
            owner.is_some_and(|owner| modules.contains(owner))
        };
        let is_known =
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
        let mut root_places = FxHashMap::default();
        for (place, root) in snapshot.roots.iter().enumerate() {
            if !is_known(root) {
                continue;
            }
            if let Entry::Vacant(vacant) = root_places.entry(root.object) {
                vacant.insert(place as u32);
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
            root_places,
            referrers: OnceLock::new(),
            dominators: OnceLock::new(),
            retained: OnceLock::new(),
            distances: OnceLock::new(),
            type_names: OnceLock::new(),
            learnt_stacks: OnceLock::new(),
        }
    }

    /// Where objects were allocated, if that is known.
    pub fn stacks(&self) -> Option<&AllocationStacks> {
        let of_snapshot = self.snapshot.stacks.as_ref();
        of_snapshot.or_else(|| self.learnt_stacks.get())
    }

    /// Where objects were allocated, from now on. The first to say it is believed.
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
        set.iter().map(|object| self.bytes(object)).sum()
    }

    pub fn kind(&self, object: u32) -> &str {
        self.kinds.label(self.kinds.of(object))
    }

    /// Whether one object refers to the other, a module's namespace, only because code runs there.
    pub fn only_runs_in(&self, from: u32, to: u32) -> bool {
        let owner = self.owners.get(to as usize).copied();
        self.running.contains(from) && owner.is_some_and(|owner| self.modules.contains(owner))
    }

    /// Everything that roots reach.
    pub fn reachable(&self) -> ObjectSet {
        self.dominators().reachable.iter().collect()
    }

    /// Garbage that waits for the collector.
    pub fn unreachable(&self) -> ObjectSet {
        let reachable = &self.dominators().reachable;
        let all = 0..self.n_objects() as u32;
        all.filter(|&object| !reachable.contains(object)).collect()
    }

    pub fn all(&self) -> ObjectSet {
        (0..self.n_objects() as u32).collect()
    }

    /// The graph the other way round.
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

    /// For every object the bytes that go when it goes.
    pub fn retained(&self) -> &[u64] {
        self.retained
            .get_or_init(|| self.dominators().retained(|object| self.bytes(object)))
    }

    pub fn distances(&self) -> &Distances {
        self.distances
            .get_or_init(|| self.distances_from_roots(|_| false))
    }

    /// C code holds things that have a name elsewhere, as the parser holds the constants of the script that runs: its
    /// ways are told only where there is no other.
    fn distances_from_roots(&self, avoided: impl Fn(u32) -> bool) -> Distances {
        let is_c = |root: &u32| {
            self.root_of(*root)
                .is_some_and(|root| root.category == RootCategory::C)
        };
        let roots = self.roots.iter().copied();
        let (by_c, named): (Vec<u32>, Vec<u32>) = roots.partition(is_c);
        let mut distances = Distances::compute(&self.graph, named, &avoided);
        distances.add_last_resort(&self.graph, by_c, &avoided);
        distances
    }

    /// What is alive only through a set, itself included.
    pub fn dominated(&self, set: &ObjectSet) -> ObjectSet {
        retained::dominated(&self.graph, &self.roots, set)
    }

    pub fn referrers_of(&self, set: &ObjectSet) -> ObjectSet {
        paths::referrers_of(self.referrers(), set)
    }

    pub fn referents_of(&self, set: &ObjectSet) -> ObjectSet {
        paths::referents_of(&self.graph, set)
    }

    /// The immediate dominators of objects, each once.
    pub fn dominators_of(&self, set: &ObjectSet) -> ObjectSet {
        let immediate = &self.dominators().immediate;
        let found = set.iter().map(|object| immediate[object as usize]);
        found.filter(|&dominator| dominator != TOP).collect()
    }

    /// Objects of a kind, or of a type: dicts of any owner for `dict`.
    pub fn of_kind(&self, name: &str) -> ObjectSet {
        let Some(wanted) = self.kinds.find(name) else {
            return ObjectSet::default();
        };
        let types = &self.snapshot.objects.types;
        let is_wanted = |object: &u32| {
            let of_type = self.kinds.of_type(types[*object as usize]);
            self.kinds.of(*object) == wanted || of_type == wanted
        };
        (0..self.n_objects() as u32).filter(is_wanted).collect()
    }

    /// The shortest ways from roots to whichever of a set are nearest.
    pub fn shortest_paths(&self, set: &ObjectSet, max_paths: usize) -> ShortestPaths {
        paths::shortest_paths(self.referrers(), self.distances(), set, max_paths)
    }

    /// The same from other objects than the roots, or without entering some.
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

    /// The first root that holds an object.
    pub fn root_of(&self, object: u32) -> Option<&Root> {
        let place = self.root_places.get(&object)?;
        self.snapshot.roots.get(*place as usize)
    }

    /// How one object refers to another, once for each reference: `.x`, `['x']`.
    pub fn references_between(&self, from: u32, to: u32) -> Vec<String> {
        let edges = self.snapshot.edges.of(from);
        let between =
            edges.filter(|&(target, label)| target == to && label.edge_type() != EdgeType::Weak);
        between
            .map(|(_, label)| labels::reference(&self.snapshot, label))
            .collect()
    }

    /// How one object refers to another, the first way if there are several.
    pub fn first_reference(&self, from: u32, to: u32) -> Option<String> {
        let mut edges = self.snapshot.edges.of(from);
        let found =
            edges.find(|&(target, label)| target == to && label.edge_type() != EdgeType::Weak);
        found.map(|(_, label)| labels::reference(&self.snapshot, label))
    }

    /// The steps of a way as texts: the root's, then how each object refers to the next.
    pub fn path_steps(&self, path: &[u32]) -> Vec<String> {
        let Some(&first) = path.first() else {
            return Vec::new();
        };
        let root = match self.root_of(first) {
            Some(root) => labels::root(&self.snapshot, root),
            None => format!("<{} at {}>", self.kind(first), self.address(first)),
        };
        let steps = path.windows(2).map(|pair| {
            let mut ways = self.references_between(pair[0], pair[1]);
            match ways.len() {
                1 => ways.remove(0),
                0 => "->?".to_owned(),
                // As heapy writes references that run side by side.
                _ => format!("<{}>", ways.join(",")),
            }
        });
        std::iter::once(root).chain(steps).collect()
    }

    /// A way as one expression: `sys.modules['job'].__dict__['cache']['a']`.
    pub fn path_text(&self, path: &[u32]) -> String {
        let mut steps = self.path_steps(path).into_iter();
        let first = steps.next().unwrap_or_default();
        steps.fold(first, |text, step| labels::append(&text, &step))
    }

    /// Types that are objects of the snapshot, with their names.
    pub fn type_names(&self) -> &FxHashMap<u32, String> {
        self.type_names.get_or_init(|| {
            let types = self.snapshot.types.iter();
            let known = types.filter(|one| one.object != NO_OBJECT);
            known.map(|one| (one.object, type_name(one))).collect()
        })
    }

    /// As `id()` and `hex()` write it.
    pub fn address(&self, object: u32) -> String {
        let address = self.snapshot.objects.addresses.get(object as usize);
        format!("{:#x}", address.copied().unwrap_or(0))
    }
}

/// Whether a root is a function that runs, its frame, or what C code was called with.
fn is_of_running_code(snapshot: &HeapSnapshot, root: &Root) -> bool {
    let types = &snapshot.objects.types;
    let own = types.get(root.object as usize);
    let own = own.and_then(|&number| snapshot.types.get(number as usize));
    matches!(root.category, RootCategory::Frame | RootCategory::C)
        && own.is_some_and(|own| matches!(own.name.as_str(), "function" | "frame" | "tuple"))
}
