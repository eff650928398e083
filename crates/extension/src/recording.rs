//! Starts and stops the agent from Python.

use heaptide_capture::reason::without_error_numbers;
use std::borrow::Cow;
use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::Mutex;

use heaptide_agent::host::exec;
use heaptide_agent::record::threads;
use heaptide_agent::session;
use heaptide_agent::session::config::{Config, Program};
use heaptide_agent::session::error::{ChangeError, StartError};
use heaptide_agent::session::fork;
use heaptide_capture::Mode;
use heaptide_capture::redact::Redaction;
use pyo3::create_exception;
use pyo3::exceptions::{PyFileExistsError, PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::running_jobs;
use crate::text::{FsText, Text, pairs, strings};

const MAX_ATTEMPTS: usize = 1000;
/// The labels of this process.
static LABELS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// The operating system's number for "file exists".
const EEXIST: i32 = 17;

create_exception!(
    heaptide,
    RecordingError,
    PyRuntimeError,
    "A recording or a heap walk failed; the message has the reason and the remedy."
);

/// Reads the mode of a `heaptide.recording.tracker.RecordingOptions`.
fn mode_of(options: &Bound<'_, PyAny>) -> PyResult<Mode> {
    Ok(Mode {
        objects: options.getattr("objects")?.extract()?,
        sample_bytes: options.getattr("sample_bytes")?.extract()?,
        aggregate: options.getattr("aggregate")?.extract()?,
        follow_fork: options.getattr("follow_fork")?.extract()?,
        native: options.getattr("native")?.extract()?,
    })
}

/// Returns the keyword arguments of a `heaptide.recording.tracker.RecordingOptions`.
pub fn options_to_dict(
    py: Python<'_>,
    mode: Mode,
    interval_ms: u32,
) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("objects", mode.objects)?;
    dict.set_item("native", mode.native)?;
    dict.set_item("sample_bytes", mode.sample_bytes)?;
    dict.set_item("aggregate", mode.aggregate)?;
    dict.set_item("follow_fork", mode.follow_fork)?;
    dict.set_item("interval_ms", interval_ms)?;
    Ok(dict)
}

/// Starts recording this process. Returns a warning if Python stacks cannot be read.
#[pyfunction]
#[pyo3(signature = (path, options, *, overwrite, whole_program, attached_at_bytes, session, command, executable, working_directory, host, python_version, python_allocator, stdlib_paths, import_paths, own_paths, library_paths, user_paths, user_packages, facts, outer_functions=Vec::new(), thread_names=Vec::new()))]
#[allow(
    clippy::too_many_arguments,
    reason = "keyword arguments, each with its name at the only caller"
)]
pub fn start(
    py: Python<'_>,
    path: PathBuf,
    options: Bound<'_, PyAny>,
    overwrite: bool,
    whole_program: bool,
    attached_at_bytes: u64,
    session: Option<[u8; 16]>,
    command: Vec<Text>,
    executable: Text,
    working_directory: Text,
    host: Text,
    python_version: u32,
    python_allocator: Text,
    stdlib_paths: Vec<Text>,
    import_paths: Vec<Text>,
    own_paths: Vec<Text>,
    library_paths: Vec<Text>,
    user_paths: Vec<Text>,
    user_packages: Vec<Text>,
    facts: Vec<(Text, Text)>,
    outer_functions: Vec<Text>,
    thread_names: Vec<(u32, Text)>,
) -> PyResult<Option<String>> {
    let config = Config {
        path,
        overwrite,
        mode: mode_of(&options)?,
        interval_ms: options.getattr("interval_ms")?.extract()?,
        whole_program,
        attached_at_bytes,
        session,
        program: Program {
            command: strings(command),
            executable: executable.0,
            working_directory: working_directory.0,
            host: host.0,
            python_version,
            python_allocator: python_allocator.0,
            stdlib_paths: strings(stdlib_paths),
            import_paths: strings(import_paths),
            own_paths: strings(own_paths),
            library_paths: strings(library_paths),
            user_paths: strings(user_paths),
            user_packages: strings(user_packages),
            facts: pairs(facts),
            outer_functions: strings(outer_functions),
        },
    };
    // SAFETY: a function called from Python runs with the GIL held.
    let warning = unsafe { session::start(config) }.map_err(to_python)?;
    for (native_id, name) in thread_names {
        session::name_thread(native_id, &name.0);
    }
    running_jobs::announce_all(py);
    Ok(warning)
}

/// Returns a command line in which values that match a pattern or contain a secret are hidden.
#[pyfunction]
pub fn redact_command(
    words: Vec<String>,
    patterns: Vec<String>,
    secrets: Vec<String>,
) -> Vec<String> {
    Redaction::new(&patterns, &secrets).command(words)
}

/// Sets the line that is printed when the program replaces itself by another one: the text before and after its name.
#[pyfunction]
pub fn announce_exec(before: Text, after: Text) {
    exec::announce(&before.0, &after.0);
}

/// Stops the recording. Returns the capture's path and whether it is incomplete, or `None` if none was running.
#[pyfunction]
pub fn stop() -> Option<(FsText, bool)> {
    // SAFETY: a function called from Python runs with the GIL held.
    let stopped = unsafe { session::stop() }?;
    Some((stopped.path.into(), stopped.abandoned))
}

