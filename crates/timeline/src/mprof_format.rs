//! mprof's format: `CMDLINE`, `MEM`, `CHLD` and `FUNC` lines, sizes in MiB, Unix times.
//!
//! Facts that mprof does not record are in lines that begin with `HEAPTIDE`, which its reader skips: the host and rank, the
//! backend, the limit, OOM kills, the exit status and others. Real files contain empty lines, and lines in any order,
//! because the parent may write its samples late.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::heaptide_format::{ending, fact};
use crate::model::{Backend, Call, Header, Memory, Point, Process, Timeline};
use crate::record::Tick;
use crate::text::{self, bytes_of_mib, escape, mib, seconds, unescape};

/// The beginning of lines with facts that mprof does not record.
pub const PREFIX: &str = "HEAPTIDE ";

pub fn header(line: &mut String, header: &Header) {
    // Writing into a string cannot fail, so the results are ignored. mprof has no escapes, so control characters become
    // blanks.
    let command = header.command.replace(char::is_control, " ");
    let _ = writeln!(line, "CMDLINE {command}");
    if let Some(host) = &header.host {
        let _ = writeln!(line, "{PREFIX}host {}", escape(host, true));
    }
    for (key, value) in &header.facts {
        let _ = writeln!(line, "{PREFIX}fact {key}={}", escape(value, true));
    }
    if let Some(rank) = header.rank {
        let _ = writeln!(line, "{PREFIX}rank {rank}");
    }
    let _ = writeln!(line, "{PREFIX}backend {}", header.backend.name());
}

/// `wanted`: whether to sum all processes, and whether to write a line for each child.
pub fn tick(
    line: &mut String,
    limit: &mut Option<Option<u64>>,
    backend: Backend,
    tick: &Tick,
    wanted: (bool, bool),
) {
    let time_s = tick.time_s;
    let counted = tick
        .processes
        .iter()
        .filter(|(number, ..)| wanted.0 || *number == 0);
    let total: u64 = counted
        .map(|(.., memory)| memory.by(backend))
        .fold(0, u64::saturating_add);
    let _ = writeln!(line, "MEM {:.6} {time_s:.4}", mib(total));
    if wanted.1 {
        for (_, pid, memory) in tick.processes.iter().filter(|(number, ..)| *number != 0) {
            let size = mib(memory.by(backend));
            let _ = writeln!(line, "CHLD {pid} {size:.6} {time_s:.4}");
        }
    }
    if *limit != Some(tick.limit) && (tick.limit.is_some() || limit.is_some()) {
        let text = tick
            .limit
            .map_or("none".to_owned(), |limit| format!("{:.6}", mib(limit)));
        let _ = writeln!(line, "{PREFIX}limit {text} {time_s:.4}");
        *limit = Some(tick.limit);
    }
}

pub fn call(line: &mut String, call: &Call) {
    let _ = writeln!(
        line,
        "FUNC {} {:.4} {:.4} {:.4} {:.4} {}",
        call.function.replace(char::is_whitespace, "_"),
        mib(call.begin.bytes),
        call.begin.time_s,
        mib(call.end.bytes),
        call.end.time_s,
        call.level.unwrap_or(0)
    );
}

/// Parses the values of a `FUNC` line.
pub fn read_call(values: &str) -> Option<Call> {
    let mut words = values.split_ascii_whitespace();
    let function = words.next()?.to_owned();
    let mut point = || {
        Some(Point {
            bytes: bytes_of_mib(words.next()?)?,
            time_s: seconds(words.next()?)?,
        })
    };
    Some(Call {
        function,
        begin: point()?,
        end: point()?,
        level: words.next().and_then(|word| word.parse().ok()),
    })
}

/// Returns `None` if no line is valid in this format.
pub fn read(text: &str) -> Option<Timeline> {
    let mut timeline = Timeline::default();
    let mut children: HashMap<&str, usize> = HashMap::new();
    let (mut n_known, mut n_unknown, mut n_commands) = (0, 0, 0);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (word, values) = line.split_once(' ').unwrap_or((line, ""));
        let parsed = match word {
            "MEM" => memory(values).map(|point| timeline.total.push(point)),
            "CHLD" => child(&mut timeline, &mut children, values),
            "FUNC" => read_call(values).map(|call| timeline.calls.push(call)),
            "CMDLINE" => {
                n_commands += 1;
                timeline.header.command = values.trim_end().to_owned();
                Some(())
            }
            "HEAPTIDE" => heaptide_line(&mut timeline, values),
            _ => None,
        };
        match parsed {
            Some(()) => n_known += 1,
            None => n_unknown += 1,
        }
    }
    if n_known == 0 {
        return None;
    }
    if n_unknown > 0 {
        timeline.damage.push(text::invalid_lines(n_unknown));
    }
    if n_commands > 1 {
        timeline.damage.push(format!(
            "it contains {n_commands} runs, which are shown as one"
        ));
    }
    timeline.total.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
    for process in &mut timeline.processes {
        process.samples.sort_by(|a, b| a.0.total_cmp(&b.0));
        process.began_s = process.samples.first().map(|sample| sample.0);
    }
    timeline.header.started_s = timeline.total.first().map_or(0.0, |point| point.time_s);
    Some(timeline)
}

fn memory(values: &str) -> Option<Point> {
    let mut words = values.split_ascii_whitespace();
    Some(Point {
        bytes: bytes_of_mib(words.next()?)?,
        time_s: seconds(words.next()?)?,
    })
}

fn child<'a>(
    timeline: &mut Timeline,
    children: &mut HashMap<&'a str, usize>,
    values: &'a str,
) -> Option<()> {
    let (pid, values) = values.split_once(' ')?;
    let number: u32 = pid.parse().ok()?;
    let point = memory(values)?;
    let index = *children.entry(pid).or_insert_with(|| {
        timeline.processes.push(Process {
            pid: number,
            ..Process::default()
        });
        timeline.processes.len() - 1
    });
    let memory = Memory {
        resident: point.bytes,
        ..Memory::default()
    };
    timeline.processes[index]
        .samples
        .push((point.time_s, memory));
    Some(())
}

fn heaptide_line(timeline: &mut Timeline, values: &str) -> Option<()> {
    let (word, rest) = values.split_once(' ')?;
    match word {
        "host" => timeline.header.host = Some(unescape(rest)),
        "fact" => timeline.header.facts.extend(fact(rest)),
        "rank" => timeline.header.rank = Some(rest.parse().ok()?),
        // A .dat file has one size per process. The backend only chooses its label.
        "backend" => timeline.header.backend = Backend::parse(rest)?,
        "limit" => {
            let (limit, time) = rest.split_once(' ')?;
            let limit = match limit {
                "none" => None,
                limit => Some(bytes_of_mib(limit)?),
            };
            timeline.limits.push((seconds(time)?, limit));
        }
        "oom" => timeline.n_oom_kills = rest.parse().ok()?,
        "over" => timeline.ending = Some(ending(rest.split_once(' ')?.1)?),
        _ => return None,
    }
    Some(())
}
