//! The heap page: objects, their holders, and the objects that they keep alive.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use heaptide_analysis::heap::Heap;
use heaptide_analysis::heap::diff::HeapDiff;
use heaptide_analysis::heap::explore::{ExploreLimits, explore};

use super::{LEVEL, MAX_BYTES, PLACEHOLDER, base64};
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
    let (before, after) = HEAP
        .split_once(PLACEHOLDER)
        .ok_or_else(|| io::Error::other("the page of this build has no placeholder for data"))?;
    let packed = fit(heap, diff, file, MAX_BYTES - HEAP.len())?;
    out.write_all(before.as_bytes())?;
    out.write_all(base64(&packed).as_bytes())?;
    out.write_all(after.as_bytes())
}

/// Compresses the data. Reduces the number of objects of each kind until the data fits.
fn fit(heap: &Heap, diff: Option<&HeapDiff>, file: &str, max_bytes: usize) -> io::Result<Vec<u8>> {
    let mut limits = ExploreLimits::default();
    loop {
        let page = explore(heap, diff, limits);
        let mut packer = DeflateEncoder::new(Vec::new(), Compression::new(LEVEL));
        serde_json::to_writer(&mut packer, &data_of(heap, diff, &page, file))?;
        let packed = packer.finish()?;
        if packed.len().div_ceil(3) * 4 <= max_bytes || limits.per_kind <= MIN_PER_KIND {
            return Ok(packed);
        }
        limits.per_kind /= 2;
        limits.max_objects /= 2;
        limits.max_kinds = limits.max_kinds * 3 / 4;
    }
}
