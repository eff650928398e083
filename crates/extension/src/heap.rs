//! Heap snapshots and censuses of this process, for Python.

use heaptide_capture::reason::without_error_numbers;
use std::path::PathBuf;

use heaptide_agent::heap_walk::file::{self, FileError, Summary};
use heaptide_agent::heap_walk::{self, Proof, SnapshotOptions, WalkError, Walked};
use heaptide_agent::session;
use heaptide_analysis::heap;
use heaptide_capture::heap::HeapSnapshot;
use heaptide_capture::redact::Redaction;
use pyo3::exceptions::{PyFileExistsError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::heap_view::HeapView;
use crate::recording::RecordingError;
use crate::text::{Text, pairs, strings};

/// The numbers of a [`Summary`], in the order of its fields.
type Row = (u64, u64, u64, u64, u64, u64, u64, u64);

/// Name, objects and bytes of each kind; nanoseconds of the pause; bytes that the walk needed; notes.
type Counted = (Vec<(String, u64, u64)>, u64, u64, Vec<String>);

/// The options of a snapshot, as `heaptide.inspection.snapshots` passes them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Request {
    values: bool,
    redact: Vec<Text>,
    secrets: Vec<Text>,
    command: Vec<Text>,
    executable: Text,
    host: Text,
    python_version: u32,
    facts: Vec<(Text, Text)>,
}

impl Request {
    fn options(self) -> SnapshotOptions {
        SnapshotOptions {
            values: self.values,
            redact: Redaction::new(&strings(self.redact), &strings(self.secrets)),
            python_version: self.python_version,
            command: strings(self.command),
            executable: self.executable.0,
            host: self.host.0,
            facts: [heaptide_procfs::process_facts(), pairs(self.facts)].concat(),
        }
    }
}

/// Returns the addresses of the caller's `heaptide_token`, of an instance with two attributes, and of their values.
pub fn proof_of(token: &Bound<'_, PyAny>, instance: &Bound<'_, PyTuple>) -> PyResult<Proof> {
    let address = |at| PyResult::Ok(instance.get_item(at)?.as_ptr() as usize);
    Ok(Proof {
        token: token.as_ptr() as usize,
        instance: address(0)?,
        first: address(1)?,
        second: address(2)?,
    })
}

/// Walks the heap. If a recording is running, the snapshot stores its position in the recording.
fn walked(options: &SnapshotOptions, proof: Proof) -> Result<Walked, WalkError> {
    let position = session::position();
    // SAFETY: only functions that Python calls use this function, so the GIL is held, and their caller keeps the
    // objects of the proof alive.
    let mut walked = unsafe { heap_walk::walk(options, proof) }?;
    walked.recorded_at(position);
    Ok(walked)
}

/// Writes a snapshot of this process's heap. Returns objects, references, types, bytes, unreachable objects, the
/// nanoseconds of the pause and of the walk, and the bytes that the walk needed.
#[pyfunction]
#[pyo3(signature = (token, instance, path, request, *, fork, overwrite))]
pub fn take_heap(
    py: Python<'_>,
    token: &Bound<'_, PyAny>,
    instance: &Bound<'_, PyTuple>,
    path: PathBuf,
    request: Request,
    fork: bool,
    overwrite: bool,
) -> PyResult<Row> {
    let proof = proof_of(token, instance)?;
    let options = request.options();
    // SAFETY: a function called from Python runs with the GIL held.
    unsafe { heap_walk::prepare() }.map_err(|error| RecordingError::new_err(error.to_string()))?;
    let file = file::create(&path, overwrite).map_err(to_python)?;
    let result = if fork {
        // SAFETY: as above, and the caller keeps the objects of the proof alive.
        let copy =
            unsafe { file::walk_in_child(&options, proof, session::position(), file.file()) };
        copy.and_then(|copy| py.detach(|| copy.finish()))
    } else {
        let walked = walked(&options, proof).map_err(FileError::Walk);
        walked.and_then(|walked| {
            py.detach(|| file::write(&walked.into_snapshot(), file.file(), &path))
        })
    };
    let summary = result.map_err(to_python)?;
    py.detach(|| file::publish(file, &path))
        .map_err(to_python)?;
    Ok(row(summary))
}

/// Returns a snapshot of this process's heap without writing a file. The arguments are those of `take_heap`.
#[pyfunction]
#[pyo3(signature = (token, instance, request))]
pub fn snapshot_heap(
    token: &Bound<'_, PyAny>,
    instance: &Bound<'_, PyTuple>,
    request: Request,
) -> PyResult<HeapView> {
    let proof = proof_of(token, instance)?;
    // SAFETY: a function called from Python runs with the GIL held.
    let prepared = unsafe { heap_walk::prepare() };
    let walked = prepared.and_then(|()| walked(&request.options(), proof));
    let walked = walked.map_err(|error| RecordingError::new_err(error.to_string()))?;
    Ok(HeapView::of_walk(walked))
}

/// Counts the objects of this process. Returns the name, number and bytes of each kind, largest first; the nanoseconds
/// of the pause; the bytes that the walk needed; and notes on parts that could not be read.
#[pyfunction]
pub fn count_heap(token: &Bound<'_, PyAny>, instance: &Bound<'_, PyTuple>) -> PyResult<Counted> {
    let proof = proof_of(token, instance)?;
    // SAFETY: a function called from Python runs with the GIL held, and its caller keeps the objects of the proof alive.
    let census = unsafe { heap_walk::prepare().and_then(|()| heap_walk::census(proof)) };
    let census = census.map_err(|error| RecordingError::new_err(error.to_string()))?;
    let types = census.types.into_iter();
    let kinds = heap::census::census(types.map(|one| (one.info, one.objects, one.bytes)));
    let rows = kinds.into_iter();
    Ok((
        rows.map(|kind| (kind.name, kind.objects, kind.bytes))
            .collect(),
        census.paused_ns,
        census.walker_bytes,
        census.notes,
    ))
}

/// Returns the previews of values in a snapshot file.
#[pyfunction]
pub fn heap_values(py: Python<'_>, path: PathBuf) -> PyResult<Vec<String>> {
    let snapshot = py.detach(|| HeapSnapshot::open(&path));
    let snapshot =
        snapshot.map_err(|error| PyOSError::new_err(without_error_numbers(&error.to_string())))?;
    Ok(snapshot
        .values
        .into_iter()
        .map(|value| value.text)
        .collect())
}

fn row(summary: Summary) -> Row {
    (
        summary.objects,
        summary.references,
        summary.types,
        summary.bytes,
        summary.unreachable,
        summary.paused_ns,
        summary.walk_ns,
        summary.walker_bytes,
    )
}

fn to_python(error: FileError) -> PyErr {
    let message = without_error_numbers(&error.to_string());
    match error {
        FileError::Exists(_, cause) => {
            PyFileExistsError::new_err((cause.raw_os_error().unwrap_or(0), message))
        }
        FileError::Create(_, cause) => {
            PyOSError::new_err((cause.raw_os_error().unwrap_or(0), message))
        }
        _ => RecordingError::new_err(message),
    }
}
