//! A line for each allocation and free, after the lines, stacks and threads that they refer to. Fields are separated by tabs.
//!
//! ```text
//! line    function  file  line  p for Python, n for native      numbered from 0
//! stack   number of the calling stack or -  number of the line  numbered from 0
//! thread  number  thread ID  name
//! rss     milliseconds  bytes
//! alloc   milliseconds  thread  address  bytes  allocator  stack or -
//! free    milliseconds  thread  address
//! unmap   milliseconds  thread  address  bytes
//! ```

use std::fmt::Display;
use std::io::{self, Write};

use heaptide_analysis::events::{Change, Event};
use heaptide_analysis::model::{Reading, StackModel};

/// A thread: its number in events, the ID of the operating system, and its name.
pub type Thread<'a> = (u32, u64, &'a str);

/// Writes everything before the events.
pub fn preface<'a>(
    out: &mut dyn Write,
    model: &StackModel,
    threads: impl Iterator<Item = Thread<'a>>,
) -> io::Result<()> {
    for at in &model.locations {
        let origin = if at.is_native() { 'n' } else { 'p' };
        let (function, file) = (field(&at.function), field(&at.file));
        writeln!(out, "line\t{function}\t{file}\t{}\t{origin}", at.line)?;
    }
    for node in &model.stacks {
        writeln!(out, "stack\t{}\t{}", or_dash(node.parent), node.location)?;
    }
    for (number, os_id, name) in threads {
        writeln!(out, "thread\t{number}\t{os_id}\t{}", field(name))?;
    }
    Ok(())
}

pub fn resident(out: &mut dyn Write, sample: Reading) -> io::Result<()> {
    let milliseconds = sample.elapsed_ns / 1_000_000;
    writeln!(out, "rss\t{milliseconds}\t{}", sample.bytes)
}

pub fn event(out: &mut dyn Write, event: Event) -> io::Result<()> {
    let (time, thread) = (event.elapsed_ns / 1_000_000, event.stream);
    let address = event.address;
    match event.change {
        Change::Alloc {
            size,
            allocator,
            stack,
        } => {
            let (name, stack) = (allocator.name(), or_dash(stack));
            writeln!(
                out,
                "alloc\t{time}\t{thread}\t{address}\t{size}\t{name}\t{stack}"
            )
        }
        Change::Free => writeln!(out, "free\t{time}\t{thread}\t{address}"),
        Change::FreeRange { length } => {
            writeln!(out, "unmap\t{time}\t{thread}\t{address}\t{length}")
        }
    }
}

fn or_dash(number: Option<impl Display>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// A name on one line, without separators.
fn field(text: &str) -> String {
    text.replace(['\t', '\n', '\r'], " ")
}
