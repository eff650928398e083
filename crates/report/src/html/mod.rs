//! Pages: one self-contained file each, which never asks a network for anything.
//!
//! The pages are built from `web/` and committed under `web/dist`; here the data is put into the place that they leave for
//! it. It is packed and written in an alphabet that has no meaning in HTML, so nothing in a capture — a file's name, a
//! function's, an argument — can become markup. The page itself only ever shows it as text.

pub mod lines;

use std::io::{self, BufWriter, Write};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use heaptide_analysis::model::Flame;

use crate::json::flame::{FirstView, Sides, flame as write_data};

const FLAME_GRAPH: &str = include_str!("../../../../web/dist/flamegraph.html");
const TABLE: &str = include_str!("../../../../web/dist/table.html");
const DIFF: &str = include_str!("../../../../web/dist/diff.html");
const TIMELINE: &str = include_str!("../../../../web/dist/timeline.html");
/// Where the data belongs. Once in each page.
const PLACE: &str = "HEAPTIDE-DATA-GOES-HERE";
/// Of the compressor: beyond this, files hardly get smaller.
const LEVEL: u32 = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    FlameGraph,
    Table,
    Timeline,
}

/// Writes a page with its data.
pub fn page(out: &mut dyn Write, page: Page, flame: &Flame, first: FirstView) -> io::Result<()> {
    let template = match page {
        Page::FlameGraph => FLAME_GRAPH,
        Page::Table => TABLE,
        Page::Timeline => TIMELINE,
    };
    fill(out, template, &mut |data| {
        write_data(data, flame, first, None)
    })
}

/// Writes the page of a comparison, whose tree is that of both sides.
pub fn diff_page(
    out: &mut dyn Write,
    flame: &Flame,
    first: FirstView,
    sides: Sides,
) -> io::Result<()> {
    fill(out, DIFF, &mut |data| {
        write_data(data, flame, first, Some(sides))
    })
}

fn fill(
    out: &mut dyn Write,
    template: &str,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let (before, behind) = template
        .split_once(PLACE)
        .ok_or_else(|| io::Error::other("this build's page has no place for data"))?;
    let packer = DeflateEncoder::new(Vec::new(), Compression::new(LEVEL));
    // The writer of data writes a number at a time.
    let mut data = BufWriter::with_capacity(1 << 16, packer);
    write(&mut data)?;
    let packed = data.into_inner()?.finish()?;
    out.write_all(before.as_bytes())?;
    out.write_all(base64(&packed).as_bytes())?;
    out.write_all(behind.as_bytes())
}

/// Bytes in the 64 letters of RFC 4648.
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

    /// Pages alone; data comes on top.
    const MAX_PAGE_BYTES: usize = 500_000;

    #[test]
    fn pages_are_small_and_have_one_place_for_data() {
        for template in [FLAME_GRAPH, TABLE, DIFF, TIMELINE] {
            assert!(template.len() <= MAX_PAGE_BYTES, "{}", template.len());
            assert_eq!(template.matches(PLACE).count(), 1);
        }
    }

    #[test]
    fn pages_allow_no_connection_and_no_script_but_their_own() {
        for template in [FLAME_GRAPH, TABLE, DIFF, TIMELINE] {
            assert!(template.contains("default-src 'none'"));
            assert!(template.contains("script-src 'sha256-"));
            assert!(!template.contains("src=\"http"));
            assert!(!template.contains("href=\"http"));
        }
    }

    #[test]
    fn bytes_are_written_in_64_letters() {
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
