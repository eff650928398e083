//! Line-by-line memory for Python: the monitor of a call, and the callbacks that the interpreter runs at every line.
//!
//! The callbacks are plain C functions, because a wrapper around them would take longer than the callbacks themselves.

use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::Arc;

use heaptide_agent::host::resident::Resident;
use heaptide_agent::lines::{self, Backend, Code, Event, MonitoredCall, Reader, trace_hook};
use heaptide_analysis::model::{LineHeap, LineRow, LineTable, LineVisits};
use heaptide_report::html;
use heaptide_report::text::lines::{self as text, Column, Options};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::text::Text;

/// Line, visits, peak in bytes, increment in bytes.
type Row = (u32, u64, i64, i64);

/// One call of a monitored function.
#[pyclass(frozen, module = "heaptide._native")]
pub struct LineWatch {
    watch: Arc<MonitoredCall>,
    /// Kept alive, since their addresses are compared.
    _codes: Vec<Py<PyAny>>,
}

#[pymethods]
impl LineWatch {
    /// `codes` are code objects with their first lines and whether they suspend; `backend` is a name, or a function
    /// that returns bytes. With `from_nothing`, the first line shows all memory from before the call.
    #[new]
    #[pyo3(signature = (codes, first_line, backend, from_nothing))]
    fn new(
        codes: Vec<(Py<PyAny>, u32, bool)>,
        first_line: u32,
        backend: &Bound<'_, PyAny>,
        from_nothing: bool,
    ) -> PyResult<LineWatch> {
        let reader = if backend.is_callable() {
            let ask = backend.clone().unbind();
            Reader::always(Box::new(move || {
                Python::attach(|py| ask.call0(py).ok()?.extract(py).ok())
            }))
        } else {
            Reader::new(match backend.extract::<&str>()? {
                "resident" => Backend::Resident,
                "proportional" => Backend::Proportional,
                "unique" => Backend::Unique,
                other => return Err(PyValueError::new_err(format!("no backend {other}"))),
            })
        };
        // SAFETY: a method called from Python runs with the GIL held.
        unsafe { lines::prepare() };
        let known = codes.iter().map(|(code, first_line, suspends)| Code {
            address: code.as_ptr() as usize,
            first_line: *first_line,
            suspends: *suspends,
        });
        Ok(LineWatch {
            watch: MonitoredCall::new(known.collect(), first_line, reader, from_nothing),
            _codes: codes.into_iter().map(|(code, ..)| code).collect(),
        })
    }

    /// Starts to count lines on this thread.
    fn enter(&self) {
        // SAFETY: a method called from Python runs with the GIL held.
        unsafe { self.watch.enter() }
    }

    /// Undoes `enter`.
    fn leave(&self) {
        // SAFETY: as above.
        unsafe { self.watch.leave() }
    }

    /// Returns the lines that ran: number, visits, peak in bytes, increment in bytes.
    fn rows(&self) -> Vec<Row> {
        // SAFETY: as above.
        let rows = unsafe { self.watch.table() }.rows();
        rows.map(|(line, row)| (line, row.n_visits, row.most_bytes, row.increment_bytes))
            .collect()
    }

    /// Returns the bytes at the start of the call and at the last reading.
    fn first_and_last(&self) -> (i64, i64) {
        // SAFETY: as above.
        unsafe { self.watch.table() }.first_and_last_bytes()
    }
}

/// Starts to receive the lines of this thread through a trace function, which also calls the previous trace function.
#[pyfunction]
pub fn set_line_trace(own: &Bound<'_, PyAny>, present: Option<&Bound<'_, PyAny>>) -> bool {
    let present = present.map_or(ptr::null_mut(), |object| object.as_ptr().cast());
    // SAFETY: a function called from Python runs with the GIL held; the Python caller checks the version.
    unsafe { trace_hook::set(own.as_ptr().cast(), present) }
}

/// Undoes `set_line_trace`.
#[pyfunction]
pub fn unset_line_trace() {
    // SAFETY: as above.
    unsafe { trace_hook::unset() }
}

/// Excludes bytes that Heaptide has just allocated on this thread from the increments of lines.
#[pyfunction]
pub fn set_aside(bytes: i64) {
    // SAFETY: as above.
    unsafe { lines::set_aside(bytes) }
}

/// Returns the resident bytes of this process; `None` if the kernel does not report them.
#[pyfunction]
pub fn resident_bytes() -> Option<u64> {
    Resident::open().bytes()
}

