//! Sets of a snapshot's objects: set operations, referrers, dominated objects and paths from roots.

use std::sync::{Arc, OnceLock};

use heaptide_analysis::heap::pattern::reference_pattern;
use heaptide_analysis::heap::{By, ObjectSet, Partition};
use heaptide_capture::heap::NO_OBJECT;
use heaptide_report::text::heap::{self as text, More};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::live::LiveHeap;
use super::{HeapPartition, HeapView, learn_sites, rendered};

/// Some objects of a snapshot.
#[pyclass(frozen, module = "heaptide._native")]
pub struct HeapSet {
    pub(super) heap: Arc<LiveHeap>,
    /// If `reachable` is set, the objects are computed when they are first needed.
    pub(super) objects: Arc<OnceLock<ObjectSet>>,
    pub(super) reachable: Option<Arc<Reachable>>,
}

/// The set of all reachable objects but those of some kinds.
pub struct Reachable {
    without: Vec<String>,
    kinds: OnceLock<Partition>,
}

impl Reachable {
    pub fn without(kinds: Vec<String>) -> Reachable {
        Reachable {
            without: kinds,
            kinds: OnceLock::new(),
        }
    }

    fn kinds(&self, heap: &LiveHeap) -> &Partition {
        self.kinds.get_or_init(|| heap.kinds_without(&self.without))
    }
}

/// A row of a reference pattern: position, flag, count, kind.
type PatternRow = (Vec<usize>, String, usize, String);
/// Addresses of the objects, and texts of the steps.
type Path = (Vec<u64>, Vec<String>);
/// Function, file, line.
type Frame = (String, String, u32);

impl HeapSet {
    pub(super) fn with(&self, objects: ObjectSet) -> HeapSet {
        HeapSet {
            heap: Arc::clone(&self.heap),
            objects: Arc::new(OnceLock::from(objects)),
            reachable: None,
        }
    }

    /// The same set.
    fn same(&self) -> HeapSet {
        HeapSet {
            heap: Arc::clone(&self.heap),
            objects: Arc::clone(&self.objects),
            reachable: self.reachable.clone(),
        }
    }

    pub(super) fn objects(&self) -> &ObjectSet {
        self.objects.get_or_init(|| {
            let without = self.reachable.as_ref().map_or(&[][..], |set| &set.without);
            self.heap.reachable_without(without)
        })
    }

    /// The table by kind, if it is known without the objects.
    fn kinds(&self) -> Option<&Partition> {
        let reachable = self.reachable.as_ref()?;
        Some(reachable.kinds(&self.heap))
    }

    fn merge(
        &self,
        other: &HeapSet,
        merge: fn(&ObjectSet, &ObjectSet) -> ObjectSet,
    ) -> PyResult<HeapSet> {
        if !Arc::ptr_eq(&self.heap, &other.heap) {
            return Err(PyValueError::new_err(
                "the sets belong to different snapshots: convert one with HeapView.at() or also_in()",
            ));
        }
        Ok(self.with(merge(self.objects(), other.objects())))
    }

    fn is(&self, other: &HeapSet) -> bool {
        Arc::ptr_eq(&self.heap, &other.heap) && self.objects() == other.objects()
    }

    /// Objects that paths must avoid; none if there is no set.
    fn avoided(&self, avoid: Option<&HeapSet>) -> ObjectSet {
        avoid.map_or_else(ObjectSet::default, |set| set.objects().clone())
    }
}

#[pymethods]
impl HeapSet {
    fn __len__(&self) -> usize {
        match self.kinds() {
            Some(kinds) => kinds.count as usize,
            None => self.objects().len(),
        }
    }

    /// Bytes of the objects themselves.
    #[getter]
    fn bytes(&self) -> u64 {
        match self.kinds() {
            Some(kinds) => kinds.bytes,
            None => self.heap.bytes_of(self.objects()),
        }
    }