/// Changes the mode of the current recording; `None` keeps a part of it. Returns whether anything changed.
#[pyfunction]
#[pyo3(signature = (*, objects = None, sample_bytes = None, native = None))]
pub fn change_mode(
    objects: Option<bool>,
    sample_bytes: Option<u64>,
    native: Option<bool>,
) -> PyResult<bool> {
    change_mode_here(objects, sample_bytes, native)
        .map_err(|error| RecordingError::new_err(error.to_string()))
}

/// Changes the mode for the control API. The caller holds the GIL.
pub fn change_mode_here(
    objects: Option<bool>,
    sample_bytes: Option<u64>,
    native: Option<bool>,
) -> Result<bool, ChangeError> {
    let now = session::active_mode().ok_or(ChangeError::NotRecording)?;
    let wanted = Mode {
        objects: objects.unwrap_or(now.objects),
        sample_bytes: sample_bytes.unwrap_or(now.sample_bytes),
        native: native.unwrap_or(now.native),
        ..now
    };
    // SAFETY: both callers hold the GIL.
    unsafe { session::change_mode(wanted) }
}

/// Returns the mode of the current recording as options, or `None`.
#[pyfunction]
pub fn active_mode(py: Python<'_>) -> PyResult<Option<Bound<'_, PyDict>>> {
    let Some(mode) = session::active_mode() else {
        return Ok(None);
    };
    let dict = options_to_dict(py, mode, 0)?;
    dict.del_item("interval_ms")?;
    Ok(Some(dict))
}

/// Returns the path of the capture that is being written, or `None`.
#[pyfunction]
pub fn active() -> Option<FsText> {
    session::active_path().map(FsText::from)
}

/// Returns whether the recording has failed and has not been stopped since.
#[pyfunction]
pub fn has_failed() -> bool {
    session::has_failed()
}

/// Returns the ID of the current session, which all its captures contain, or `None`.
#[pyfunction]
pub fn session_id() -> Option<Cow<'static, [u8]>> {
    session::active_id().map(|id| Cow::Owned(id.to_vec()))
}

/// Stores the name of a thread, given by its native ID, in the recording.
#[pyfunction]
pub fn name_thread(native_id: u32, name: Text) {
    session::name_thread(native_id, &name.0);
}

/// Stores the labels of this process: `changed` in the running recording, `all` for the status of the control API.
#[pyfunction]
pub fn set_labels(all: Vec<(Text, Text)>, changed: Vec<(Text, Text)>) {
    for (key, value) in &changed {
        session::set_label(&key.0, &value.0);
    }
    let all = pairs(all);
    // A thread of the parent may have held the lock when this process was forked. Otherwise the lock is held only
    // briefly.
    for _ in 0..MAX_ATTEMPTS {
        if let Ok(mut labels) = LABELS.try_lock() {
            *labels = all;
            return;
        }
        std::thread::yield_now();
    }
}

/// Returns the labels of this process. Does not need the interpreter.
pub fn labels() -> Vec<(String, String)> {
    let labels = (0..MAX_ATTEMPTS).find_map(|_| LABELS.try_lock().ok());
    labels.map(|labels| labels.clone()).unwrap_or_default()
}

/// Returns the rank that a launcher gave this process.
#[pyfunction]
pub fn rank() -> Option<u32> {
    heaptide_watch::node::Node::of_this_process().rank
}

/// Excludes the calling thread, which is not registered with Python yet. The crate `attach` finds this function by its
/// symbol.
#[unsafe(no_mangle)]
pub extern "C" fn heaptide_leave_out_thread() {
    threads::leave_out_for_good();
}

/// Excludes the calling thread from recordings until it ends.
#[pyfunction]
pub fn leave_out_thread() {
    threads::leave_out_for_good();
}

/// Calls a function of Heaptide. Of its events, only frees of the program's blocks are recorded.
#[pyfunction]
#[pyo3(signature = (function, *arguments))]
pub fn unrecorded<'py>(
    function: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let _own = threads::OwnPython::begin();
    function.call1(arguments)
}

/// Ends the keeper thread before Python forks.
#[pyfunction]
pub fn before_fork() {
    session::pause_keeper();
}

/// Restarts the keeper in the parent after a fork, once CPython has counted the threads.
#[pyfunction]
pub fn after_fork_in_parent() {
    extern "C" fn resume(_: *mut c_void) -> c_int {
        session::resume_keeper();
        0
    }
    // SAFETY: Python calls this function as an `after_in_parent` hook, with the GIL and without a Python frame.
    // `resume` ignores its argument and raises nothing.
    unsafe { fork::resume_after_thread_count(resume) };
}

/// Continues recording in a forked child, into the child's own file, if the parent follows forks.
#[pyfunction]
pub fn start_in_child(py: Python<'_>, facts: Vec<(Text, Text)>) -> PyResult<Option<String>> {
    // SAFETY: a function called from Python runs with the GIL held.
    let warning = unsafe { session::start_in_child(pairs(facts)) }.map_err(to_python)?;
    running_jobs::announce_all(py);
    Ok(warning)
}

pub fn to_python(error: StartError) -> PyErr {
    let message = without_error_numbers(&error.to_string());
    match error {
        StartError::Exists(_) => PyFileExistsError::new_err((EEXIST, message)),
        StartError::Open(_, cause) | StartError::Write(_, cause) => match cause.raw_os_error() {
            Some(errno) => PyOSError::new_err((errno, message)),
            None => PyOSError::new_err(message),
        },
        _ => RecordingError::new_err(message),
    }
}
