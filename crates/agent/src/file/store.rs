//! The capture file while it is being written: a pool of slots in memory shared with the file, followed by blocks.
//!
//! ```text
//!           take                 full               pack, write block
//!  free ──────────► being filled ──────► waiting ──────────────────────► free
//! ```
//! A thread fills its slot without any lock. When the slot is full, the thread hands it to the keeper and takes another one.
//! If the keeper lags and the pool is empty, the thread packs one slot itself: slower, but no thread waits and no event is
//! lost. When the recording stops normally, blocks move into the space of the slots, and the file becomes shorter.
//!
//! Only the slots are mapped. The disk space of a slot is reserved before its first use, so a full disk is an error from
//! `fallocate` or `pwrite`, never a signal. Unused slots are holes, so a process that is killed early leaves a small file.
//! If another process truncates the file, [`bus_error`] replaces the mapping. From then on nothing is written, because the
//! file would contain only holes.
//!
//! Runs on: any thread (taking slots), keeper (packing). Allocates: from the program's heap, bypassing the hooks. Locks: `packer`,
//! `tail` and `pool`, in this order. During fork/exit: a child forgets the whole store.

mod shrink;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use heaptide_capture::area::{
    AREA_ALIGN, BlockHead, CHECKPOINT_STREAM, ChunkHead, ExtentHead, PaddingHead, REGISTRY_STREAM,
    align_up,
};
use heaptide_capture::header;
use heaptide_capture::pack::Packer;

use crate::file::compaction::WrittenBlock;
use crate::file::keeper;
use crate::file::slot::{Filled, Size, Slot};
use crate::file::stop_mark::StopMarkMemory;
use crate::host::locks::lock;
use crate::host::own_file::OwnFile;
use crate::host::{bus_error, sys};

/// Slots that may wait for the keeper before threads help with packing.
const MAX_WAITING: usize = 24;
/// The keeper is woken early when this many slots wait.
const WAKE_AT: usize = 3;

fn is_event_stream(stream: u32) -> bool {
    stream != REGISTRY_STREAM && stream != CHECKPOINT_STREAM
}

pub struct Store {
    file: OwnFile,
    path: PathBuf,
    pool: Mutex<Pool>,
    tail: Mutex<Tail>,
    packer: Mutex<Packer>,
    /// Number of slots that wait for the keeper.
    pub n_waiting: AtomicUsize,
    /// Whether writing to the file has failed.
    failed: AtomicBool,
    page_len: u64,
    /// Offset of the first area, after the header.
    first_area: u64,
    /// In the first extent, which stays mapped as long as the store exists.
    stop_mark: Option<StopMarkMemory>,
}

#[derive(Default)]
struct Pool {
    free_small: Vec<Slot>,
    free_large: Vec<Slot>,
    /// Slots without disk space.
    unreserved: Vec<Unreserved>,
    waiting: VecDeque<Filled>,
    extents: Vec<Extent>,
}

impl Pool {
    fn free(&mut self, size: Size) -> &mut Vec<Slot> {
        match size {
            Size::Small => &mut self.free_small,
            Size::Large => &mut self.free_large,
        }
    }
}

/// A slot that no thread may touch until its disk space is reserved.
struct Unreserved {
    slot: Slot,
    /// Offset of the slot in the file.
    offset: u64,
}

struct Extent {
    memory: *mut u8,
    offset: u64,
    area_len: u64,
}

impl Extent {
    fn bounds(&self) -> (u64, u64) {
        (self.offset, self.offset + self.area_len)
    }
}

// SAFETY: only the owner of a slot accesses the slot's memory, and a slot has one owner at a time.
unsafe impl Send for Extent {}

struct Tail {
    /// Offset of the next area.
    offset: u64,
    /// Blocks in the file, sorted by offset.
    blocks: Vec<WrittenBlock>,
    /// Bytes of event blocks among them.
    event_bytes: u64,
}