    fn __or__(&self, other: &HeapSet) -> PyResult<HeapSet> {
        self.merge(other, ObjectSet::union)
    }

    fn __and__(&self, other: &HeapSet) -> PyResult<HeapSet> {
        self.merge(other, ObjectSet::intersection)
    }

    fn __sub__(&self, other: &HeapSet) -> PyResult<HeapSet> {
        self.merge(other, ObjectSet::difference)
    }

    fn __xor__(&self, other: &HeapSet) -> PyResult<HeapSet> {
        self.merge(other, ObjectSet::symmetric_difference)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other
            .cast::<HeapSet>()
            .is_ok_and(|other| self.is(other.get()))
    }

    fn __hash__(&self) -> u64 {
        let numbers = self.objects().iter().map(u64::from);
        numbers.fold(0, |hash, number| hash.wrapping_mul(31).wrapping_add(number))
    }

    fn is_subset(&self, other: &HeapSet) -> PyResult<bool> {
        Ok(self
            .merge(other, ObjectSet::difference)?
            .objects()
            .is_empty())
    }

    fn view(&self) -> HeapView {
        HeapView {
            heap: Arc::clone(&self.heap),
            needs_collection: false,
        }
    }

    /// Addresses (`id()`) of the objects in ascending order, no more than `limit`.
    #[pyo3(signature = (limit=None))]
    fn addresses(&self, limit: Option<usize>) -> Vec<u64> {
        let addresses = &self.heap.snapshot.objects.addresses;
        let objects = self.objects().iter().take(limit.unwrap_or(usize::MAX));
        objects.map(|object| addresses[object as usize]).collect()
    }

    /// Address, bytes, kind and a short description of each object, no more than `limit`.
    #[pyo3(signature = (limit=None))]
    fn describe(&self, limit: Option<usize>) -> Vec<(u64, u64, String, String)> {
        let heap = &self.heap;
        let objects = self.objects().iter().take(limit.unwrap_or(usize::MAX));
        let described = objects.map(|object| {
            (
                heap.snapshot.objects.addresses[object as usize],
                heap.bytes(object),
                heap.kind(object).to_owned(),
                heap.sample(object),
            )
        });
        described.collect()
    }

    /// Groups the set by kind (clodo), type, size, module, via, referrers (rcs), id, unity or producer.
    fn partition(&self, py: Python<'_>, by: &str) -> PyResult<HeapPartition> {
        let by = super::by(by)?;
        let partition = py.detach(|| {
            if let Some(kinds) = self.kinds().filter(|_| by == By::Kind) {
                return kinds.clone();
            }
            if by == By::Producer {
                learn_sites(&self.heap);
            }
            Partition::of(&self.heap, self.objects(), by)
        });
        Ok(HeapPartition::new(self.same(), partition))
    }

    fn referrers(&self, py: Python<'_>) -> HeapSet {
        self.with(py.detach(|| self.heap.referrers_of(self.objects())))
    }

    fn referents(&self, py: Python<'_>) -> HeapSet {
        self.with(py.detach(|| self.heap.referents_of(self.objects())))
    }

    /// The objects whose `__dict__` is in the set.
    fn owners(&self) -> HeapSet {
        let owners = &self.heap.owners;
        let found = self.objects().iter().map(|object| owners[object as usize]);
        self.with(found.filter(|&owner| owner != NO_OBJECT).collect())
    }

    /// The `__dict__` of each object that has one.
    fn dicts(&self) -> HeapSet {
        let owned = self.heap.owners.iter().zip(0u32..);
        let found =
            owned.filter(|&(&owner, _)| owner != NO_OBJECT && self.objects().contains(owner));
        self.with(found.map(|(_, dict)| dict).collect())
    }

    /// The objects that are alive only because of this set, including the set.
    fn dominated(&self, py: Python<'_>) -> HeapSet {
        self.with(py.detach(|| self.heap.dominated(self.objects())))
    }

