//! Paths from roots, one per line.

use std::io::{self, Write};

use heaptide_analysis::heap::Heap;
use heaptide_analysis::heap::paths::{self, ShortestPaths};

/// Paths, numbered as in heapy.
pub fn paths(out: &mut dyn Write, heap: &Heap, shortest: &ShortestPaths) -> io::Result<()> {
    for (at, path) in shortest.paths.iter().enumerate() {
        writeln!(out, "{at:>2}: {}", heap.path_text(path))?;
    }
    match shortest.n_paths - shortest.paths.len() as u64 {
        0 => Ok(()),
        1 => writeln!(out, "<... 1 more path ...>"),
        n_more => writeln!(out, "<... {n_more} more paths ...>"),
    }
}

/// One path, an object per line: its reference, its description and its retained size. Then the allocation stack of the
/// last object, if known, innermost first. In a long path, one line has the number of objects left out in the middle.
pub fn path(out: &mut dyn Write, heap: &Heap, path: &[u32]) -> io::Result<()> {
    let hidden = paths::hidden(path);
    let mut steps = heap.path_steps(&path[..hidden.start]);
    if !hidden.is_empty() {
        steps.extend(heap.references(&path[hidden.end - 1..]));
    }
    let shown = path[..hidden.start].iter().chain(&path[hidden.end..]);
    let width = steps.iter().map(|step| step.chars().count()).max();
    let width = width.unwrap_or(0).min(60);
    for (depth, (step, &object)) in steps.iter().zip(shown).enumerate() {
        if depth == hidden.start {
            let indent = 2 * depth;
            writeln!(out, "{:indent$}<... {} more objects ...>", "", hidden.len())?;
        }
        let pad = width.saturating_sub(step.chars().count());
        writeln!(
            out,
            "{:indent$}{step}{:pad$}  {} at {}, retains {} bytes",
            "",
            "",
            heap.kind(object),
            heap.address(object),
            heap.retained()[object as usize],
            indent = 2 * depth,
        )?;
    }
    let frames = path.last().map(|&last| heap.allocation(last).rev());
    for (at, frame) in frames.into_iter().flatten().enumerate() {
        let word = if at == 0 {
            "allocated at"
        } else {
            "called from"
        };
        writeln!(
            out,
            "  {word} {}:{} in {}",
            frame.file, frame.line, frame.function
        )?;
    }
    Ok(())
}
