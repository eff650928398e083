//! Pages: one self-contained file each, without network requests.
//!
//! The pages are built from `web/` and committed under `web/dist`; this module replaces their placeholder with the
//! data. The data is compressed and encoded in base64. So nothing in a capture (a file name, a function name, an
//! argument) can become markup. The page shows it only as text.

pub mod heap;
pub mod jobs;
pub mod lines;

use std::io::{self, BufWriter, Write};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use heaptide_analysis::model::Flame;
use heaptide_analysis::{FlameLimits, FlameTree};
use serde_json::Value;

use crate::json::flame::{FirstView, Sides, flame as write_data};

const FLAME_GRAPH: &str = include_str!("../../../../web/dist/flamegraph.html");
const TABLE: &str = include_str!("../../../../web/dist/table.html");
const DIFF: &str = include_str!("../../../../web/dist/diff.html");
const TIMELINE: &str = include_str!("../../../../web/dist/timeline.html");
pub(crate) const PLOT: &str = include_str!("../../../../web/dist/plot.html");
pub(crate) const GRAPH: &str = include_str!("../../../../web/dist/graph.html");
/// The text that the data replaces. Each page contains it once.
const PLACEHOLDER: &str = "HEAPTIDE-DATA-GOES-HERE";
/// The size limit of a page with its data, for captures of any size: people open, keep and mail pages.
const MAX_BYTES: usize = 5_000_000;
/// A tree with fewer frames would be useless.
const MIN_FRAMES: usize = 64;
/// The compression level; higher levels hardly make files smaller.
const LEVEL: u32 = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    FlameGraph,
    Table,
    Timeline,
}

/// Writes a page with its data.
pub fn page(
    out: &mut dyn Write,
    page: Page,
    tree: &FlameTree,
    limits: FlameLimits,
    first: FirstView,
) -> io::Result<()> {
    let template = match page {
        Page::FlameGraph => FLAME_GRAPH,
        Page::Table => TABLE,
        Page::Timeline => TIMELINE,
    };
    fill(out, template, tree, limits, &|data, flame| {
        write_data(data, flame, first, None)
    })
}

/// Writes the page of a comparison, whose tree has both sides.
pub fn diff_page(
    out: &mut dyn Write,
    tree: &FlameTree,
    limits: FlameLimits,
    first: FirstView,
    sides: Sides,
) -> io::Result<()> {
    fill(out, DIFF, tree, limits, &|data, flame| {
        write_data(data, flame, first, Some(sides))
    })
}

/// Writes a page with data of any form.
pub(crate) fn embed(out: &mut dyn Write, template: &str, data: &Value) -> io::Result<()> {
    insert(out, template, &pack(data)?)
}

/// Compresses data.
fn pack(data: &Value) -> io::Result<Vec<u8>> {
    let mut packer = DeflateEncoder::new(Vec::new(), Compression::new(LEVEL));
    serde_json::to_writer(&mut packer, data)?;
    packer.finish()
}

/// Writes a page with compressed data in place of its placeholder.
fn insert(out: &mut dyn Write, template: &str, packed: &[u8]) -> io::Result<()> {
    let (before, after) = template
        .split_once(PLACEHOLDER)
        .ok_or_else(|| io::Error::other("the page of this build has no placeholder for data"))?;
    out.write_all(before.as_bytes())?;
    out.write_all(base64(packed).as_bytes())?;
    out.write_all(after.as_bytes())
}

/// Writes the data of a tree.
type WriteData<'a> = &'a dyn Fn(&mut dyn Write, &Flame) -> io::Result<()>;

fn fill(
    out: &mut dyn Write,
    template: &str,
    tree: &FlameTree,
    limits: FlameLimits,
    write: WriteData,
) -> io::Result<()> {
    let max_bytes = MAX_BYTES - template.len();
    let packed = fit(&|limits| tree.cut(limits), limits, max_bytes, write)?;
    insert(out, template, &packed)
}