impl Store {
    /// Takes over the file `path`, which has a header of `header_len` bytes, and reserves its first slots.
    pub fn new(file: File, path: &Path, header_len: usize) -> io::Result<Store> {
        let file = OwnFile::new(file)?;
        file.lock();
        let first_area = align_up(header_len as u64, AREA_ALIGN);
        let mut store = Store {
            file,
            path: path.to_owned(),
            pool: Mutex::default(),
            tail: Mutex::new(Tail {
                offset: first_area,
                blocks: Vec::new(),
                event_bytes: 0,
            }),
            packer: Mutex::new(Packer::for_payloads_up_to(Size::Large.slot_len())),
            n_waiting: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            page_len: sys::page_len(),
            first_area,
            stop_mark: None,
        };
        // Two slots: for the registry and for the thread that starts the recording.
        store.reserve(Size::Small)?;
        store.reserve(Size::Small)?;
        let first = lock(&store.pool)
            .extents
            .first()
            .map(|extent| extent.memory);
        // SAFETY: `grow` mapped this extent, with a page before its slots.
        store.stop_mark = first.map(|extent| unsafe { StopMarkMemory::of_extent(extent) });
        Ok(store)
    }

    /// The descriptor, for a change of the file. Opens the file again if the program has closed the descriptor.
    fn fd(&self, tail: &Tail) -> io::Result<RawFd> {
        if self.has_failed() {
            return Err(io::Error::other("an earlier write failed"));
        }
        let (fd, len) = match self.file.fd_and_len() {
            Err(error) if keeper::is_this_thread() => return Err(error),
            Err(_) => {
                self.open_again()?;
                self.file.fd_and_len()?
            }
            open => open?,
        };
        // Until the first area is written, the file ends with its header, which may be shorter than `first_area`.
        if len < tail.offset && tail.offset != self.first_area {
            return Err(io::Error::other("another process truncated it"));
        }
        if bus_error::has_faulted() {
            return Err(io::Error::other("its disk failed (SIGBUS)"));
        }
        Ok(fd)
    }

    fn open_again(&self) -> io::Result<()> {
        self.file.open_again(&self.path).map_err(|error| {
            let reason = "the program has closed its descriptor, and it cannot be opened again";
            io::Error::other(format!("{reason} ({error})"))
        })?;
        keeper::open_files_again();
        Ok(())
    }

    /// Whether the descriptor is closed and this is the keeper: only a thread of the program may open the file again.
    fn is_closed_for_keeper(&self) -> bool {
        keeper::is_this_thread() && self.file.fd().is_err()
    }

    /// Abandons the recording if an access to a slot has failed.
    pub fn check_mappings(&self) {
        if bus_error::has_faulted() {
            let checked = self.fd(&lock(&self.tail));
            if let Err(error) = checked {
                self.fail(&error);
            }
        }
    }

