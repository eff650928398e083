//! Heap snapshots for Python: a view of one, sets of its objects, and sets taken apart. All answers are `analysis::heap`'s.

use std::path::PathBuf;
use std::sync::Arc;

use heaptide_analysis::capture::heap::{HeapError, HeapSnapshot, NO_OBJECT};
use heaptide_analysis::heap::allocations;
use heaptide_analysis::heap::diff;
use heaptide_analysis::heap::pattern::reference_pattern;
use heaptide_analysis::heap::{By, Heap, ObjectSet, Partition};
use heaptide_report::text::heap::{self as text, More};
use pyo3::exceptions::{PyIndexError, PyOSError, PyValueError};
use pyo3::prelude::*;

fn by(name: &str) -> PyResult<By> {
    By::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = By::ALL.iter().map(|(name, _)| *name).collect();
        PyValueError::new_err(format!(
            "objects cannot be told apart by {name}: choose one of {}",
            known.join(", ")
        ))
    })
}

fn rendered(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> PyResult<String> {
    let mut out = Vec::new();
    write(&mut out)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Asks the recording that ran when the heap was looked at where objects were allocated; in vain if it is gone or has none.
fn learn_sites(heap: &Heap) {
    let position = heap.snapshot.header.recording.as_ref();
    let Some(position) = position.filter(|_| heap.stacks().is_none()) else {
        return;
    };
    if let Ok(stacks) = allocations::join_file(&heap.snapshot, position.path.as_ref()) {
        heap.learn_stacks(stacks);
    }
}

/// A snapshot that is open for questions.
#[pyclass(frozen, module = "heaptide._native")]
pub struct HeapView {
    heap: Arc<Heap>,
}

impl HeapView {
    /// A view of a snapshot that was never a file.
    pub fn of(snapshot: HeapSnapshot) -> HeapView {
        HeapView {
            heap: Arc::new(Heap::new(snapshot)),
        }
    }

    fn set(&self, objects: ObjectSet) -> HeapSet {
        HeapSet {
            heap: Arc::clone(&self.heap),
            objects,
        }
    }
}

#[pymethods]
impl HeapView {
    /// Opens a file that holds a snapshot.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<HeapView> {
        let opened = py.detach(|| {
            let mut snapshot = HeapSnapshot::open(&path)?;
            let recording = allocations::recording_of(&snapshot.header, &path);
            if let (Some(position), Some(found)) = (&mut snapshot.header.recording, recording) {
                position.path = found.to_string_lossy().into_owned();
            }
            Ok::<_, HeapError>(HeapView::of(snapshot))
        });
        opened.map_err(|error| PyOSError::new_err(error.to_string()))
    }

    fn __len__(&self) -> usize {
        self.heap.n_objects()
    }

    /// Bytes of all objects.
    #[getter]
    fn bytes(&self) -> u64 {
        self.heap.snapshot.total_bytes()
    }

    #[getter]
    fn pid(&self) -> u32 {
        self.heap.snapshot.header.pid
    }

    /// When the snapshot was taken, in seconds since 1970.
    #[getter]
    fn taken(&self) -> f64 {
        self.heap.snapshot.header.taken_unix_ns as f64 / 1e9
    }

    /// How long the program stood still for it, in seconds.
    #[getter]
    fn stood_still(&self) -> f64 {
        self.heap.snapshot.header.stood_still_ns as f64 / 1e9
    }

    /// What could not be looked at.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.heap.snapshot.header.notes.clone()
    }

    /// Whether it is known where objects were allocated. The recording that ran at that moment is asked once.
    #[getter]
    fn has_sites(&self, py: Python<'_>) -> bool {
        py.detach(|| learn_sites(&self.heap));
        self.heap.stacks().is_some()
    }

    /// The capture that was being written when the heap was looked at.
    #[getter]
    fn recording(&self) -> Option<&str> {
        let position = self.heap.snapshot.header.recording.as_ref();
        position.map(|position| position.path.as_str())
    }

    fn all(&self) -> HeapSet {
        self.set(self.heap.all())
    }

    /// What roots reach.
    fn reachable(&self, py: Python<'_>) -> HeapSet {
        self.set(py.detach(|| self.heap.reachable()))
    }

    /// Garbage that waits for the collector.
    fn unreachable(&self, py: Python<'_>) -> HeapSet {
        self.set(py.detach(|| self.heap.unreachable()))
    }

    /// Objects that roots hold.
    fn roots(&self) -> HeapSet {
        self.set(self.heap.roots.iter().copied().collect())
    }

    fn empty(&self) -> HeapSet {
        self.set(ObjectSet::default())
    }

    /// The objects at these addresses (`id()`); those that are not in the snapshot are left out.
    fn at(&self, addresses: Vec<u64>) -> HeapSet {
        let objects = &self.heap.snapshot.objects;
        let found = addresses.iter().filter_map(|&at| objects.find(at));
        self.set(found.collect())
    }

    /// Objects of a kind, as tables name it: `str`, `dict of module`, `job.Order`; a type's name takes all of the type.
    fn of_kind(&self, py: Python<'_>, name: &str) -> HeapSet {
        let found = py.detach(|| self.heap.of_kind(name));
        self.set(found)
    }

    /// Objects that an earlier snapshot of the same process does not have.
    fn new_since(&self, py: Python<'_>, earlier: &HeapView) -> HeapSet {
        self.set(py.detach(|| diff::only_in(&self.heap, &earlier.heap)))
    }

    /// Objects that another snapshot of the same process has too.
    fn also_in(&self, py: Python<'_>, other: &HeapView) -> HeapSet {
        self.set(py.detach(|| diff::also_in(&self.heap, &other.heap)))
    }

    /// What came with `load`, which the baseline does not have, and is still here.
    fn leaked(&self, py: Python<'_>, baseline: &HeapView, load: &HeapView) -> HeapSet {
        self.set(py.detach(|| diff::leaked(&baseline.heap, &load.heap, &self.heap)))
    }

    /// Heapy's table of what changed since an earlier snapshot.
    #[pyo3(signature = (earlier, by="kind", n_rows=10))]
    fn difference(
        &self,
        py: Python<'_>,
        earlier: &HeapView,
        by: &str,
        n_rows: usize,
    ) -> PyResult<String> {
        let by = self::by(by)?;
        let found = py.detach(|| diff::diff(&earlier.heap, &self.heap, by));
        rendered(|out| text::difference(out, &found, by, n_rows, More::Session))
    }
}

