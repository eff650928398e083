//! The heap page: objects, their holders, and the objects that they keep alive.

use std::io::{self, Write};

use heaptide_analysis::heap::Heap;
use heaptide_analysis::heap::diff::HeapDiff;
use heaptide_analysis::heap::explore::{ExploreLimits, explore};

use super::{MAX_BYTES, insert, pack};
use crate::json::explore::explore as data_of;

pub(super) const HEAP: &str = include_str!("../../../../web/dist/heap.html");
/// A page with fewer objects of each kind would be useless.
const MIN_PER_KIND: usize = 2;

/// Writes the page. `diff` compares with an earlier snapshot; `file` is the name of the snapshot.
pub fn heap_page(
    out: &mut dyn Write,
    heap: &Heap,
    diff: Option<&HeapDiff>,
    file: &str,
) -> io::Result<()> {
    let packed = fit(heap, diff, file, MAX_BYTES - HEAP.len())?;
    insert(out, HEAP, &packed)
}

/// Compresses the data. Reduces the number of objects of each kind until the data fits.
fn fit(heap: &Heap, diff: Option<&HeapDiff>, file: &str, max_bytes: usize) -> io::Result<Vec<u8>> {
    let mut limits = ExploreLimits::default();
    loop {
        let page = explore(heap, diff, limits);
        let packed = pack(&data_of(heap, diff, &page, file))?;
        if packed.len().div_ceil(3) * 4 <= max_bytes || limits.per_kind <= MIN_PER_KIND {
            return Ok(packed);
        }
        limits.per_kind /= 2;
        limits.max_objects /= 2;
        limits.max_kinds = limits.max_kinds * 3 / 4;
    }
}
