//! Changes files at random for tests of their readers: bytes, numbers, blocks, order and length.
//!
//! Captures and snapshots consist of blocks with checksums, and a reader refuses a block whose checksum is wrong. So
//! this module unpacks the blocks, changes their content and packs them again. The change passes the checks and reaches
//! the decoders. One input in four is changed without repair, which tests the checks themselves.
//!
//! The same file and seed always give the same result.

use heaptide_capture::Packer;
use heaptide_capture::area::BlockHead;
use heaptide_capture::wire::checksum;

/// The content of a file, which decides what can be repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// A capture: a header and blocks, each with a checksum.
    Capture,
    /// A heap snapshot: likewise.
    Heap,
    /// Lines of text: a timeline of either format.
    Text,
    /// Bytes without checksums: a capture of memray.
    Plain,
}

/// Pseudo-random numbers (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bf0_3635)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 if the limit is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.number() % (limit.max(1) as u64)) as usize
    }

    pub fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// Returns a changed copy of a file.
pub fn mutate(format: FileFormat, file: &[u8], random: &mut Random) -> Vec<u8> {
    let unrepaired = random.below(4) == 0;
    match format {
        FileFormat::Capture if !unrepaired => capture(file, random),
        FileFormat::Heap if !unrepaired => snapshot(file, random),
        FileFormat::Text => text(file, random),
        _ => {
            let mut bytes = file.to_vec();
            change(&mut bytes, random);
            bytes
        }
    }
}

/// Changes some bytes: usually few, so that most of the file stays valid.
fn change(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) * random.below(3) {
        let at = random.below(bytes.len());
        let end = (at + 1 + random.below(12)).min(bytes.len());
        match random.below(10) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 | 3 if at < bytes.len() => bytes[at] = random.number() as u8,
            4 if at < bytes.len() => bytes[at] = random.one_of(&[0, 1, 0x7f, 0x80, 0xff]),
            // The longest encoding of a number in these formats.
            5 => {
                let end = (at + 10).min(bytes.len());
                let mut large = [0xff; 10];
                large[9] = random.below(3) as u8;
                bytes[at..end].copy_from_slice(&large[10 - (end - at)..]);
            }
            6 => {
                bytes.drain(at..end);
            }
            7 => {
                let part = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, part);
            }
            8 => bytes.truncate(at),
            _ => {
                let words = [
                    0u64,
                    1,
                    0xff,
                    0xffff_ffff,
                    1 << 31,
                    1 << 40,
                    u64::MAX,
                    1 << 63,
                ];
                let word = random.one_of(&words).to_le_bytes();
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&word[..end - at]);
            }
        }
    }
}

/// A header and the blocks after it, unpacked.
struct Blocks<H> {
    header: Vec<u8>,
    blocks: Vec<(H, Vec<u8>)>,
}

impl<H: Clone> Blocks<H> {
    /// Changes the header, one or two blocks, or the list of blocks.
    fn change(&mut self, random: &mut Random, change_head: impl Fn(&mut H, &mut Random)) {
        let n_blocks = self.blocks.len();
        if n_blocks == 0 || random.below(12) == 0 {
            change(&mut self.header, random);
            return;
        }
        for _ in 0..1 + random.below(2) {
            let at = random.below(n_blocks);
            match random.below(16) {
                0 => change_head(&mut self.blocks[at].0, random),
                1 => {
                    let copy = self.blocks[at].clone();
                    let to = random.below(self.blocks.len() + 1);
                    self.blocks.insert(to, copy);
                }
                2 => {
                    let other = random.below(n_blocks);
                    self.blocks.swap(at, other);
                }
                3 if self.blocks.len() == n_blocks && n_blocks > 1 => {
                    self.blocks.remove(at);
                    return;
                }
                _ => change(&mut self.blocks[at].1, random),
            }
        }
    }
}

/// Magic number (8), version (4), length of the fields (4), their checksum (8): the same in captures and snapshots.
const PREFIX_LEN: usize = 24;

/// Divides a file at the end of its header. Returns `None` if it has none.
fn split_header(file: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let len = u32::from_le_bytes(file.get(12..16)?.try_into().ok()?) as usize;
    let end = PREFIX_LEN.checked_add(len)?;
    let header = file.get(..end)?;
    Some((header.to_vec(), &file[end..]))
}

/// Sets length and checksum of a changed header.
fn seal_header(header: &mut [u8]) {
    if header.len() < PREFIX_LEN {
        return;
    }
    let (prefix, fields) = header.split_at_mut(PREFIX_LEN);
    prefix[12..16].copy_from_slice(&(fields.len() as u32).to_le_bytes());
    prefix[16..24].copy_from_slice(&checksum(fields).to_le_bytes());
}

fn unpacked(stored: &[u8], raw_len: usize) -> Vec<u8> {
    if stored.len() == raw_len {
        return stored.to_vec();
    }
    zstd::bulk::decompress(stored, raw_len).unwrap_or_default()
}

