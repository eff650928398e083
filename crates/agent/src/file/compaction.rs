//! Moves blocks together in a file. At any instant, another process may read the file, or a kill may interrupt the move.
//!
//! ```text
//! before   header │ extent │ b1 │ dropped │ b2 │ extent │ b3 │
//! after    header │ extent │ b1 │ b2 │ b3 │ padding │ extent │        extents in use must not move
//! ```
//! A block is copied before its old bytes are overwritten, its head is written last, and the bytes between two blocks are
//! padding at any time. If a copy would overlap its original, the block is first copied to the end of the file.

use std::io;
use std::os::fd::RawFd;

use heaptide_capture::area::{BlockHead, PaddingHead};

use crate::host::sys;

const MIN_PADDING: u64 = PaddingHead::LEN as u64;

/// A block in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenBlock {
    pub offset: u64,
    /// Length of the whole area.
    pub len: u64,
    pub stream: u32,
    pub generation: u32,
    pub last_sequence: u64,
}

/// Start and end of an area that must not move.
pub type Obstacle = (u64, u64);

/// Moves `blocks`, sorted by offset, down to `floor` and around `obstacles`. Returns the end of the last block. From
/// `file_end` on the file is empty.
pub fn slide(
    fd: RawFd,
    blocks: &mut [WrittenBlock],
    obstacles: &[Obstacle],
    floor: u64,
    file_end: u64,
) -> io::Result<u64> {
    let mut position = floor;
    let mut bytes = Vec::new();
    for block in blocks {
        position = next_position(position, block.len, obstacles);
        if position < block.offset {
            bytes.resize(block.len as usize, 0);
            sys::read_exact_at(fd, &mut bytes, block.offset)?;
            if position + block.len > block.offset {
                sys::write_all_at(fd, &bytes, file_end)?;
            }
            pad(fd, position + block.len, block.offset, obstacles)?;
            let (head, payload) = bytes.split_at(BlockHead::LEN);
            sys::write_all_at(fd, payload, position + BlockHead::LEN as u64)?;
            sys::write_all_at(fd, head, position)?;
            pad(
                fd,
                position + block.len,
                block.offset + block.len,
                obstacles,
            )?;
            block.offset = position;
        }
        position = block.offset + block.len;
    }
    Ok(position)
}

/// Returns the first position from `position` on where `len` bytes fit between the obstacles. A gap before the next
/// obstacle must have room for a padding head.
fn next_position(mut position: u64, len: u64, obstacles: &[Obstacle]) -> u64 {
    for &(start, end) in obstacles {
        let end_of_block = position + len;
        let fits = end_of_block == start || end_of_block + MIN_PADDING <= start;
        if position < end && !fits {
            position = end;
        }
    }
    position
}

/// Fills the bytes from `from` to `to`, except obstacles, with padding. A gap too small for a padding head stays unchanged:
/// it exists only until the next block moves.
pub fn pad(fd: RawFd, mut from: u64, to: u64, obstacles: &[Obstacle]) -> io::Result<()> {
    for &(start, end) in obstacles.iter().chain(&[(to, to)]) {
        let until = start.min(to);
        if until >= from + MIN_PADDING {
            let head = PaddingHead {
                area_len: until - from,
            };
            sys::write_all_at(fd, &head.to_bytes(), from)?;
        }
        from = from.max(end.min(to));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptide_capture::area::ChunkHead;
    use heaptide_capture::pack::Packer;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    /// A file of blocks with the given payload lengths, and a hole of `hole` bytes before each.
    fn file_of(name: &str, lens: &[(usize, u64)]) -> (File, Vec<WrittenBlock>, u64) {
        let path = std::env::temp_dir().join(format!("heaptide-{name}-{}", std::process::id()));
        let options = &mut std::fs::OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(path).unwrap();
        let (mut offset, mut blocks) = (4096, Vec::new());
        let mut packer = Packer::new();
        for (number, &(len, hole)) in lens.iter().enumerate() {
            offset += hole;
            // Bytes that cannot be compressed, so that a block is about as long as its payload.
            let random = |i: usize| ((i * i + number) as u64 * 0x9e37_79b9) >> 24;
            let payload: Vec<u8> = (1..=len).map(|i| random(i) as u8).collect();
            let chunk = ChunkHead {
                number: number as u32,
                ..ChunkHead::default()
            };
            let block = packer.block(
                BlockHead {
                    chunk,
                    ..BlockHead::default()
                },
                &payload,
            );
            sys::write_all_at(file.as_raw_fd(), block, offset).unwrap();
            blocks.push(WrittenBlock {
                offset,
                len: block.len() as u64,
                stream: 1,
                generation: 0,
                last_sequence: 0,
            });
            offset += block.len() as u64;
        }
        (file, blocks, offset)
    }

    fn check(
        name: &str,
        lens: &[(usize, u64)],
        obstacles: &[Obstacle],
    ) -> (Vec<WrittenBlock>, u64) {
        let (file, mut blocks, end) = file_of(name, lens);
        let fd = file.as_raw_fd();
        let originals: Vec<Vec<u8>> = blocks.iter().map(|block| read(fd, block)).collect();
        let new_end = slide(fd, &mut blocks, obstacles, 4096, end).unwrap();
        for (block, original) in blocks.iter().zip(&originals) {
            assert_eq!(&read(fd, block), original);
        }
        (blocks, new_end)
    }

    fn read(fd: RawFd, block: &WrittenBlock) -> Vec<u8> {
        let mut bytes = vec![0; block.len as usize];
        sys::read_exact_at(fd, &mut bytes, block.offset).unwrap();
        bytes
    }

    #[test]
    fn blocks_are_contiguous_after_the_move() {
        let (blocks, end) = check(
            "slide",
            &[(500, 0), (3000, 8), (100, 16), (9000, 80_000), (10, 0)],
            &[],
        );
        let total: u64 = blocks.iter().map(|block| block.len).sum();
        assert_eq!(end, 4096 + total);
    }

    #[test]
    fn blocks_avoid_obstacles_and_leave_room_for_a_padding_head() {
        let obstacle = (8192, 16_384);
        let (blocks, _) = check(
            "obstacles",
            &[(700, 20_000), (3200, 0), (600, 0), (600, 5_000)],
            &[obstacle],
        );
        let mut last_before = 4096;
        for block in &blocks {
            assert!(block.offset + block.len <= obstacle.0 || block.offset >= obstacle.1);
            if block.offset < obstacle.0 {
                last_before = block.offset + block.len;
            }
        }
        let gap = obstacle.0 - last_before;
        assert!(gap == 0 || gap >= MIN_PADDING, "{gap}");
        let n_before = blocks.iter().filter(|it| it.offset < obstacle.0).count();
        assert!((1..blocks.len()).contains(&n_before), "{blocks:?}");
    }

    #[test]
    fn block_that_would_leave_too_small_a_gap_lies_after_the_obstacle() {
        let obstacles = [(8192, 16_384), (40_000, 44_000)];
        for (position, len, expected) in [
            (4096, 4096, 4096),
            (4096, 4096 - MIN_PADDING, 4096),
            (4096, 4096 - MIN_PADDING + 1, 16_384),
            (4096, 4095, 16_384),
            (4096, 4097, 16_384),
            (9000, 16, 16_384),
            (9000, 40_000 - 16_384, 16_384),
            (9000, 40_000 - 16_384 - 1, 44_000),
            (50_000, 1 << 20, 50_000),
        ] {
            let found = next_position(position, len, &obstacles);
            assert_eq!(found, expected, "{len} bytes from {position}");
        }
    }
}
