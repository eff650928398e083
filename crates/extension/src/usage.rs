//! Samples of the memory of processes over time, for `memory_usage`.

use std::time::Duration;

use heaptide_timeline::Backend;
use heaptide_watch::samples::{Sample, SampleOptions, Sampler, SizeReader};
use pyo3::exceptions::{PyProcessLookupError, PyValueError};
use pyo3::prelude::*;
use std::sync::Mutex;

/// Time, bytes, and the pids and bytes of descendants.
type Row = (f64, u64, Vec<(u32, u64)>);

fn row(sample: Sample) -> Row {
    (sample.time, sample.bytes, sample.children)
}

fn options(pid: u32, backend: &str, children: bool) -> PyResult<SampleOptions> {
    let backend = match backend {
        "resident" => Backend::Rss,
        "proportional" => Backend::Pss,
        "unique" => Backend::Uss,
        other => return Err(PyValueError::new_err(format!("no backend {other}"))),
    };
    Ok(SampleOptions {
        pid,
        backend,
        children,
    })
}

fn gone(pid: u32) -> PyErr {
    PyProcessLookupError::new_err(format!(
        "there is no process {pid}: it has ended, or the number is wrong"
    ))
}

/// Samples a process at regular intervals, in a thread that needs no interpreter.
#[pyclass(frozen, module = "heaptide._native")]
pub struct MemorySampler {
    sampler: Mutex<Option<Sampler>>,
}

#[pymethods]
impl MemorySampler {
    #[new]
    #[pyo3(signature = (pid, interval, backend, children))]
    fn new(pid: u32, interval: f64, backend: &str, children: bool) -> PyResult<MemorySampler> {
        let interval = Duration::try_from_secs_f64(interval)
            .map_err(|_| PyValueError::new_err("the interval is not a valid number of seconds"))?;
        let sampler = Sampler::start(options(pid, backend, children)?, interval)?;
        Ok(MemorySampler {
            sampler: Mutex::new(Some(sampler.ok_or_else(|| gone(pid))?)),
        })
    }

    /// Ends the thread. Returns all samples: time, bytes, pids and bytes of descendants.
    fn stop(&self, py: Python<'_>) -> Vec<Row> {
        let sampler = self
            .sampler
            .lock()
            .ok()
            .and_then(|mut sampler| sampler.take());
        let samples = py.detach(|| sampler.map_or(Vec::new(), Sampler::stop));
        samples.into_iter().map(row).collect()
    }
}

/// Reads the memory of a process on request.
#[pyclass(module = "heaptide._native")]
pub struct MemoryReader(SizeReader);

#[pymethods]
impl MemoryReader {
    #[new]
    #[pyo3(signature = (pid, backend, children))]
    fn new(pid: u32, backend: &str, children: bool) -> PyResult<MemoryReader> {
        let reader = SizeReader::new(options(pid, backend, children)?);
        reader.map(MemoryReader).ok_or_else(|| gone(pid))
    }

    /// Returns time, bytes, and pids and bytes of descendants; `None` once the process has ended.
    fn sample(&mut self) -> Option<Row> {
        self.0.sample().map(row)
    }
}