/// Cuts a tree until its compressed data fits in `max_bytes`, and returns the data. The size of a frame depends on names,
/// threads and allocators, so the limit is found by trial. A tree that is too large is cut again, in proportion.
fn fit(
    cut: &dyn Fn(FlameLimits) -> Flame,
    mut limits: FlameLimits,
    max_bytes: usize,
    write: WriteData,
) -> io::Result<Vec<u8>> {
    loop {
        let flame = cut(limits);
        let packer = DeflateEncoder::new(Vec::new(), Compression::new(LEVEL));
        // A buffer is needed, because the data is written number by number.
        let mut data = BufWriter::with_capacity(1 << 16, packer);
        write(&mut data, &flame)?;
        let packed = data.into_inner()?.finish()?;
        let size = packed.len().div_ceil(3) * 4;
        let n_frames = flame.nodes.len();
        if size <= max_bytes || n_frames <= MIN_FRAMES {
            return Ok(packed);
        }
        // A little less than would fit if all frames had the same size.
        let share = 0.85 * max_bytes as f64 / size as f64;
        let scaled = |number: usize| (number as f64 * share) as usize;
        limits.max_frames = scaled(n_frames.min(limits.max_frames));
        limits.max_lives = scaled(flame.lives.entries.len().min(limits.max_lives));
        limits.max_source_bytes = scaled(limits.max_source_bytes);
    }
}

/// Encodes bytes in base64 (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            if at <= group.len() {
                let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize];
                text.push(char::from(letter));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptide_analysis::model::Quality;
    use heaptide_analysis::model::flame::{FlameContent, FlameLives, FlameNode, Timeline};

    fn flame_of(nodes: Vec<FlameNode>) -> Flame {
        Flame {
            start_unix_ns: 0,
            end_unix_ns: 0,
            peak_bytes: 0,
            peak_ns: None,
            processes: Vec::new(),
            threads: Vec::new(),
            jobs: Vec::new(),
            job_spans: Vec::new(),
            n_more_jobs: 0,
            timeline: Timeline::default(),
            texts: Vec::new(),
            locations: Vec::new(),
            owners: Vec::new(),
            nodes,
            origins: Vec::new(),
            own: Vec::new(),
            lives: FlameLives::default(),
            findings: Vec::new(),
            min_share: 0.0,
            quality: Quality::default(),
        }
    }

    const PAGES: [&str; 9] = [
        FLAME_GRAPH,
        TABLE,
        DIFF,
        TIMELINE,
        PLOT,
        GRAPH,
        heap::HEAP,
        jobs::JOBS,
        lines::LINES,
    ];
    /// The limit of a page without data.
    const MAX_PAGE_BYTES: usize = 500_000;

    #[test]
    fn pages_are_small_and_have_one_placeholder() {
        for template in PAGES {
            assert!(template.len() <= MAX_PAGE_BYTES, "{}", template.len());
            assert_eq!(template.matches(PLACEHOLDER).count(), 1);
        }
    }

    #[test]
    fn pages_allow_no_connection_and_no_script_but_their_own() {
        for template in PAGES {
            assert!(template.contains("default-src 'none'"));
            assert!(template.contains("script-src 'sha256-"));
            assert!(!template.contains("src=\"http"));
            assert!(!template.contains("href=\"http"));
        }
    }

    #[test]
    fn too_large_data_is_cut_until_it_fits() {
        let requested = std::cell::RefCell::new(Vec::new());
        let cut = |limits: FlameLimits| {
            requested.borrow_mut().push(limits.max_frames);
            let node = FlameNode {
                parent: 0,
                content: FlameContent::NoFrames,
            };
            flame_of(vec![node; limits.max_frames.min(10_000)])
        };
        // Each frame has four bytes that cannot be compressed.
        let write = |out: &mut dyn Write, flame: &Flame| {
            let mut state = 1u32;
            (0..flame.nodes.len()).try_for_each(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let noise = state.rotate_left(16) ^ state.wrapping_mul(0x9e37_79b9);
                out.write_all(&noise.to_le_bytes())
            })
        };
        let packed = fit(&cut, FlameLimits::default(), 20_000, &write).expect("written");
        assert!(packed.len() * 4 / 3 <= 20_000, "{}", packed.len());
        assert!(packed.len() * 4 / 3 > 10_000, "{}", packed.len());
        assert_eq!(requested.borrow().len(), 2, "{requested:?}");
    }

    #[test]
    fn base64_follows_the_standard() {
        let pairs = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ];
        for (bytes, text) in pairs {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