/// Some objects of a snapshot.
#[pyclass(frozen, module = "heaptide._native")]
pub struct HeapSet {
    heap: Arc<Heap>,
    objects: ObjectSet,
}

/// Count, bytes, name.
type Row = (u64, u64, String);
/// Row's name, flag, count, kind, of a reference pattern.
type PatternRow = (Vec<usize>, String, usize, String);
/// Addresses of the objects, and texts of the steps.
type Path = (Vec<u64>, Vec<String>);
/// Function, file, line.
type Frame = (String, String, u32);

impl HeapSet {
    fn with(&self, objects: ObjectSet) -> HeapSet {
        HeapSet {
            heap: Arc::clone(&self.heap),
            objects,
        }
    }

    fn merge(
        &self,
        other: &HeapSet,
        merge: fn(&ObjectSet, &ObjectSet) -> ObjectSet,
    ) -> PyResult<HeapSet> {
        if !Arc::ptr_eq(&self.heap, &other.heap) {
            return Err(PyValueError::new_err(
                "the sets are of different snapshots: bring one over with HeapView.at() or also_in()",
            ));
        }
        Ok(self.with(merge(&self.objects, &other.objects)))
    }

    /// Objects that are not to be entered; none if there is no set.
    fn avoided(&self, avoid: Option<&HeapSet>) -> ObjectSet {
        avoid.map_or_else(ObjectSet::default, |set| set.objects.clone())
    }
}

#[pymethods]
impl HeapSet {
    fn __len__(&self) -> usize {
        self.objects.len()
    }

    /// Bytes of the objects themselves.
    #[getter]
    fn bytes(&self) -> u64 {
        self.heap.bytes_of(&self.objects)
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
        let numbers = self.objects.iter().map(u64::from);
        numbers.fold(0, |hash, number| hash.wrapping_mul(31).wrapping_add(number))
    }

    fn is_subset(&self, other: &HeapSet) -> PyResult<bool> {
        Ok(self.merge(other, ObjectSet::difference)?.objects.is_empty())
    }

    fn view(&self) -> HeapView {
        HeapView {
            heap: Arc::clone(&self.heap),
        }
    }

    /// Addresses (`id()`) of the objects in ascending order, no more than `limit`.
    #[pyo3(signature = (limit=None))]
    fn addresses(&self, limit: Option<usize>) -> Vec<u64> {
        let addresses = &self.heap.snapshot.objects.addresses;
        let objects = self.objects.iter().take(limit.unwrap_or(usize::MAX));
        objects.map(|object| addresses[object as usize]).collect()
    }

