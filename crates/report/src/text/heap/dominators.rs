//! The dominator tree as indented lines, the largest branches first.

use std::io::{self, Write};

use heaptide_analysis::heap::Heap;
use heaptide_analysis::heap::tree::Branch;

use super::percent;
use crate::units;

/// Writes the chosen branches. Where objects are left out, a line has their number.
pub fn dominators(out: &mut dyn Write, heap: &Heap, branches: &[Branch]) -> io::Result<()> {
    let whole = heap.snapshot.total_bytes();
    writeln!(
        out,
        "Dominator tree of {} objects. Total size = {whole} bytes.",
        heap.n_objects()
    )?;
    writeln!(out, "  Retained   %      Size  Object")?;
    for branch in branches {
        let indent = 2 * branch.depth as usize;
        match branch.object {
            Some(object) => writeln!(
                out,
                "{:>10} {:>3} {:>9}  {:indent$}{}",
                units::size(branch.retained),
                percent(branch.retained, whole),
                units::size(heap.bytes(object)),
                "",
                heap.brief(object)
            )?,
            None => writeln!(
                out,
                "{:>10} {:>3} {:>9}  {:indent$}{} more",
                units::size(branch.retained),
                percent(branch.retained, whole),
                "",
                "",
                branch.n_objects
            )?,
        }
    }
    Ok(())
}