    /// Raises the version in the header, before the first record that an earlier reader would misread. No checksum covers
    /// it. Returns `false` if the file cannot be written; then the recording has failed.
    pub fn raise_version(&self) -> bool {
        let tail = lock(&self.tail);
        let version = header::VERSION.to_le_bytes();
        let written = self
            .fd(&tail)
            .and_then(|fd| sys::write_all_at(fd, &version, header::VERSION_AT));
        drop(tail);
        if let Err(error) = &written {
            self.fail(error);
        }
        written.is_ok()
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Takes an empty slot for `chunk`. Returns `None` if no slot is empty and the file cannot be written.
    pub fn take(&self, chunk: ChunkHead) -> Option<Slot> {
        let size = Size::of_chunk(chunk.number);
        loop {
            let mut pool = lock(&self.pool);
            if let Some(slot) = pool.free(size).pop() {
                drop(pool);
                slot.begin(chunk);
                return Some(slot);
            }
            let keeper_lags = pool.waiting.len() >= MAX_WAITING;
            drop(pool);
            if self.has_failed() {
                return None;
            }
            let gained = if keeper_lags {
                self.pack_one()
            } else {
                self.reserve_or_pack(size)
            };
            if let Err(error) = gained {
                if !self.is_closed_for_keeper() {
                    self.fail(&error);
                }
                return None;
            }
        }
    }

    /// Queues a filled slot for the keeper.
    pub fn enqueue(&self, filled: Filled) {
        lock(&self.pool).waiting.push_back(filled);
        if self.n_waiting.fetch_add(1, Ordering::Relaxed) + 1 == WAKE_AT {
            keeper::wake();
        }
    }

    /// Returns a slot to the pool. Its content is no longer needed.
    fn put_back(&self, slot: Slot) {
        slot.set_in_use(false);
        lock(&self.pool).free(slot.size).push(slot);
    }

    /// Packs all slots that wait. Abandons the recording if the file cannot be written.
    pub fn pack_waiting(&self) {
        while !self.has_failed() && self.n_waiting.load(Ordering::Relaxed) > 0 {
            if let Err(error) = self.pack_one() {
                if self.is_closed_for_keeper() {
                    return;
                }
                self.fail(&error);
            }
        }
    }

    /// Packs the slot that has waited longest into a block. Does nothing if no slot waits.
    fn pack_one(&self) -> io::Result<()> {
        let mut packer = lock(&self.packer);
        let Some(filled) = lock(&self.pool).waiting.pop_front() else {
            return Ok(());
        };
        self.n_waiting.fetch_sub(1, Ordering::Relaxed);
        let written = match filled.slot.read_head() {
            Some(head) if head.committed > 0 => {
                let len = (head.committed as usize).min(filled.slot.payload_len());
                // SAFETY: `len` bytes from the payload's start lie within the slot, which this thread owns since it took the
                // slot out of the queue.
                let payload = unsafe { std::slice::from_raw_parts(filled.slot.payload(), len) };
                let head = BlockHead {
                    chunk: head.chunk,
                    n_events: filled.n_events,
                    last_sequence: filled.last_sequence,
                    ..BlockHead::default()
                };
                self.append(head, packer.block(head, payload))
            }
            _ => Ok(()),
        };
        match written {
            // The slot may be reused only now that its block is in the file.
            Ok(()) => self.put_back(filled.slot),
            Err(_) => {
                // The slot itself is in the file and stays readable there.
                lock(&self.pool).waiting.push_front(filled);
                self.n_waiting.fetch_add(1, Ordering::Relaxed);
            }
        }
        written
    }

    /// Writes a chunk that does not come from a slot. Returns `false` if the file cannot be written.
    pub fn write_block(&self, head: BlockHead, payload: &[u8]) -> bool {
        let written = self.append(head, lock(&self.packer).block(head, payload));
        if let Err(error) = &written {
            self.fail(error);
        }
        written.is_ok()
    }

    fn append(&self, head: BlockHead, block: &[u8]) -> io::Result<()> {
        if block.is_empty() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let mut tail = lock(&self.tail);
        let (offset, len) = (tail.offset, block.len() as u64);
        sys::write_all_at(self.fd(&tail)?, block, offset)?;
        let ChunkHead {
            stream, generation, ..
        } = head.chunk;
        tail.blocks.push(WrittenBlock {
            offset,
            len,
            stream,
            generation,
            last_sequence: head.last_sequence,
        });
        tail.offset = offset + len;
        if is_event_stream(stream) {
            tail.event_bytes += len;
        }
        Ok(())
    }

    /// Bytes of all event blocks.
    pub fn event_bytes(&self) -> u64 {
        lock(&self.tail).event_bytes
    }

    /// Another handle of the file, for reading it while it is written.
    pub fn reopen(&self) -> io::Result<File> {
        self.file.duplicate()
    }

    /// Adds a slot to the pool. If the disk has no room for it, packs a slot that waits instead.
    fn reserve_or_pack(&self, size: Size) -> io::Result<()> {
        let reserved = self.reserve(size);
        if reserved.is_err() && self.n_waiting.load(Ordering::Relaxed) > 0 {
            return self.pack_one();
        }
        reserved
    }

    /// Reserves the disk space of one slot that was never used, and adds the slot to the pool.
    fn reserve(&self, size: Size) -> io::Result<()> {
        let next = loop {
            let mut pool = lock(&self.pool);
            let of_size = |next: &Unreserved| next.slot.size == size;
            if let Some(i) = pool.unreserved.iter().rposition(of_size) {
                break pool.unreserved.swap_remove(i);
            }
            drop(pool);
            self.grow(size)?;
        };
        let tail = lock(&self.tail);
        let reserved = self
            .fd(&tail)
            .and_then(|fd| sys::reserve(fd, next.offset, size.slot_len() as u64));
        let mut pool = lock(&self.pool);
        match &reserved {
            Ok(()) => pool.free(size).push(next.slot),
            Err(_) => pool.unreserved.push(next),
        }
        reserved
    }

    /// Adds an extent of slots without disk space at the end of the file.
    fn grow(&self, size: Size) -> io::Result<()> {
        let (n_slots, slot_len) = (size.slots_per_extent(), size.slot_len());
        let area_len = self.page_len + (n_slots * slot_len) as u64;
        let mut tail = lock(&self.tail);
        let mut offset = align_up(tail.offset, self.page_len);
        let mut gap = offset - tail.offset;
        if gap > 0 && gap < PaddingHead::LEN as u64 {
            offset += self.page_len;
            gap += self.page_len;
        }
        let fd = self.fd(&tail)?;
        sys::reserve(fd, offset, self.page_len)?;
        sys::set_len(fd, offset + area_len)?;
        let memory = sys::map_file(fd, offset, area_len as usize)?;
        if gap > 0 {
            let padding = PaddingHead { area_len: gap };
            sys::write_all_at(fd, &padding.to_bytes(), tail.offset)?;
        }
        let head = ExtentHead {
            area_len,
            slots_offset: self.page_len as u32,
            slot_len: slot_len as u32,
            n_slots: n_slots as u32,
        };
        sys::write_all_at(fd, &head.to_bytes(), offset)?;
        tail.offset = offset + area_len;
        bus_error::add_range(memory, area_len as usize);
        drop(tail);
        let mut pool = lock(&self.pool);
        for i in (0..n_slots).rev() {
            // SAFETY: the mapping has one page for the head and `n_slots` slots after it.
            let head = unsafe { memory.add(self.page_len as usize + i * slot_len) };
            let slot = NonNull::new(head).map(|head| Slot { head, size });
            pool.unreserved.extend(slot.map(|slot| Unreserved {
                slot,
                offset: offset + self.page_len + (i * slot_len) as u64,
            }));
        }
        pool.extents.push(Extent {
            memory,
            offset,
            area_len,
        });
        Ok(())
    }

    /// Abandons the recording. Later calls do nothing.
    fn fail(&self, error: &io::Error) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            crate::session::abandon(&format!("could not write the capture: {error}"));
        }
    }

    /// The mark for a recording that fails.
    pub fn stop_mark(&self) -> Option<StopMarkMemory> {
        self.stop_mark
    }

    /// Bytes of the program's address space that the extents occupy.
    pub fn mapped_bytes(&self) -> u64 {
        lock(&self.pool)
            .extents
            .iter()
            .map(|extent| extent.area_len)
            .sum()
    }

    /// The address ranges of the extents.
    pub fn mapped_ranges(&self) -> Vec<Range<u64>> {
        let pool = lock(&self.pool);
        let ranges = pool.extents.iter().map(|extent| {
            let start = extent.memory as u64;
            start..start + extent.area_len
        });
        ranges.collect()
    }

    /// Closes the parent's file in a forked child, without unlocking it.
    pub fn close_after_fork(&self) {
        self.file.close_after_fork();
    }

    /// Unmaps all slots.
    ///
    /// # Safety
    /// No thread holds a slot any more.
    pub unsafe fn unmap(&self) {
        let mut pool = lock(&self.pool);
        pool.free_small.clear();
        pool.free_large.clear();
        pool.unreserved.clear();
        for extent in pool.extents.drain(..) {
            bus_error::remove_range(extent.memory);
            // SAFETY: `grow` made this mapping, and the caller promises that no thread uses a slot in it.
            unsafe { sys::unmap(extent.memory, extent.area_len as usize) };
        }
    }
}