    /// What is known of each object, no more than `limit`: address, bytes, kind, what tells it from others.
    #[pyo3(signature = (limit=None))]
    fn describe(&self, limit: Option<usize>) -> Vec<(u64, u64, String, String)> {
        let heap = &self.heap;
        let objects = self.objects.iter().take(limit.unwrap_or(usize::MAX));
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

    /// Takes the set apart: by kind (clodo), type, size, module, via, referrers (rcs), id, unity or producer.
    fn partition(&self, py: Python<'_>, by: &str) -> PyResult<HeapPartition> {
        let by = self::by(by)?;
        let partition = py.detach(|| {
            if by == By::Producer {
                learn_sites(&self.heap);
            }
            Partition::of(&self.heap, &self.objects, by)
        });
        Ok(HeapPartition {
            set: self.with(self.objects.clone()),
            partition,
        })
    }

    fn referrers(&self, py: Python<'_>) -> HeapSet {
        self.with(py.detach(|| self.heap.referrers_of(&self.objects)))
    }

    fn referents(&self, py: Python<'_>) -> HeapSet {
        self.with(py.detach(|| self.heap.referents_of(&self.objects)))
    }

    /// The objects whose `__dict__` is in the set.
    fn owners(&self) -> HeapSet {
        let owners = &self.heap.owners;
        let found = self.objects.iter().map(|object| owners[object as usize]);
        self.with(found.filter(|&owner| owner != NO_OBJECT).collect())
    }

    /// The `__dict__` of each object that has one.
    fn dicts(&self) -> HeapSet {
        let owned = self.heap.owners.iter().zip(0u32..);
        let found = owned.filter(|&(&owner, _)| owner != NO_OBJECT && self.objects.contains(owner));
        self.with(found.map(|(_, dict)| dict).collect())
    }

    /// What is alive only through this set, itself included.
    fn dominated(&self, py: Python<'_>) -> HeapSet {
        self.with(py.detach(|| self.heap.dominated(&self.objects)))
    }

    /// The immediate dominators of the objects.
    fn dominators(&self, py: Python<'_>) -> HeapSet {
        self.with(py.detach(|| self.heap.dominators_of(&self.objects)))
    }

    /// For each object the bytes that go when it goes, in the order of addresses.
    fn retained(&self, py: Python<'_>) -> Vec<u64> {
        let retained = py.detach(|| self.heap.retained());
        self.objects
            .iter()
            .map(|object| retained[object as usize])
            .collect()
    }

    /// The largest objects.
    fn largest(&self, n: usize) -> HeapSet {
        let mut numbers: Vec<u32> = self.objects.iter().collect();
        numbers.sort_by_key(|&object| (std::cmp::Reverse(self.heap.bytes(object)), object));
        numbers.truncate(n);
        self.with(numbers.into_iter().collect())
    }

    /// How many shortest ways lead from roots to the nearest objects of the set, and up to `limit` of them: each as the
    /// address of every object on it, and as texts: the root, then how each object refers to the next.
    #[pyo3(signature = (limit=10, *, avoid=None, sources=None))]
    fn paths(
        &self,
        py: Python<'_>,
        limit: usize,
        avoid: Option<&HeapSet>,
        sources: Option<&HeapSet>,
    ) -> (u64, Vec<Path>) {
        let avoid = self.avoided(avoid);
        let sources = sources.map(|set| &set.objects);
        let found = py.detach(|| self.heap.paths_from(sources, &self.objects, &avoid, limit));
        let addresses = &self.heap.snapshot.objects.addresses;
        let paths = found.paths.iter().map(|path| {
            let places = path.iter().map(|&object| addresses[object as usize]);
            (places.collect(), self.heap.path_steps(path))
        });
        (found.n_paths, paths.collect())
    }

    /// Who refers to the set, by kind, and who to those: which child of which, flag, count, kind.
    #[pyo3(signature = (depth=7, *, avoid=None))]
    fn pattern(&self, py: Python<'_>, depth: usize, avoid: Option<&HeapSet>) -> Vec<PatternRow> {
        let avoid = self.avoided(avoid);
        let rows = py.detach(|| reference_pattern(&self.heap, &self.objects, depth, &avoid));
        let rows = rows.into_iter().map(|row| {
            let flag = text::flag(row.flag);
            (row.path, flag, row.objects.len(), row.label)
        });
        rows.collect()
    }

    /// The same as heapy prints it.
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
        let rows = py.detach(|| reference_pattern(&self.heap, &self.objects, depth, &avoid));
        rendered(|out| text::pattern(out, &self.heap, &rows, first, n_rows, More::Session))
    }