fn capture(file: &[u8], random: &mut Random) -> Vec<u8> {
    let Some((header, mut rest)) = split_header(file) else {
        return file.to_vec();
    };
    rest = rest.get(padding(header.len())..).unwrap_or_default();
    let mut file = Blocks {
        header,
        blocks: Vec::new(),
    };
    while let Some(head) = BlockHead::from_bytes(rest) {
        let end = BlockHead::LEN + head.stored_len as usize;
        let Some(stored) = rest.get(BlockHead::LEN..end) else {
            break;
        };
        let payload = unpacked(stored, head.raw_len as usize);
        file.blocks.push((head, payload));
        rest = rest.get(head.area_len() as usize..).unwrap_or_default();
    }
    file.change(random, |head, random| {
        let number = random.one_of(&[0, 1, 2, 7, u32::MAX - 1, u32::MAX]);
        match random.below(6) {
            0 => head.chunk.stream = number,
            1 => head.chunk.number = number,
            2 => head.chunk.sequence = random.number(),
            3 => head.chunk.time = random.number(),
            4 => head.chunk.generation = number,
            _ => (head.n_events, head.last_sequence) = (number, random.number()),
        }
    });
    let mut bytes = file.header;
    seal_header(&mut bytes);
    bytes.resize(bytes.len() + padding(bytes.len()), 0);
    let mut packer = Packer::new();
    for (head, payload) in &file.blocks {
        bytes.extend_from_slice(packer.block(*head, payload));
    }
    // Slots and anything else after the blocks.
    bytes.extend_from_slice(rest);
    bytes
}

fn padding(len: usize) -> usize {
    len.next_multiple_of(8) - len
}

/// The head of a block of a snapshot: tag, raw length, stored length and zero (4 bytes each), checksum (8).
const HEAD_LEN: usize = 24;

fn snapshot(file: &[u8], random: &mut Random) -> Vec<u8> {
    let Some((header, mut rest)) = split_header(file) else {
        return file.to_vec();
    };
    let mut file = Blocks {
        header,
        blocks: Vec::new(),
    };
    let word = |bytes: &[u8], at: usize| {
        let word = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(word))
    };
    while let (Some(tag), Some(raw_len), Some(stored_len)) =
        (word(rest, 0), word(rest, 4), word(rest, 8))
    {
        let end = HEAD_LEN + stored_len as usize;
        let Some(stored) = rest.get(HEAD_LEN..end) else {
            break;
        };
        file.blocks.push((tag, unpacked(stored, raw_len as usize)));
        rest = &rest[end..];
    }
    file.change(random, |tag, random| *tag = random.below(17) as u32);
    let mut bytes = file.header;
    seal_header(&mut bytes);
    for (tag, raw) in &file.blocks {
        let len = (raw.len() as u32).to_le_bytes();
        for word in [tag.to_le_bytes(), len, len, [0; 4]] {
            bytes.extend_from_slice(&word);
        }
        bytes.extend_from_slice(&checksum(raw).to_le_bytes());
        bytes.extend_from_slice(raw);
    }
    bytes
}

/// Numbers that text formats may contain and that readers may not expect.
const ODD_NUMBERS: [&str; 16] = [
    "",
    "-",
    "0",
    "-1",
    "1",
    "1e308",
    "-1e308",
    "1e-300",
    "nan",
    "inf",
    "-inf",
    "4294967296",
    "18446744073709551615",
    "99999999999999999999999999",
    "0x10",
    "\u{fffd}",
];

/// Changes words and lines.
fn text(file: &[u8], random: &mut Random) -> Vec<u8> {
    if random.below(4) == 0 {
        let mut bytes = file.to_vec();
        change(&mut bytes, random);
        return bytes;
    }
    let text = String::from_utf8_lossy(file);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..1 + random.below(4) {
        let at = random.below(lines.len());
        let Some(line) = lines.get(at).cloned() else {
            break;
        };
        match random.below(8) {
            0 => lines.insert(at, line),
            1 => {
                lines.remove(at);
            }
            2 => {
                let other = random.below(lines.len());
                lines.swap(at, other);
            }
            _ => {
                let mut words: Vec<&str> = line.split(' ').collect();
                let word = random.below(words.len());
                match random.below(6) {
                    0 => words.insert(word, random.one_of(&ODD_NUMBERS)),
                    1 => {
                        words.remove(word);
                    }
                    _ => words[word] = random.one_of(&ODD_NUMBERS),
                }
                lines[at] = words.join(" ");
            }
        }
    }
    lines.join("\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{capture_bytes, header, shop};
    use heaptide_capture::Capture;
    use heaptide_capture::heap::{HeapSnapshot, write_heap};

    /// The number of 200 changed files that a reader accepts without damage.
    fn accepted(format: FileFormat, file: &[u8], is_intact: impl Fn(Vec<u8>) -> bool) -> usize {
        let changed = (0..200).map(|seed| mutate(format, file, &mut Random::new(seed)));
        changed.filter(|bytes| is_intact(bytes.clone())).count()
    }

    #[test]
    fn many_changed_captures_pass_all_checksums() {
        let script =
            "alloc a 100 at main:3 > load:7; thread 2 pool; alloc b 50 at work; free a; end 2000";
        let file = capture_bytes(&header(), script);
        let is_intact =
            |bytes| Capture::from_bytes(bytes).is_ok_and(|capture| capture.damage.is_empty());
        assert!(accepted(FileFormat::Capture, &file, is_intact) > 60);
    }

    #[test]
    fn many_changed_snapshots_are_read_to_their_end() {
        let file = write_heap(&shop().finish(), Vec::new()).expect("writing to a vector succeeds");
        let is_intact = |bytes: Vec<u8>| HeapSnapshot::read_from(&bytes[..]).is_ok();
        assert!(accepted(FileFormat::Heap, &file, is_intact) > 20);
    }

    #[test]
    fn the_same_seed_gives_the_same_file() {
        let file = capture_bytes(&header(), "alloc a 100 at main; free a");
        let changed = |seed| mutate(FileFormat::Capture, &file, &mut Random::new(seed));
        assert_eq!(changed(7), changed(7));
        assert_ne!(changed(7), changed(8));
    }
}
