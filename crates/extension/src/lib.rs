//! The extension module `heaptide._native`: converts between Python and Rust, and makes no decisions.

mod client;
mod command;
mod control;
mod drawing;
mod files;
mod heap;
mod heap_view;
mod job_async_step;
mod job_async_steps;
mod job_base;
mod job_calls;
mod job_marks;
mod job_steps;
mod jobs;
mod lines;
mod main_program;
mod objects;
mod process;
mod recording;
mod running_jobs;
mod text;
mod usage;
mod watcher;

use heaptide_agent::host::own_memory::Counted;
use heaptide_capture::header::DEFAULT_SAMPLE_BYTES;
use pyo3::prelude::*;

#[global_allocator]
static ALLOCATOR: Counted = Counted;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("DEFAULT_SAMPLE_BYTES", DEFAULT_SAMPLE_BYTES)?;
    module.add_function(wrap_pyfunction!(recording::start, module)?)?;
    module.add_function(wrap_pyfunction!(recording::redact_command, module)?)?;
    module.add_function(wrap_pyfunction!(recording::announce_exec, module)?)?;
    module.add_function(wrap_pyfunction!(recording::stop, module)?)?;
    module.add_function(wrap_pyfunction!(recording::active, module)?)?;
    module.add_function(wrap_pyfunction!(recording::has_failed, module)?)?;
    module.add_function(wrap_pyfunction!(recording::change_mode, module)?)?;
    module.add_function(wrap_pyfunction!(recording::active_mode, module)?)?;
    module.add_function(wrap_pyfunction!(watcher::watch_pressure, module)?)?;
    module.add_function(wrap_pyfunction!(watcher::take_pressure, module)?)?;
    module.add_function(wrap_pyfunction!(recording::session_id, module)?)?;
    module.add_function(wrap_pyfunction!(recording::name_thread, module)?)?;
    module.add_function(wrap_pyfunction!(recording::set_labels, module)?)?;
    module.add_function(wrap_pyfunction!(recording::rank, module)?)?;
    module.add_function(wrap_pyfunction!(recording::leave_out_thread, module)?)?;
    module.add_function(wrap_pyfunction!(recording::unrecorded, module)?)?;
    module.add_function(wrap_pyfunction!(recording::before_fork, module)?)?;
    module.add_function(wrap_pyfunction!(recording::after_fork_in_parent, module)?)?;
    module.add_function(wrap_pyfunction!(recording::start_in_child, module)?)?;
    module.add_function(wrap_pyfunction!(main_program::call_as_main, module)?)?;
    module.add_function(wrap_pyfunction!(main_program::print_exception, module)?)?;
    module.add_function(wrap_pyfunction!(main_program::untraced, module)?)?;
    module.add_function(wrap_pyfunction!(jobs::jobs_start, module)?)?;
    module.add_function(wrap_pyfunction!(jobs::jobs_stop, module)?)?;
    module.add_function(wrap_pyfunction!(jobs::learn_context, module)?)?;
    module.add_function(wrap_pyfunction!(jobs::context_value, module)?)?;
    module.add_function(wrap_pyfunction!(jobs::trust_contexts, module)?)?;
    module.add_function(wrap_pyfunction!(jobs::job_begin, module)?)?;
    module.add_function(wrap_pyfunction!(jobs::job_end, module)?)?;
    module.add_function(wrap_pyfunction!(jobs::job_settle, module)?)?;
    module.add_function(wrap_pyfunction!(process::process_facts, module)?)?;
    module.add_function(wrap_pyfunction!(jobs::job_seconds, module)?)?;
    module.add_function(wrap_pyfunction!(jobs::job_rest, module)?)?;
    module.add_class::<jobs::JobRest>()?;
    module.add_function(wrap_pyfunction!(job_marks::prepare_job_marks, module)?)?;
    module.add_function(wrap_pyfunction!(job_marks::note_searched_modules, module)?)?;
    module.add_function(wrap_pyfunction!(
        job_marks::note_unwanted_job_records,
        module
    )?)?;
    module.add_function(wrap_pyfunction!(running_jobs::running_job, module)?)?;
    module.add_class::<job_base::JobBase>()?;
    module.add_class::<job_calls::JobCall>()?;
    module.add_class::<job_steps::JobSteps>()?;
    module.add_class::<job_async_step::AsyncJobStep>()?;
    module.add_class::<job_async_steps::AsyncJobSteps>()?;
    module.add_class::<command::Watched>()?;
    module.add_function(wrap_pyfunction!(command::main, module)?)?;
    module.add_function(wrap_pyfunction!(command::check_report_options, module)?)?;
    module.add_function(wrap_pyfunction!(command::run_summary, module)?)?;
    module.add_function(wrap_pyfunction!(drawing::draw_graph, module)?)?;
    module.add_function(wrap_pyfunction!(drawing::draw_graph_png, module)?)?;
    module.add_function(wrap_pyfunction!(text::size_text, module)?)?;
    module.add_function(wrap_pyfunction!(objects::count_types, module)?)?;
    module.add_function(wrap_pyfunction!(objects::count_tracked, module)?)?;
    module.add_function(wrap_pyfunction!(files::private_folder, module)?)?;
    module.add_function(wrap_pyfunction!(files::check_folder, module)?)?;
    module.add_function(wrap_pyfunction!(files::write_file, module)?)?;
    module.add_class::<lines::LineWatch>()?;
    module.add_class::<usage::MemorySampler>()?;
    module.add_class::<usage::MemoryReader>()?;
    module.add_function(wrap_pyfunction!(lines::set_line_trace, module)?)?;
    module.add_function(wrap_pyfunction!(lines::unset_line_trace, module)?)?;
    module.add_function(wrap_pyfunction!(lines::set_aside, module)?)?;
    module.add_function(wrap_pyfunction!(lines::resident_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(lines::render_lines, module)?)?;
    lines::add_callbacks(module)?;
    module.add_function(wrap_pyfunction!(heap::take_heap, module)?)?;
    module.add_function(wrap_pyfunction!(heap::snapshot_heap, module)?)?;
    module.add_function(wrap_pyfunction!(heap::count_heap, module)?)?;
    module.add_function(wrap_pyfunction!(heap::heap_values, module)?)?;
    module.add_function(wrap_pyfunction!(heap_view::heap_rows_table, module)?)?;
    module.add_function(wrap_pyfunction!(heap_view::heap_rows_difference, module)?)?;
    module.add_class::<client::Client>()?;
    module.add_class::<control::Control>()?;
    module.add_class::<control::Response>()?;
    module.add_function(wrap_pyfunction!(control::pause_servers, module)?)?;
    module.add_function(wrap_pyfunction!(control::resume_servers, module)?)?;
    module.add_function(wrap_pyfunction!(control::docs_page, module)?)?;
    module.add_function(wrap_pyfunction!(control::heap_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(watcher::start_watcher, module)?)?;
    module.add_function(wrap_pyfunction!(watcher::pause_watcher, module)?)?;
    module.add_function(wrap_pyfunction!(watcher::resume_watcher, module)?)?;
    module.add_function(wrap_pyfunction!(watcher::stop_watcher, module)?)?;
    module.add_class::<heap_view::HeapView>()?;
    module.add_class::<heap_view::HiddenObjects>()?;
    module.add_class::<heap_view::HeapSet>()?;
    module.add_class::<heap_view::HeapPartition>()?;
    module.add(
        "RecordingError",
        module.py().get_type::<recording::RecordingError>(),
    )?;
    Ok(())
}