/// One line of source for a report: number, text, and measurements if it ran.
type SourceLine = (
    u32,
    Text,
    Option<(u64, i64, i64)>,
    Option<(u64, u64, u64, u64)>,
);

/// File, function, and the lines of its source.
type Function = (Text, Text, Vec<SourceLine>);

/// Returns the report on functions: tables, one line each, or a page. `columns` follow memory_profiler's.
#[pyfunction]
#[pyo3(signature = (functions, *, precision, columns, form))]
pub fn render_lines(
    functions: Vec<Function>,
    precision: usize,
    columns: Vec<String>,
    form: &str,
) -> PyResult<String> {
    let tables: Vec<LineTable> = functions.into_iter().map(to_table).collect();
    let more = columns.iter().filter_map(|name| Column::from_name(name));
    let columns: Vec<Column> = Column::WATCHED.into_iter().chain(more).collect();
    let options = Options {
        columns: &columns,
        precision,
    };
    let mut out = Vec::new();
    if form == "page" {
        html::lines::lines(&mut out, &tables, &options)?;
    } else {
        for table in &tables {
            if form == "one line" {
                out.extend(text::one_line(table, precision).bytes());
                out.push(b'\n');
            } else {
                text::lines(&mut out, table, &options)?;
            }
        }
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn to_table((file, function, source): Function) -> LineTable {
    let rows = source
        .into_iter()
        .map(|(number, text, visits, heap)| LineRow {
            number,
            text: text.0,
            visits: visits.map(|(n_visits, most_bytes, increment_bytes)| LineVisits {
                n_visits,
                most_bytes,
                increment_bytes,
            }),
            heap: heap.map(
                |(total_bytes, n_allocations, peak_bytes, leaked_bytes)| LineHeap {
                    total_bytes,
                    n_allocations,
                    peak_bytes,
                    leaked_bytes,
                },
            ),
        });
    LineTable {
        file: file.0,
        function: function.0,
        rows: rows.collect(),
    }
}

macro_rules! callback {
    ($name:ident, $args:ident, $event:expr) => {
        unsafe extern "C" fn $name(
            _module: *mut ffi::PyObject,
            arguments: *mut *mut ffi::PyObject,
            n_arguments: ffi::Py_ssize_t,
        ) -> *mut ffi::PyObject {
            if n_arguments >= 2 {
                // SAFETY: the interpreter passes this many arguments, and holds the GIL. Only the address of the code
                // object is used.
                unsafe {
                    let $args = arguments;
                    let code = *arguments as usize;
                    lines::event(code, None, $event);
                }
            }
            // SAFETY: the GIL is held.
            unsafe {
                let none = ffi::Py_None();
                ffi::Py_INCREF(none);
                none
            }
        }
    };
}

callback!(on_line, arguments, Event::Line(line_number(arguments)));
callback!(on_start, _arguments, Event::Start);
callback!(on_return, _arguments, Event::Return);
callback!(on_yield, _arguments, Event::Yield);

/// # Safety
/// There are two arguments, and the GIL is held.
unsafe fn line_number(arguments: *mut *mut ffi::PyObject) -> u32 {
    // SAFETY: the caller promises two arguments. The interpreter passes an int; anything else becomes line 0.
    let number = unsafe { ffi::PyLong_AsLong(*arguments.add(1)) };
    if number == -1 {
        // SAFETY: the GIL is held.
        unsafe { ffi::PyErr_Clear() };
    }
    u32::try_from(number).unwrap_or(0)
}

/// Adds the callbacks to the module as plain C functions.
pub fn add_callbacks(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let add = |name: &'static CStr, function: ffi::PyCFunctionFast| -> PyResult<()> {
        // The interpreter keeps a pointer to the definition as long as the function exists, that is, until the process exits.
        let definition = Box::leak(Box::new(ffi::PyMethodDef {
            ml_name: name.as_ptr(),
            ml_meth: ffi::PyMethodDefPointer {
                PyCFunctionFast: function,
            },
            ml_flags: ffi::METH_FASTCALL as c_int,
            ml_doc: ptr::null(),
        }));
        // SAFETY: the definition is never freed, and the GIL is held while a module is created.
        let object = unsafe {
            let object = ffi::PyCFunction_NewEx(definition, ptr::null_mut(), ptr::null_mut());
            Bound::from_owned_ptr_or_err(module.py(), object)?
        };
        module.add(name.to_str().unwrap_or_default(), object)
    };
    add(c"on_line", on_line)?;
    add(c"on_start", on_start)?;
    add(c"on_return", on_return)?;
    add(c"on_yield", on_yield)
}
