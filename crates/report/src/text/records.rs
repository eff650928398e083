//! `heaptide parse`: one line per record, `NAME key=value …`.
//!
//! `time`, `began` and `ended` are seconds since the recording began. `thread` is the number of the thread in the
//! capture; its THREAD line has the thread ID of the operating system and the name.

use std::io::{self, Write};

use heaptide_analysis::RecordLine;
use heaptide_capture::{
    Allocator, Frame, Header, JobInfo, Jobs, ModuleText, Op, OpAction, Registry,
};

use crate::shell::command_line;
use crate::units::hexadecimal;

/// A text on one line: control characters are written as escapes.
fn plain(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains(char::is_control) {
        text.chars()
            .map(|c| {
                if c.is_control() {
                    c.escape_default().to_string()
                } else {
                    c.to_string()
                }
            })
            .collect::<String>()
            .into()
    } else {
        text.into()
    }
}

pub fn record(out: &mut dyn Write, record: &RecordLine) -> io::Result<()> {
    match *record {
        RecordLine::Header(head) => header(out, head),
        RecordLine::Registry(facts) => registry(out, facts),
        RecordLine::Code { id, code } => writeln!(
            out,
            "CODE_OBJECT code_id={id} function_name={} qualified_name={} filename={} firstlineno={} linetable_size={}",
            plain(&code.name),
            plain(&code.qualified_name),
            plain(&code.file),
            code.first_line,
            code.line_table.len()
        ),
        RecordLine::Module { id, module } => modules(out, id, module),
        RecordLine::Thread { thread, elapsed_ns } => writeln!(
            out,
            "THREAD thread={} tid={} time={} name={}",
            thread.stream,
            thread.os_id,
            Seconds(elapsed_ns),
            plain(thread.name.as_deref().unwrap_or(""))
        ),
        RecordLine::Resident { elapsed_ns, bytes } => {
            writeln!(
                out,
                "MEMORY_RECORD time={} memory={bytes}",
                Seconds(elapsed_ns)
            )
        }
        RecordLine::Job {
            job,
            jobs,
            began_ns,
            ended_ns,
        } => describe_job(out, job, jobs, began_ns, ended_ns),
        RecordLine::CurrentJob { stream, job } => {
            writeln!(out, "CURRENT_JOB thread={stream} job={job}")
        }
        RecordLine::Switch { stream } => writeln!(out, "CONTEXT_SWITCH thread={stream}"),
        RecordLine::Pop { count } => writeln!(out, "FRAME_POP count={count}"),
        RecordLine::Push {
            frame,
            module: Some(module),
            ..
        } => writeln!(
            out,
            "FRAME_PUSH module_id={} address={:#x} location={}",
            frame.code,
            frame.instruction,
            plain(&module.path)
        ),
        RecordLine::Push {
            frame, code, line, ..
        } => {
            write!(
                out,
                "FRAME_PUSH code_object_id={} instruction_offset=",
                frame.code
            )?;
            match frame.instruction {
                Frame::AT_START => write!(out, "start")?,
                instruction => write!(out, "{instruction}")?,
            }
            match code {
                Some(code) => writeln!(
                    out,
                    " location={}:{}:{line}",
                    plain(&code.name),
                    plain(&code.file)
                ),
                None => writeln!(out, " location=<unknown>"),
            }
        }
        RecordLine::Op {
            elapsed_ns,
            stream,
            op,
        } => operation(out, elapsed_ns, stream, op),
        RecordLine::Trailer {
            elapsed_ns,
            n_events,
        } => match elapsed_ns {
            Some(elapsed_ns) => writeln!(
                out,
                "TRAILER time={} n_events={n_events}",
                Seconds(elapsed_ns)
            ),
            None => writeln!(out, "TRAILER time=unknown n_events={n_events}"),
        },
    }
}

