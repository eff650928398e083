//! Snapshots of the heap, from Python.

use std::path::{Path, PathBuf};

use heaptide_agent::heap_walk::file::{self, Summary};
use heaptide_agent::heap_walk::{self, Proof, SnapshotOptions, WalkError, Walked};
use heaptide_agent::session;
use heaptide_analysis::heap;
use heaptide_capture::heap::HeapSnapshot;
use pyo3::exceptions::{PyFileExistsError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::heap_view::HeapView;
use crate::recording::RecordingError;

/// The numbers of a summary, in its order.
type Row = (u64, u64, u64, u64, u64, u64, u64, u64);

/// Name, objects and bytes of each kind, and what is said of the look itself.
type Counted = (Vec<(String, u64, u64)>, u64, u64, Vec<String>);

/// What the walk is asked for, as `heaptide.inspection.snapshots` spells it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Request {
    values: bool,
    redact: Vec<String>,
    command: Vec<String>,
    executable: String,
    host: String,
    python_version: u32,
}

impl Request {
    fn wanted(self) -> SnapshotOptions {
        SnapshotOptions {
            values: self.values,
            redact: self.redact,
            python_version: self.python_version,
            command: self.command,
            executable: self.executable,
            host: self.host,
        }
    }
}

/// The value of the caller's variable `heaptide_token`, an instance with two attributes, and their values.
fn proof_of(token: &Bound<'_, PyAny>, instance: &Bound<'_, PyTuple>) -> PyResult<Proof> {
    let address = |at| PyResult::Ok(instance.get_item(at)?.as_ptr() as usize);
    Ok(Proof {
        token: token.as_ptr() as usize,
        instance: address(0)?,
        first: address(1)?,
        second: address(2)?,
    })
}

/// Walks the heap. Of a recording that runs, the snapshot says at which moment of it it was taken.
fn walked(wanted: &SnapshotOptions, proof: Proof) -> Result<Walked, WalkError> {
    let position = session::position();
    // SAFETY: only functions that are called from Python lead here, so the GIL is held, and the objects of the proof are
    // their caller's.
    let mut walked = unsafe { heap_walk::walk(wanted, proof) }?;
    walked.recorded_at(position);
    Ok(walked)
}

/// Writes a snapshot of this process's heap. Returns objects, references, types, bytes, unreachable objects, and how long
/// the program stood still and the walk took, in ns, and the bytes it needed.
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
    let wanted = request.wanted();
    // SAFETY: a function called from Python runs with the GIL held.
    unsafe { heap_walk::prepare() }.map_err(|error| RecordingError::new_err(error.to_string()))?;
    let file = file::create(&path, overwrite).map_err(|error| not_created(&path, &error))?;
    let result = if fork {
        // SAFETY: as above, and the objects of the proof are the caller's.
        let copy = unsafe { file::walk_in_copy(&wanted, proof, session::position(), file) };
        match copy {
            Ok(copy) => py.detach(|| copy.finish()),
            Err(error) => Err(format!(
                "the process could not be copied ({error}): take the snapshot without a fork"
            )),
        }
    } else {
        match walked(&wanted, proof) {
            Ok(walked) => py.detach(|| {
                file::write(&walked.into_snapshot(), file)
                    .map_err(|error| format!("could not write to {}: {error}", path.display()))
            }),
            Err(error) => Err(error.to_string()),
        }
    };
    let summary = result.map_err(|sentence| {
        let _ = std::fs::remove_file(&path);
        RecordingError::new_err(sentence)
    })?;
    Ok(row(summary))
}

/// A snapshot of this process's heap that is open for questions and never a file. The arguments are those of
/// `take_heap`.
#[pyfunction]
#[pyo3(signature = (token, instance, request))]
pub fn look_at_heap(
    py: Python<'_>,
    token: &Bound<'_, PyAny>,
    instance: &Bound<'_, PyTuple>,
    request: Request,
) -> PyResult<HeapView> {
    let proof = proof_of(token, instance)?;
    // SAFETY: a function called from Python runs with the GIL held.
    let prepared = unsafe { heap_walk::prepare() };
    let walked = prepared.and_then(|()| walked(&request.wanted(), proof));
    let walked = walked.map_err(|error| RecordingError::new_err(error.to_string()))?;
    Ok(py.detach(|| HeapView::of(walked.into_snapshot())))
}

/// Counts the objects of this process. Returns name, objects and bytes of each kind, largest first, how long the program
/// stood still, in ns, the bytes the walk needed, and what could not be looked at.
#[pyfunction]
pub fn count_heap(token: &Bound<'_, PyAny>, instance: &Bound<'_, PyTuple>) -> PyResult<Counted> {
    let proof = proof_of(token, instance)?;
    // SAFETY: a function called from Python runs with the GIL held, and the objects of the proof are the caller's.
    let census = unsafe { heap_walk::prepare().and_then(|()| heap_walk::census(proof)) };
    let census = census.map_err(|error| RecordingError::new_err(error.to_string()))?;
    let types = census.types.into_iter();
    let kinds = heap::census::census(types.map(|one| (one.info, one.objects, one.bytes)));
    let rows = kinds.into_iter();
    Ok((
        rows.map(|kind| (kind.name, kind.objects, kind.bytes))
            .collect(),
        census.stood_still_ns,
        census.walker_bytes,
        census.notes,
    ))
}

/// The short texts that a snapshot keeps of what objects hold.
#[pyfunction]
pub fn heap_values(py: Python<'_>, path: PathBuf) -> PyResult<Vec<String>> {
    let snapshot = py.detach(|| HeapSnapshot::open(&path));
    let snapshot = snapshot.map_err(|error| PyOSError::new_err(error.to_string()))?;
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
        summary.stood_still_ns,
        summary.walk_ns,
        summary.walker_bytes,
    )
}

fn not_created(path: &Path, error: &std::io::Error) -> PyErr {
    let errno = error.raw_os_error().unwrap_or(0);
    if error.kind() == std::io::ErrorKind::AlreadyExists {
        let sentence = format!(
            "{} exists already; choose another file, or overwrite it with --force or overwrite=True",
            path.display()
        );
        return PyFileExistsError::new_err((errno, sentence));
    }
    PyOSError::new_err((
        errno,
        format!("could not create {}: {error}", path.display()),
    ))
}
