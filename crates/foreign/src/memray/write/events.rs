//! A file with all allocations. The caller passes the events in the order in which they happened.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use heaptide_capture::Allocator;

use super::encode::Encoder;
use super::{Preface, StackNode, code_of, function};

/// Number of remembered addresses; see `super::super::records`.
const N_RECENT: usize = 15;
const PYMALLOC_FREE: u8 = 1;
const FREE: u8 = 5;
const MUNMAP: u8 = 15;

pub struct EventWriter<'a, W: Write> {
    out: W,
    stacks: &'a [StackNode],
    depths: Vec<u32>,
    /// The stack of each thread as written so far.
    written: HashMap<u64, Option<usize>>,
    thread: Option<u64>,
    /// Live blocks of Python's allocators. In memray's format, a free of one of them is a record of another type.
    of_python: HashSet<u64>,
    recent: [u64; N_RECENT + 1],
    next_recent: usize,
    address: u64,
    record: Encoder,
    path: Vec<usize>,
}

impl<'a, W: Write> EventWriter<'a, W> {
    /// Writes everything before the first event.
    pub fn begin(mut out: W, preface: &Preface<'a>) -> io::Result<Self> {
        preface.write_header(&mut out, false)?;
        preface.write_codes(&mut out)?;
        preface.write_threads(&mut out)?;
        let mut depths: Vec<u32> = Vec::with_capacity(preface.stacks.len());
        for node in preface.stacks {
            let above = node.parent.and_then(|parent| depths.get(parent));
            depths.push(above.map_or(1, |depth| depth + 1));
        }
        Ok(EventWriter {
            out,
            stacks: preface.stacks,
            depths,
            written: HashMap::new(),
            thread: None,
            of_python: HashSet::new(),
            recent: [0; N_RECENT + 1],
            next_recent: 0,
            address: 0,
            record: Encoder::default(),
            path: Vec::new(),
        })
    }

    pub fn alloc(
        &mut self,
        thread: u64,
        stack: Option<usize>,
        allocator: Allocator,
        address: u64,
        size: u64,
    ) -> io::Result<()> {
        self.switch_to(thread);
        self.walk_to(thread, stack);
        let function = function(allocator);
        if function <= 4 {
            self.of_python.insert(address);
        }
        self.event(function, address);
        self.record.number(size);
        self.flush()
    }

    pub fn free(&mut self, thread: u64, address: u64) -> io::Result<()> {
        self.switch_to(thread);
        let function = match self.of_python.remove(&address) {
            true => PYMALLOC_FREE,
            false => FREE,
        };
        self.event(function, address);
        self.flush()
    }

    pub fn free_range(&mut self, thread: u64, address: u64, length: u64) -> io::Result<()> {
        self.switch_to(thread);
        self.event(MUNMAP, address);
        self.record.number(length);
        self.flush()
    }

    pub fn resident(&mut self, elapsed_ms: u64, bytes: u64) -> io::Result<()> {
        self.record.u8(0x02);
        self.record.number(bytes);
        self.record.number(elapsed_ms);
        self.flush()
    }

    /// Writes the end of the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.record.u8(0x01);
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(self.record.bytes())?;
        self.record.clear();
        Ok(())
    }

    fn switch_to(&mut self, thread: u64) {
        if self.thread.replace(thread) != Some(thread) {
            self.record.thread(thread);
        }
    }

    /// Pops the frames that the thread's last stack does not share with `stack`, and pushes the others.
    fn walk_to(&mut self, thread: u64, stack: Option<usize>) {
        let written = self.written.insert(thread, stack).flatten();
        if written == stack {
            return;
        }
        let depth = |at: Option<usize>| {
            let depth = at.and_then(|at| self.depths.get(at));
            depth.copied().unwrap_or(0)
        };
        let parent = |at: Option<usize>| self.stacks.get(at?)?.parent;
        let (mut old, mut new) = (written, stack);
        let mut n_pops = 0;
        self.path.clear();
        while old != new {
            if depth(old) >= depth(new) {
                old = parent(old);
                n_pops += 1;
            } else {
                self.path.extend(new);
                new = parent(new);
            }
        }
        while n_pops > 0 {
            let n_frames = n_pops.min(16u8.into());
            self.record.u8(0x10 | (n_frames - 1) as u8);
            n_pops -= n_frames;
        }
        let mut is_root = depth(new) == 0;
        for &node in self.path.iter().rev() {
            let line = self.stacks.get(node).map_or(0, |node| node.line);
            self.record
                .u8(0x40 | u8::from(std::mem::take(&mut is_root)));
            self.record.number(code_of(line));
            self.record.signed(0);
        }
    }

    /// Begins a record: its tag, and the address unless it is one of the last ones.
    fn event(&mut self, function: u8, address: u64) {
        let eighth = address >> 3;
        let position = |slot: usize| self.next_recent.wrapping_sub(1 + slot) % (N_RECENT + 1);
        let slot = (0..N_RECENT).find(|&slot| self.recent[position(slot)] == eighth);
        let short = if function < 8 { function } else { 0 };
        self.record
            .u8(0x80 | (slot.unwrap_or(N_RECENT) as u8) << 3 | short);
        if slot.is_none() {
            self.record.signed(eighth.wrapping_sub(self.address) as i64);
            self.address = eighth;
            self.recent[self.next_recent] = eighth;
            self.next_recent = (self.next_recent + 1) % (N_RECENT + 1);
        }
        if short == 0 {
            self.record.u8(function);
        }
    }
}
