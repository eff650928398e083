//! The command line: returns an exit code, or the plan of a program that Python must run.

use std::ffi::OsString;
use std::path::PathBuf;

use heaptide_cli::{LinesPlan, Outcome, RunPlan, ServePlan, Target, WorkerPlan};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::recording::options_to_dict;
use crate::text::FsText;

/// A program for the live view.
#[pyclass(frozen)]
pub struct Watched(heaptide_cli::LivePlan);

#[pymethods]
impl Watched {
    /// Runs the program and shows it. `python` starts this command in another interpreter. Returns the exit code.
    fn run(&self, py: Python<'_>, python: Vec<OsString>) -> i32 {
        py.detach(|| heaptide_cli::run_live(&self.0, &python))
    }
}

/// Runs a command. Returns the exit code, a plan as a dict if Python must run the program, or a `Watched` program.
#[pyfunction]
pub fn main(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<Py<PyAny>> {
    let arguments = std::iter::once(OsString::from("heaptide")).chain(arguments);
    // Reports may take long; other threads can run Python code meanwhile.
    match py.detach(|| heaptide_cli::main(arguments)) {
        Outcome::Exit(code) => Ok(code.into_pyobject(py)?.into_any().unbind()),
        Outcome::Run(plan) => Ok(plan_to_dict(py, plan)?.into_any().unbind()),
        Outcome::Lines(plan) => Ok(lines_to_dict(py, plan)?.into_any().unbind()),
        Outcome::Live(plan) => Ok(Py::new(py, Watched(plan))?.into_any()),
        Outcome::Serve(plan) => Ok(serve_plan_to_dict(py, plan)?.into_any().unbind()),
        Outcome::Worker(plan) => Ok(worker_plan_to_dict(py, plan)?.into_any().unbind()),
        Outcome::Doctor => {
            let dict = PyDict::new(py);
            dict.set_item("command", "doctor")?;
            Ok(dict.into_any().unbind())
        }
    }
}

fn plan_to_dict(py: Python<'_>, plan: RunPlan) -> PyResult<Bound<'_, PyDict>> {
    let dict = program_to_dict(py, "run", plan.target, plan.args)?;
    dict.set_item("output", plan.output.map(FsText::from))?;
    dict.set_item("force", plan.force)?;
    dict.set_item("quiet", plan.quiet)?;
    dict.set_item("report", plan.report.map(FsText::from))?;
    dict.set_item("open", plan.open)?;
    dict.set_item("python", plan.python.map(FsText::from))?;
    dict.set_item("options", options_to_dict(py, plan.mode, plan.interval_ms)?)?;
    Ok(dict)
}

fn lines_to_dict(py: Python<'_>, plan: LinesPlan) -> PyResult<Bound<'_, PyDict>> {
    let dict = program_to_dict(py, "lines", plan.target, plan.args)?;
    dict.set_item("precision", plan.precision)?;
    dict.set_item("backend", plan.backend)?;
    dict.set_item("columns", plan.columns)?;
    dict.set_item("output", plan.output.map(FsText::from))?;
    dict.set_item("html", plan.html.map(FsText::from))?;
    Ok(dict)
}

fn program_to_dict<'py>(
    py: Python<'py>,
    command: &str,
    target: Target,
    arguments: Vec<OsString>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let (kind, target) = match target {
        Target::Script(path) => ("script", path.into_os_string()),
        Target::Module(name) => ("module", name),
        Target::Code(text) => ("code", text),
        Target::Stdin => ("stdin", OsString::new()),
    };
    dict.set_item("command", command)?;
    dict.set_item("kind", kind)?;
    dict.set_item("target", FsText(target))?;
    let arguments: Vec<FsText> = arguments.into_iter().map(FsText).collect();
    dict.set_item("arguments", arguments)?;
    Ok(dict)
}

fn serve_plan_to_dict(py: Python<'_>, plan: ServePlan) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("command", "serve")?;
    dict.set_item("job", FsText::from(plan.job))?;
    dict.set_item("entrypoint", plan.entrypoint)?;
    dict.set_item("host", plan.host)?;
    dict.set_item("port", plan.port)?;
    dict.set_item("name", plan.name)?;
    dict.set_item("version", plan.version)?;
    dict.set_item("grace_seconds", plan.grace_seconds)?;
    dict.set_item("guarded_elsewhere", plan.guarded_elsewhere)?;
    Ok(dict)
}

fn worker_plan_to_dict(py: Python<'_>, plan: WorkerPlan) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("command", "worker")?;
    dict.set_item("job", plan.job)?;
    dict.set_item("params", plan.params)?;
    dict.set_item("trace_memory", plan.trace_memory)?;
    dict.set_item("trace_memory_type", plan.trace_memory_type)?;
    let folder = plan.trace_memory_output_dir;
    dict.set_item("trace_memory_output_dir", folder.map(FsText::from))?;
    dict.set_item("greenlets", plan.greenlets)?;
    dict.set_item("max_jobs", plan.max_jobs)?;
    dict.set_item("max_memory", plan.max_memory)?;
    Ok(dict)
}

/// Returns the summary that is printed after a recorded program has ended, line by line.
#[pyfunction]
pub fn run_summary(py: Python<'_>, path: PathBuf, folder: PathBuf) -> Vec<String> {
    py.detach(|| heaptide_cli::run_summary(&path, &folder))
}

/// Returns an error message if the options of a report command are invalid, or `None`. Reads, writes and prints nothing.
#[pyfunction]
pub fn check_report_options(command: &str, options: Vec<OsString>) -> Option<String> {
    heaptide_cli::check_report_options(command, options).err()
}
