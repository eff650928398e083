//! Leak suspects and waste as sentences: the objects, their location, the evidence, and advice.

use std::io::{self, Write};

use heaptide_analysis::heap::Heap;
use heaptide_analysis::heap::suspects::{Shape, Suspect, Suspects};
use heaptide_analysis::heap::waste::{Waste, WasteCategory, WasteReport};

use super::{More, percent};
use crate::units;

pub fn suspects(out: &mut dyn Write, heap: &Heap, all: &Suspects) -> io::Result<()> {
    if all.suspects.is_empty() {
        return writeln!(
            out,
            "No suspects: no object holds a large part of the {} that are not program code.",
            units::size(all.bytes)
        );
    }
    for (at, suspect) in all.suspects.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}. {}", at + 1, headline(heap, all, suspect))?;
        for line in evidence(heap, suspect) {
            writeln!(out, "   {line}")?;
        }
        writeln!(out, "   {}", advice(suspect))?;
    }
    Ok(())
}

/// One sentence, the same in texts, pages and JSON.
pub fn headline(heap: &Heap, all: &Suspects, suspect: &Suspect) -> String {
    let size = units::size(suspect.bytes);
    let share = percent(suspect.bytes, all.bytes);
    let what = match (suspect.shape, suspect.point) {
        (_, None) => "Garbage that no root reaches and the collector has not freed".to_owned(),
        (Shape::Cycle, Some(_)) => "gc.garbage keeps objects that could not be freed".to_owned(),
        (shape, Some(point)) => {
            let kind = heap.kind(point).trim_end_matches(" (no owner)");
            let pile = suspect.piles.first();
            let pile = pile.filter(|pile| 2 * pile.bytes >= suspect.bytes && pile.count > 1);
            let many = match pile {
                Some(pile) => format!("{} × {}", units::count(pile.count), pile.kind),
                None => format!("{} objects", units::count(suspect.n_items)),
            };
            let kept = match shape {
                Shape::Closure => "kept by variables of a function that outlives its call",
                Shape::Traceback => "kept by an exception and its traceback",
                Shape::LruCache => "kept by a function's lru_cache",
                Shape::Frame => "kept by a variable of a function that is still running",
                Shape::Container | Shape::Cycle | Shape::Interned | Shape::Chain => "accumulate",
            };
            // With a cell or a traceback on the path, the holder has this shape; otherwise its items have it.
            let is_below = |kind: &str| suspect.path.iter().any(|&step| heap.kind(step) == kind);
            match (shape, suspect.n_items) {
                (Shape::Closure, 2..) if !is_below("types.CellType") => {
                    format!("{many} in a {kind} keep the variables of their closures")
                }
                (Shape::Traceback, 2..) if !is_below("types.TracebackType") => {
                    format!(
                        "{many} in a {kind} keep their tracebacks and the variables of the frames"
                    )
                }
                (Shape::Chain, n_links) => {
                    format!("{} × {kind} are linked in a chain", units::count(n_links))
                }
                (Shape::Container | Shape::Interned, 0 | 1) => format!("One {kind} is large"),
                (Shape::Interned, _) => {
                    format!("{many} accumulate in the table of interned strings")
                }
                (Shape::Container, _) => format!("{many} accumulate in a {kind}"),
                (_, 0 | 1) => format!("A {kind} is {kept}"),
                (_, _) => format!("{many} in a {kind} are {kept}"),
            }
        }
    };
    format!("{what}: {size}, {share}% of the heap without program code")
}

/// The holder of the objects, their kinds, and their allocation sites.
pub fn evidence(heap: &Heap, suspect: &Suspect) -> Vec<String> {
    let mut lines = Vec::new();
    if !suspect.path.is_empty() {
        lines.push(format!("held by  {}", heap.path_text(&suspect.path)));
    }
    if !suspect.is_sole_holder {
        lines.push("         others also refer to these objects".to_owned());
    }
    for (at, pile) in suspect.piles.iter().enumerate() {
        let label = if at == 0 { "of which" } else { "        " };
        lines.push(format!(
            "{label} {} × {}, {}",
            units::count(pile.count),
            pile.kind,
            units::size(pile.bytes)
        ));
    }
    for (at, site) in suspect.sites.iter().enumerate() {
        let label = if at == 0 { "made at " } else { "        " };
        lines.push(format!(
            "{label} {}:{} in {}, {}",
            site.file,
            site.line,
            site.function,
            units::size(site.bytes)
        ));
    }
    lines
}

pub fn advice(suspect: &Suspect) -> &'static str {
    match suspect.shape {
        Shape::Container => "limit its size, or remove items that are no longer needed",
        Shape::Chain => {
            "drop the reference to its first object, or cut the chain where it is no longer needed"
        }
        Shape::Closure => {
            "do not keep the function, or pass the data as an argument instead of closing over it"
        }
        Shape::Traceback => {
            "keep str(error) or traceback.format_exc() instead of the exception, or set error.__traceback__ to None"
        }
        Shape::LruCache => "give lru_cache a maxsize, or call cache_clear() after each job",
        Shape::Cycle => {
            "call gc.collect(), keep the collector enabled, and break the cycle: a weakref back, or a close() instead of __del__"
        }
        Shape::Frame => "delete the variable after its last use, or let the function return",
        Shape::Interned => {
            "do not intern strings made from data (sys.intern(), names in exec(), setattr()): they stay until the process exits"
        }
    }
}

pub fn waste(
    out: &mut dyn Write,
    heap: &Heap,
    report: &WasteReport,
    n_rows: usize,
    more: More,
) -> io::Result<()> {
    let whole = heap.snapshot.total_bytes();
    let sum: u64 = report
        .rows
        .iter()
        .map(|row| row.bytes)
        .fold(0, u64::saturating_add);
    writeln!(
        out,
        "{} of {} are wasted, {}.",
        units::size(sum),
        units::size(whole),
        units::percentage(units::percent(sum, whole))
    )?;
    writeln!(out, "    Wasted     Count  What")?;
    let n_shown = if n_rows == 0 { usize::MAX } else { n_rows };
    for row in report.rows.iter().take(n_shown) {
        writeln!(
            out,
            "{:>10} {:>9}  {}",
            units::size(row.bytes),
            units::count(row.count),
            sentence(row)
        )?;
    }
    let n_more = report.rows.len().saturating_sub(n_shown);
    if n_more > 0 {
        writeln!(out, "{}", more.rows(n_more))?;
    }
    if !report.has_values {
        writeln!(
            out,
            "Duplicate texts are not listed: this snapshot has no values. `heaptide heap take --values` records them."
        )?;
    }
    Ok(())
}

/// The sentence of a row.
pub fn sentence(row: &Waste) -> String {
    // The owner of a dict matters only in tables of types.
    let what = row.what.replace(" (no owner)", "");
    match row.category {
        WasteCategory::DuplicateText => format!("copies of {what}: intern them, or share one"),
        WasteCategory::SpareList => {
            format!("unused capacity in {what}: use a tuple, or build it at once")
        }
        WasteCategory::SparseDict => {
            format!("slots of removed keys in {what}: copy it with dict()")
        }
        WasteCategory::SparseSet => {
            format!("slots of removed items in {what}: copy it with set()")
        }
        WasteCategory::Empty => format!("empty: {what}: create it with the first item"),
        WasteCategory::NoSlots => {
            format!("instances of {what} with a dict: use __slots__")
        }
    }
}