    /// The stack that allocated each object, outermost frame first, in the order of addresses; empty where it is not known.
    #[pyo3(signature = (limit=None))]
    fn sites(&self, py: Python<'_>, limit: Option<usize>) -> Vec<Vec<Frame>> {
        py.detach(|| learn_sites(&self.heap));
        let objects = self.objects.iter().take(limit.unwrap_or(usize::MAX));
        let frames = objects.map(|object| {
            let frames = self.heap.allocation(object);
            frames
                .map(|frame| (frame.function.clone(), frame.file.clone(), frame.line))
                .collect()
        });
        frames.collect()
    }
}

impl HeapSet {
    fn is(&self, other: &HeapSet) -> bool {
        Arc::ptr_eq(&self.heap, &other.heap) && self.objects == other.objects
    }
}

/// A set in rows, the largest first.
#[pyclass(frozen, module = "heaptide._native")]
pub struct HeapPartition {
    set: HeapSet,
    partition: Partition,
}

#[pymethods]
impl HeapPartition {
    fn __len__(&self) -> usize {
        self.partition.rows.len()
    }

    /// Count, bytes and name of rows from `first` on, no more than `limit`.
    #[pyo3(signature = (first=0, limit=None))]
    fn rows(&self, first: usize, limit: Option<usize>) -> Vec<Row> {
        let rows = self.partition.rows.iter().skip(first);
        let rows = rows.take(limit.unwrap_or(usize::MAX));
        rows.map(|row| (row.count, row.bytes, row.label.clone()))
            .collect()
    }

    /// The objects of one row.
    fn members(&self, row: usize) -> PyResult<HeapSet> {
        if row >= self.partition.rows.len() {
            return Err(PyIndexError::new_err(format!(
                "there is no row {row}: the table has {}",
                self.partition.rows.len()
            )));
        }
        let members = self.partition.members(&self.set.objects, row);
        Ok(self.set.with(members))
    }

    /// The objects of rows from `first` up to, without, `end`.
    fn members_between(&self, first: usize, end: usize) -> HeapSet {
        let rows = self.set.objects.iter();
        let rows = rows.zip(self.partition.rows_of_objects());
        let wanted = rows.filter(|&(_, &row)| (first..end).contains(&(row as usize)));
        self.set.with(wanted.map(|(object, _)| object).collect())
    }

    /// Heapy's table: rows from `first` on, `n_rows` of them, or all if that is 0.
    #[pyo3(signature = (first=0, n_rows=10))]
    fn table(&self, first: usize, n_rows: usize) -> PyResult<String> {
        rendered(|out| text::partition(out, &self.partition, first, n_rows, More::Session))
    }

    /// The title of the names' column.
    #[getter]
    fn heading(&self) -> &'static str {
        text::heading(self.partition.by)
    }
}

fn heap_rows(rows: Vec<Row>) -> Vec<heaptide_analysis::heap::Row> {
    let rows = rows.into_iter();
    rows.map(|(count, bytes, label)| heaptide_analysis::heap::Row {
        label,
        count,
        bytes,
    })
    .collect()
}

/// Heapy's table of rows whose objects are gone: count, bytes and name of each.
#[pyfunction]
#[pyo3(signature = (by, rows, first=0, n_rows=10))]
pub fn heap_rows_table(by: &str, rows: Vec<Row>, first: usize, n_rows: usize) -> PyResult<String> {
    let table = Partition::of_rows(self::by(by)?, heap_rows(rows));
    rendered(|out| text::partition(out, &table, first, n_rows, More::Session))
}

/// Heapy's table of what changed from some rows to others.
#[pyfunction]
#[pyo3(signature = (by, before, after, n_rows=10))]
pub fn heap_rows_difference(
    by: &str,
    before: Vec<Row>,
    after: Vec<Row>,
    n_rows: usize,
) -> PyResult<String> {
    let found = diff::diff_of_rows(heap_rows(before), heap_rows(after));
    let by = self::by(by)?;
    rendered(|out| text::difference(out, &found, by, n_rows, More::Session))
}