    /// The immediate dominators of the objects.
    fn dominators(&self, py: Python<'_>) -> HeapSet {
        self.with(py.detach(|| self.heap.dominators_of(self.objects())))
    }

    /// The bytes that are freed with each object, in the order of addresses.
    fn retained(&self, py: Python<'_>) -> Vec<u64> {
        let retained = py.detach(|| self.heap.retained());
        self.objects()
            .iter()
            .map(|object| retained[object as usize])
            .collect()
    }

    /// The largest objects.
    fn largest(&self, n: usize) -> HeapSet {
        let mut numbers: Vec<u32> = self.objects().iter().collect();
        numbers.sort_by_key(|&object| (std::cmp::Reverse(self.heap.bytes(object)), object));
        numbers.truncate(n);
        self.with(numbers.into_iter().collect())
    }

    /// The number of shortest paths from roots to the nearest objects of the set, and up to `limit` of them. A path is
    /// the addresses of its objects, and texts: the root, then the reference from each object to the next.
    ///
    /// References from an object of the first set of a pair in `without` to one of the second are ignored.
    #[pyo3(signature = (limit=10, *, avoid=None, sources=None, without=Vec::new()))]
    fn paths(
        &self,
        py: Python<'_>,
        limit: usize,
        avoid: Option<&HeapSet>,
        sources: Option<&HeapSet>,
        without: Vec<(PyRef<'_, HeapSet>, PyRef<'_, HeapSet>)>,
    ) -> (u64, Vec<Path>) {
        let avoid = self.avoided(avoid);
        let sources = sources.map(|set| set.objects());
        let without: Vec<_> = without
            .iter()
            .map(|(first, second)| (first.objects(), second.objects()))
            .collect();
        let heap = &self.heap;
        let found =
            py.detach(|| heap.paths_without(sources, self.objects(), &avoid, &without, limit));
        let addresses = &self.heap.snapshot.objects.addresses;
        let paths = found.paths.iter().map(|path| {
            let objects = path.iter().map(|&object| addresses[object as usize]);
            (objects.collect(), self.heap.path_steps(path))
        });
        (found.n_paths, paths.collect())
    }

    /// The referrers of the set by kind, and their referrers: position in the tree, flag, count, kind.
    #[pyo3(signature = (depth=7, *, avoid=None))]
    fn pattern(&self, py: Python<'_>, depth: usize, avoid: Option<&HeapSet>) -> Vec<PatternRow> {
        let avoid = self.avoided(avoid);
        let rows = py.detach(|| reference_pattern(&self.heap, self.objects(), depth, &avoid));
        let rows = rows.into_iter().map(|row| {
            let flag = text::flag(row.flag);
            (row.path, flag, row.objects.len(), row.label)
        });
        rows.collect()
    }

    /// The same pattern in heapy's format.
    #[pyo3(signature = (depth=7, first=0, n_rows=10, *, avoid=None))]
    fn pattern_text(
        &self,
        py: Python<'_>,
        depth: usize,
        first: usize,
        n_rows: usize,
        avoid: Option<&HeapSet>,
    ) -> PyResult<String> {
        let avoid = self.avoided(avoid);
        let rows = py.detach(|| reference_pattern(&self.heap, self.objects(), depth, &avoid));
        rendered(|out| text::pattern(out, &self.heap, &rows, first, n_rows, More::Session))
    }

    /// The allocation stack of each object, outermost frame first, in the order of addresses; empty if it is unknown.
    #[pyo3(signature = (limit=None))]
    fn sites(&self, py: Python<'_>, limit: Option<usize>) -> Vec<Vec<Frame>> {
        py.detach(|| learn_sites(&self.heap));
        let objects = self.objects().iter().take(limit.unwrap_or(usize::MAX));
        let frames = objects.map(|object| {
            let frames = self.heap.allocation(object);
            frames
                .map(|frame| (frame.function.clone(), frame.file.clone(), frame.line))
                .collect()
        });
        frames.collect()
    }
}
