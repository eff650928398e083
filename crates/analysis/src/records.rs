//! Lists every record of a capture in the order of events, for `heaptide parse`.
//!
//! A capture stores call stacks as changes within a chunk. Here they become changes within a thread, across chunks. Only
//! each thread's current stack is kept in memory.

use std::ops::{ControlFlow, Range};

use heaptide_capture::{
    Capture, CodeText, Damage, DecodedChunk, Frame, Header, JobInfo, Jobs, ModuleText, Op,
    OpAction, Registry, ThreadInfo,
};
use heaptide_tally::replay_until;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::filter::Filter;
use crate::symbols::names::Resolver;

/// One record, with its names.
#[derive(Clone, Copy, Debug)]
pub enum RecordLine<'a> {
    Header(&'a Header),
    Registry(&'a Registry),
    Code {
        id: u32,
        code: &'a CodeText,
    },
    Module {
        id: u32,
        module: &'a ModuleText,
    },
    Thread {
        thread: &'a ThreadInfo,
        elapsed_ns: u64,
    },
    Resident {
        elapsed_ns: u64,
        bytes: u64,
    },
    /// A job of the registry.
    Job {
        job: &'a JobInfo,
        jobs: &'a Jobs,
        began_ns: u64,
        ended_ns: Option<u64>,
    },
    /// The thread's following allocations belong to this job; 0 is none.
    CurrentJob {
        stream: u32,
        job: u32,
    },
    /// The following records belong to this thread.
    Switch {
        stream: u32,
    },
    Pop {
        count: usize,
    },
    Push {
        frame: Frame,
        /// `None` if the capture has no description.
        code: Option<&'a CodeText>,
        /// The library of a native frame; the frame's instruction is an address in its file.
        module: Option<&'a ModuleText>,
        line: i32,
    },
    Op {
        elapsed_ns: u64,
        stream: u32,
        op: &'a Op,
    },
    /// The end of the recording, also if the program was killed.
    Trailer {
        elapsed_ns: Option<u64>,
        n_events: u64,
    },
}

/// Emits the records that pass a filter of threads and times, and returns the damage found. `offset_ns` is the time
/// from the start of the session to the start of this process.
pub fn records<E>(
    capture: &Capture,
    filter: &Filter,
    offset_ns: u64,
    sink: &mut dyn FnMut(RecordLine) -> Result<(), E>,
) -> Result<Vec<Damage>, E> {
    let registry = &capture.registry;
    let main_thread = capture.header.main_thread;
    let is_wanted = |thread: &&ThreadInfo| filter.wants_thread(thread, main_thread);
    let wanted: FxHashSet<u32> = {
        let threads = registry.threads.iter().filter(is_wanted);
        threads.map(|thread| thread.stream).collect()
    };
    sink(RecordLine::Header(&capture.header))?;
    sink(RecordLine::Registry(registry))?;
    for thread in registry.threads.iter().filter(is_wanted) {
        let elapsed_ns = registry.elapsed_ns(thread.started);
        sink(RecordLine::Thread { thread, elapsed_ns })?;
    }
    let mut codes: Vec<(&u32, &CodeText)> = registry.codes.iter().collect();
    codes.sort_unstable_by_key(|&(id, _)| id);
    for (&id, code) in codes {
        sink(RecordLine::Code { id, code })?;
    }
    for (&id, module) in &registry.modules {
        sink(RecordLine::Module { id, module })?;
    }
    for job in registry.jobs.iter() {
        sink(RecordLine::Job {
            job,
            jobs: &registry.jobs,
            began_ns: registry.elapsed_ns(job.began),
            ended_ns: job.ended.map(|ended| registry.elapsed_ns(ended)),
        })?;
    }
    let mut emitter = Emitter {
        capture,
        resolver: Resolver::new(&registry.codes, capture.header.python_version),
        stacks: FxHashMap::default(),
        stream: None,
        n_resident: 0,
        n_events: 0,
        from_ns: filter.from_ns.unwrap_or(0).saturating_sub(offset_ns),
        to_ns: match filter.to_ns {
            Some(to) => to.saturating_sub(offset_ns),
            None => u64::MAX,
        },
        sink,
    };
    let mut failed = None;
    let replay_damage = replay_until(capture, &mut |_| {}, &mut |chunk, ops| {
        if filter.threads.is_empty() || wanted.contains(&chunk.head.stream) {
            failed = emitter.emit(chunk, ops).err();
        }
        // The receiver failed: reading the rest of a long capture would be useless.
        if failed.is_some() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    if let Some(failed) = failed {
        return Err(failed);
    }
    emitter.emit_resident_until(u64::MAX)?;
    let n_events = emitter.n_events;
    sink(RecordLine::Trailer {
        elapsed_ns: registry.end.map(|end| registry.elapsed_ns(end)),
        n_events,
    })?;
    let mut damage = capture.damage.clone();
    damage.extend(replay_damage);
    Ok(damage)
}

/// The stack of a thread as last emitted, and its node and chunk.
#[derive(Default)]
struct EmittedStack {
    frames: Vec<Frame>,
    node: Option<(u32, u32)>,
    job: u32,
}

struct Emitter<'a, 's, E> {
    capture: &'a Capture,
    resolver: Resolver<'a>,
    stacks: FxHashMap<u32, EmittedStack>,
    stream: Option<u32>,
    /// The number of resident samples already emitted.
    n_resident: usize,
    n_events: u64,
    /// Only records from `from_ns` until before `to_ns` are emitted.
    from_ns: u64,
    to_ns: u64,
    sink: &'s mut dyn FnMut(RecordLine) -> Result<(), E>,
}

impl<E> Emitter<'_, '_, E> {
    fn emit(&mut self, chunk: &DecodedChunk, ops: Range<usize>) -> Result<(), E> {
        let stream = chunk.head.stream;
        if self.stream.replace(stream) != Some(stream) {
            (self.sink)(RecordLine::Switch { stream })?;
        }
        let mut mark = chunk
            .times
            .partition_point(|mark| mark.first_op as usize <= ops.start);
        let mut elapsed_ns = 0;
        let mut is_new_time = true;
        for at in ops {
            while chunk
                .times
                .get(mark)
                .is_some_and(|next| next.first_op as usize <= at)
            {
                mark += 1;
                is_new_time = true;
            }
            if std::mem::take(&mut is_new_time) {
                let time = chunk
                    .times
                    .get(mark.wrapping_sub(1))
                    .map_or(chunk.head.time, |mark| mark.time);
                self.emit_resident_until(time)?;
                elapsed_ns = self.capture.registry.elapsed_ns(time);
            }
            if elapsed_ns < self.from_ns || elapsed_ns >= self.to_ns {
                continue;
            }
            let op = &chunk.ops[at];
            self.emit_job(chunk, at)?;
            self.emit_stack(chunk, op.node)?;
            self.n_events += u64::from(op.action != OpAction::JobEnd);
            (self.sink)(RecordLine::Op {
                elapsed_ns,
                stream,
                op,
            })?;
        }
        Ok(())
    }

    fn emit_job(&mut self, chunk: &DecodedChunk, op: usize) -> Result<(), E> {
        if self.capture.registry.jobs.is_empty() {
            return Ok(());
        }
        let passed = chunk
            .jobs
            .partition_point(|mark| mark.first_op as usize <= op);
        let mark = passed.checked_sub(1).and_then(|at| chunk.jobs.get(at));
        let job = mark.map_or(0, |mark| mark.job);
        let stream = chunk.head.stream;
        let emitted = self.stacks.entry(stream).or_default();
        if std::mem::replace(&mut emitted.job, job) != job {
            (self.sink)(RecordLine::CurrentJob { stream, job })?;
        }
        Ok(())
    }

    fn emit_resident_until(&mut self, time: u64) -> Result<(), E> {
        let registry = &self.capture.registry;
        while let Some(sample) = registry.resident.get(self.n_resident) {
            if sample.time > time {
                return Ok(());
            }
            self.n_resident += 1;
            let elapsed_ns = registry.elapsed_ns(sample.time);
            if elapsed_ns >= self.from_ns && elapsed_ns < self.to_ns {
                (self.sink)(RecordLine::Resident {
                    elapsed_ns,
                    bytes: sample.bytes,
                })?;
            }
        }
        Ok(())
    }

    /// Emits the difference between the thread's last stack and the stack of a node.
    fn emit_stack(&mut self, chunk: &DecodedChunk, node: u32) -> Result<(), E> {
        let emitted = self.stacks.entry(chunk.head.stream).or_default();
        let identity = Some((chunk.head.number, node));
        if std::mem::replace(&mut emitted.node, identity) == identity {
            return Ok(());
        }
        let mut frames = Vec::new();
        let mut at = node as usize;
        while let Some(node) = chunk.nodes.get(at).filter(|_| at != 0) {
            frames.push(node.frame);
            at = node.parent as usize;
        }
        frames.reverse();
        let pairs = emitted.frames.iter().zip(&frames);
        let n_common = pairs.take_while(|(one, other)| one == other).count();
        let count = emitted.frames.len() - n_common;
        if count > 0 {
            (self.sink)(RecordLine::Pop { count })?;
        }
        for &frame in &frames[n_common..] {
            (self.sink)(RecordLine::Push {
                frame,
                code: self.capture.registry.codes.get(&frame.code),
                module: self.capture.registry.modules.get(&frame.code),
                line: self.resolver.line(frame),
            })?;
        }
        emitted.frames = frames;
        Ok(())
    }
}
