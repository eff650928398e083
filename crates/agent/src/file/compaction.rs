//! Moving blocks together in a file that somebody may read, or that may be cut off by a kill, at any instant.
//!
//! ```text
//! before   header │ extent │ b1 │ dropped │ b2 │ extent │ b3 │
//! after    header │ extent │ b1 │ b2 │ b3 │ padding │ extent │        extents that are in use cannot be moved
//! ```
//! A block is copied before its old place is given up, its head is written last, and what lies between two blocks is
//! padding at any time. A copy that would overlap its original is made by way of the end of the file.

use std::io;
use std::os::fd::RawFd;

use heaptide_capture::area::{BlockHead, PaddingHead};

use crate::host::sys;

const MIN_PADDING: u64 = PaddingHead::LEN as u64;

/// A block in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    pub offset: u64,
    /// Of the whole area.
    pub len: u64,
    pub stream: u32,
    pub generation: u32,
    pub last_sequence: u64,
}

/// Start and end of something that must stay where it is.
pub type Obstacle = (u64, u64);

/// Moves `blocks`, which stand in the order of their offsets, down to `floor` and around `obstacles`. Returns where the
/// last one ends. `file_end` is where the file has nothing any more.
pub fn slide(
    fd: RawFd,
    blocks: &mut [BlockPlace],
    obstacles: &[Obstacle],
    floor: u64,
    file_end: u64,
) -> io::Result<u64> {
    let mut place = floor;
    let mut bytes = Vec::new();
    for block in blocks {
        place = next_place(place, block.len, obstacles);
        if place < block.offset {
            bytes.resize(block.len as usize, 0);
            sys::read_exact_at(fd, &mut bytes, block.offset)?;
            if place + block.len > block.offset {
                sys::write_all_at(fd, &bytes, file_end)?;
            }
            pad(fd, place + block.len, block.offset, obstacles)?;
            let (head, payload) = bytes.split_at(BlockHead::LEN);
            sys::write_all_at(fd, payload, place + BlockHead::LEN as u64)?;
            sys::write_all_at(fd, head, place)?;
            pad(fd, place + block.len, block.offset + block.len, obstacles)?;
            block.offset = place;
        }
        place = block.offset + block.len;
    }
    Ok(place)
}

/// The first place from `place` on where `len` bytes lie between the obstacles, and leave no gap before the next one
/// that is too small for a padding head.
fn next_place(mut place: u64, len: u64, obstacles: &[Obstacle]) -> u64 {
    for &(start, end) in obstacles {
        let end_of_block = place + len;
        let fits = end_of_block == start || end_of_block + MIN_PADDING <= start;
        if place < end && !fits {
            place = end;
        }
    }
    place
}

/// Fills everything between `from` and `to` that is not an obstacle with padding. A gap too small for a head stays as
/// it is: it exists only until the next block has moved.
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
    fn file_of(name: &str, lens: &[(usize, u64)]) -> (File, Vec<BlockPlace>, u64) {
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
        let (mut offset, mut places) = (4096, Vec::new());
        let mut packer = Packer::new();
        for (number, &(len, hole)) in lens.iter().enumerate() {
            offset += hole;
            let payload: Vec<u8> = (0..len).map(|i| (i * 31 + number) as u8).collect();
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
            places.push(BlockPlace {
                offset,
                len: block.len() as u64,
                stream: 1,
                generation: 0,
                last_sequence: 0,
            });
            offset += block.len() as u64;
        }
        (file, places, offset)
    }

    fn check(name: &str, lens: &[(usize, u64)], obstacles: &[Obstacle]) -> (Vec<BlockPlace>, u64) {
        let (file, mut places, end) = file_of(name, lens);
        let fd = file.as_raw_fd();
        let originals: Vec<Vec<u8>> = places.iter().map(|place| read(fd, place)).collect();
        let new_end = slide(fd, &mut places, obstacles, 4096, end).unwrap();
        for (place, original) in places.iter().zip(&originals) {
            assert_eq!(&read(fd, place), original);
        }
        (places, new_end)
    }

    fn read(fd: RawFd, place: &BlockPlace) -> Vec<u8> {
        let mut bytes = vec![0; place.len as usize];
        sys::read_exact_at(fd, &mut bytes, place.offset).unwrap();
        bytes
    }

    #[test]
    fn blocks_stand_one_behind_the_other_afterwards_whatever_lay_between_them() {
        let (places, end) = check(
            "slide",
            &[(500, 0), (3000, 8), (100, 16), (9000, 80_000), (10, 0)],
            &[],
        );
        let total: u64 = places.iter().map(|place| place.len).sum();
        assert_eq!(end, 4096 + total);
    }

    #[test]
    fn obstacles_stay_and_gaps_before_them_can_hold_a_padding_head() {
        let obstacle = (8192, 16_384);
        let (places, _) = check(
            "obstacles",
            &[(700, 20_000), (3200, 0), (600, 0), (600, 5_000)],
            &[obstacle],
        );
        let mut last_before = 4096;
        for place in &places {
            assert!(place.offset + place.len <= obstacle.0 || place.offset >= obstacle.1);
            if place.offset < obstacle.0 {
                last_before = place.offset + place.len;
            }
        }
        let gap = obstacle.0 - last_before;
        assert!(gap == 0 || gap >= MIN_PADDING, "{gap}");
    }
}