fn header(out: &mut dyn Write, header: &Header) -> io::Result<()> {
    write!(out, "HEADER magic=heaptide version={}", header.version)?;
    write!(out, " python_version={:08x}", header.python_version)?;
    write!(out, " session={}", hexadecimal(&header.session))?;
    write!(out, " pid={} parent_pid={}", header.pid, header.parent_pid)?;
    for (key, value) in &header.facts {
        write!(out, " {key}={value}")?;
    }
    write!(
        out,
        " main_tid={} start_time={}",
        header.main_thread,
        header.started_unix_ns / 1_000_000
    )?;
    write!(
        out,
        " objects={} sample_bytes={}",
        header.mode.objects, header.mode.sample_bytes
    )?;
    write!(
        out,
        " native={} aggregate={} follow_fork={}",
        header.mode.native, header.mode.aggregate, header.mode.follow_fork
    )?;
    write!(
        out,
        " python_allocator={} joined_late={}",
        header.python_allocator, header.joined_late
    )?;
    if header.attached_at_bytes > 0 {
        write!(out, " attached_at_bytes={}", header.attached_at_bytes)?;
    }
    write!(
        out,
        " host={} executable={}",
        header.host, header.executable
    )?;
    write!(out, " working_directory={}", header.working_directory)?;
    write!(out, " profiler_version={}", header.profiler_version)?;
    write!(out, " stdlib=[{}]", header.stdlib_paths.join(", "))?;
    write!(out, " sys.path=[{}]", header.import_paths.join(", "))?;
    writeln!(out, " command_line={}", command_line(&header.command))
}

fn registry(out: &mut dyn Write, registry: &Registry) -> io::Result<()> {
    if let Some(bytes) = registry.limit {
        writeln!(out, "MEMORY_LIMIT memory={bytes}")?;
    }
    if registry.own_memory > 0 {
        writeln!(out, "OWN_MEMORY memory={}", registry.own_memory)?;
    }
    for (part, bytes) in &registry.memory {
        writeln!(out, "MEMORY_PART part={part:?} memory={bytes}")?;
    }
    for (reason, count) in &registry.lost {
        writeln!(out, "LOST count={count} what={}", reason.describe())?;
    }
    if let Some(mark) = &registry.stopped {
        let (at_ns, dropped) = (registry.elapsed_ns(mark.time), mark.n_dropped);
        writeln!(
            out,
            "STOPPED at_ns={at_ns} dropped={dropped} reason={}",
            mark.reason
        )?;
    }
    Ok(())
}

/// Writes a line for each address range of a library.
fn modules(out: &mut dyn Write, id: u32, module: &ModuleText) -> io::Result<()> {
    for mapping in &module.mappings {
        writeln!(
            out,
            "MODULE module_id={id} filename={} build_id={} base={:#x} start={:#x} size={}",
            plain(&module.path),
            hexadecimal(&module.build_id),
            mapping.base,
            mapping.start,
            mapping.length
        )?;
    }
    Ok(())
}

fn describe_job(
    out: &mut dyn Write,
    job: &JobInfo,
    jobs: &Jobs,
    began_ns: u64,
    ended_ns: Option<u64>,
) -> io::Result<()> {
    write!(
        out,
        "JOB job={} parent={} tid={} began={} ended={} outcome={} error={} name={}",
        job.number,
        job.parent,
        job.thread,
        Seconds(began_ns),
        ended_ns.map_or("unknown".to_owned(), |ns| Seconds(ns).to_string()),
        job.outcome.name(),
        plain(&jobs.error(job)),
        plain(&jobs.name(job))
    )?;
    if let Some(key) = jobs.key(job) {
        write!(out, " key={}", plain(key))?;
    }
    for (label, value) in jobs.labels(job) {
        write!(out, " {}={}", plain(&label), plain(&value))?;
    }
    writeln!(out)
}

fn operation(out: &mut dyn Write, elapsed_ns: u64, thread: u32, op: &Op) -> io::Result<()> {
    let time = Seconds(elapsed_ns);
    let Op { address, size, .. } = *op;
    match op.action {
        OpAction::Alloc => {
            let allocator = Allocator::from_number(op.allocator).map_or("unknown", Allocator::name);
            writeln!(
                out,
                "ALLOCATION time={time} thread={thread} address={address:#x} size={size} allocator={}",
                allocator.to_ascii_lowercase()
            )
        }
        OpAction::Free => writeln!(out, "FREE time={time} thread={thread} address={address:#x}"),
        OpAction::FreeRange => writeln!(
            out,
            "FREE_RANGE time={time} thread={thread} address={address:#x} size={size}"
        ),
        OpAction::Unfree => writeln!(out, "FREE_REFUSED time={time} thread={thread}"),
        OpAction::JobEnd => writeln!(out, "JOB_END time={time} thread={thread} job={address}"),
    }
}

struct Seconds(u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(
            out,
            "{}.{:06}",
            self.0 / 1_000_000_000,
            self.0 % 1_000_000_000 / 1_000
        )
    }
}
