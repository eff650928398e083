//! Heap snapshots for Python: a view of one ([`live`]), [`set`]s of its objects, and sets divided into rows
//! ([`partition`]). All results come from `analysis::heap`. [`hidden`] holds objects for sets that have no view yet.

mod hidden;
mod live;
mod partition;
mod set;

use heaptide_capture::reason::without_error_numbers;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use heaptide_agent::heap_walk::Walked;
use heaptide_analysis::heap::{By, Heap, ObjectSet, allocations, diff};
use heaptide_capture::heap::{HeapError, HeapSnapshot};
use heaptide_report::text::heap::{self as text, More};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

pub use hidden::HiddenObjects;
use live::LiveHeap;
pub use partition::{HeapPartition, heap_rows_difference, heap_rows_table};
pub use set::{HeapSet, Reachable};

fn by(name: &str) -> PyResult<By> {
    By::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = By::ALL.iter().map(|(name, _)| *name).collect();
        PyValueError::new_err(format!(
            "cannot group objects by {name}: choose one of {}",
            known.join(", ")
        ))
    })
}

fn rendered(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> PyResult<String> {
    let mut out = Vec::new();
    write(&mut out)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Reads the allocation sites of objects from the recording that ran when the snapshot was taken, if there is one.
fn learn_sites(heap: &Heap) {
    let position = heap.snapshot.header.recording.as_ref();
    let Some(position) = position.filter(|_| heap.stacks().is_none()) else {
        return;
    };
    if let Ok(stacks) = allocations::join_file(&heap.snapshot, position.path.as_ref()) {
        heap.learn_stacks(stacks);
    }
}

/// An open snapshot.
#[pyclass(frozen, module = "heaptide._native")]
pub struct HeapView {
    heap: Arc<LiveHeap>,
    /// Whether the caller should collect garbage and take a new view.
    needs_collection: bool,
}

impl HeapView {
    /// Returns a view of a snapshot in memory.
    pub fn of(snapshot: HeapSnapshot) -> HeapView {
        HeapView {
            heap: Arc::new(LiveHeap::of_snapshot(snapshot)),
            needs_collection: false,
        }
    }

    /// Returns a view of this process. It is assembled when it is first needed.
    pub fn of_walk(walked: Walked) -> HeapView {
        HeapView {
            needs_collection: walked.needs_collection,
            heap: Arc::new(LiveHeap::of_walk(walked)),
        }
    }

    fn set(&self, objects: ObjectSet) -> HeapSet {
        HeapSet {
            heap: Arc::clone(&self.heap),
            objects: Arc::new(OnceLock::from(objects)),
            reachable: None,
        }
    }
}

#[pymethods]
impl HeapView {
    /// Opens a snapshot file.
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
        opened.map_err(|error| PyOSError::new_err(without_error_numbers(&error.to_string())))
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

    /// The time of the snapshot, in seconds since 1970.
    #[getter]
    fn taken(&self) -> f64 {
        self.heap.snapshot.header.taken_unix_ns as f64 / 1e9
    }

    /// One sentence for each part that could not be read.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.heap.snapshot.header.notes.clone()
    }

    /// Whether allocation sites are known. The first call reads the recording that ran when the snapshot was taken.
    #[getter]
    fn has_sites(&self, py: Python<'_>) -> bool {
        py.detach(|| learn_sites(&self.heap));
        self.heap.stacks().is_some()
    }

    /// The capture that was being written when the snapshot was taken.
    #[getter]
    fn recording(&self) -> Option<&str> {
        let position = self.heap.snapshot.header.recording.as_ref();
        position.map(|position| position.path.as_str())
    }

    fn all(&self) -> HeapSet {
        self.set(self.heap.all())
    }

    /// Objects that roots reach.
    fn reachable(&self, py: Python<'_>) -> HeapSet {
        self.set(py.detach(|| self.heap.reachable()))
    }

    /// Objects that roots reach, without those of some kinds. The set's table by kind takes little time.
    fn reachable_without(&self, names: Vec<String>) -> HeapSet {
        HeapSet {
            heap: Arc::clone(&self.heap),
            objects: Arc::default(),
            reachable: Some(Arc::new(Reachable::without(names))),
        }
    }

    /// Whether garbage has finalizers or weak references, or is so much that a collection is worthwhile.
    #[getter]
    fn needs_collection(&self) -> bool {
        self.needs_collection
    }

    /// Objects that no root reaches: garbage.
    fn unreachable(&self, py: Python<'_>) -> HeapSet {
        self.set(py.detach(|| self.heap.unreachable()))
    }

    /// Objects that roots refer to.
    fn roots(&self) -> HeapSet {
        self.set(self.heap.roots.iter().copied().collect())
    }

    fn empty(&self) -> HeapSet {
        self.set(ObjectSet::default())
    }

    /// The objects of the snapshot that have one of these addresses (`id()`).
    fn at(&self, addresses: Vec<u64>) -> HeapSet {
        let objects = &self.heap.snapshot.objects;
        let found = addresses.iter().filter_map(|&at| objects.find(at));
        self.set(found.collect())
    }

    /// Objects of a kind, named as in tables: `str`, `dict of module`, `job.Order`; a type's name selects all objects
    /// of the type.
    fn of_kind(&self, py: Python<'_>, name: &str) -> HeapSet {
        let found = py.detach(|| self.heap.of_kind(name));
        self.set(found)
    }

    /// Objects of any of these kinds.
    fn of_kinds(&self, py: Python<'_>, names: Vec<String>) -> HeapSet {
        self.set(py.detach(|| self.heap.of_kinds(&names)))
    }

    /// Objects that an earlier snapshot of the same process does not have.
    fn new_since(&self, py: Python<'_>, earlier: &HeapView) -> HeapSet {
        self.set(py.detach(|| diff::only_in(&self.heap, &earlier.heap)))
    }

    /// Objects that are also in another snapshot of the same process.
    fn also_in(&self, py: Python<'_>, other: &HeapView) -> HeapSet {
        self.set(py.detach(|| diff::also_in(&self.heap, &other.heap)))
    }

    /// Objects that are in `load` and not in the baseline, and still exist here.
    fn leaked(&self, py: Python<'_>, baseline: &HeapView, load: &HeapView) -> HeapSet {
        self.set(py.detach(|| diff::leaked(&baseline.heap, &load.heap, &self.heap)))
    }

    /// Heapy's table of the changes since an earlier snapshot.
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
