//! From an event to bytes in the thread's chunk.
//!
//! An event is written as up to four records — switch, time, change of stack, the event itself — and counts only
//! when all of them are there: then the slot's `committed` moves. A kill in between loses this one event.
//!
//! **Order between threads.** One shared word names the thread that recorded last and carries a number. A thread that
//! finds its own name there just goes on writing. One that does not takes the next number, puts its name there and
//! writes a switch record. A release is recorded before it happens and an allocation after, so when two threads pass a
//! block on through the allocator, the allocator's own synchronisation makes the second see the first one's name: causally
//! related events always come out in order, and a program with one thread pays a load and a comparison.
//!
//! Runs on: the thread whose event it is. Allocates: never. Locks: when a chunk is full. During fork/exit: the order
//! word is wiped in a child, which sends every thread into `switch`, where it ends.

pub(crate) mod clock;
pub(crate) mod codes;
pub(crate) mod sampler;
pub(crate) mod stack;
pub mod threads;
pub(crate) mod tls;

use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use heaptide_capture::area::ChunkHead;
use heaptide_capture::event::MAX_RECORD_BYTES;
use heaptide_capture::wire::Writer;
use heaptide_capture::{Allocator, Frame, Lost, Tables};

use crate::cpython::interpreter;
use crate::file::slot::Filled;
use crate::host::sys::KeepErrno;
use crate::native;
use crate::record::threads::{NO_TOKEN, ThreadState};
use crate::session::{self, ORDER, TOKEN_MASK};

/// Room that an event with an unchanged stack needs, with much to spare.
const EVENT_ROOM: usize = 512;

/// The unwritten rest of a chunk, with the tables that its records are written by.
pub struct Room<'a> {
    tables: &'a mut Tables,
    out: Writer<'a>,
    len: usize,
}

impl<'a> Room<'a> {
    /// # Safety
    /// The bytes from `position` to `end` belong to the caller alone.
    #[inline(always)]
    unsafe fn new(tables: &'a mut Tables, position: *mut u8, end: *mut u8) -> Self {
        let len = end as usize - position as usize;
        // SAFETY: as the caller says.
        let out = Writer::new(unsafe { std::slice::from_raw_parts_mut(position, len) });
        Room { tables, out, len }
    }

    #[inline(always)]
    pub fn left(&self) -> usize {
        self.len - self.out.len()
    }

    #[inline(always)]
    pub fn pop(&mut self, n_frames: usize) {
        self.tables.write_pop(&mut self.out, n_frames);
    }

    #[inline(always)]
    pub fn push(&mut self, frame: Frame) {
        self.tables.write_push(&mut self.out, frame);
    }
}

/// A block was handed out. The calling thread's `state` is busy. `below`: a frame that stands behind the innermost one for
/// this event alone.
///
/// # Safety
/// `state` comes from `threads::enter` on this thread.
#[inline(always)]
pub unsafe fn alloc(
    state: *mut ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
    below: Option<Frame>,
) {
    // SAFETY: a busy state is used by its thread alone.
    let state = unsafe { &mut *state };
    // SAFETY: as the caller says.
    if !unsafe { begin(state) } {
        return;
    }
    loop {
        let Some(slot) = state.slot else { return };
        let start = state.position;
        // SAFETY: from the position to the slot's end the chunk is this thread's.
        let mut room = unsafe { Room::new(&mut state.tables, start, slot.end()) };
        let synced = if state.native.is_null() {
            match interpreter::layout() {
                // SAFETY: `interpreter::thread_state` gives this thread's own state or 0, under a layout that was checked.
                Some(layout) => unsafe {
                    state
                        .stack
                        .sync(layout, interpreter::thread_state(), &mut room)
                },
                None => true,
            }
        } else {
            // SAFETY: both stacks are this thread's own, and nobody else refers to them.
            unsafe { native::mixed::sync(&mut *state.native, &mut state.stack, &mut room) }
        };
        let needed = if below.is_some() { 3 } else { 1 } * MAX_RECORD_BYTES;
        if synced && room.left() >= needed {
            if let Some(frame) = below {
                room.push(frame);
            }
            room.tables
                .write_alloc(&mut room.out, allocator, size as u64, address as u64);
            if below.is_some() {
                room.pop(1);
            }
            let n_bytes = room.out.len();
            // SAFETY: the writer stays within the room.
            unsafe { commit(state, start.add(n_bytes)) };
            return;
        }
        // Nothing of this attempt is committed; the new chunk writes the whole stack.
        if !roll(state) {
            return;
        }
    }
}

/// Records one allocation if the sampler takes it.
///
/// # Safety
/// As for [`alloc`].
#[inline(always)]
pub unsafe fn alloc_if_sampled(
    state: *mut ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
    below: Option<Frame>,
) {
    // SAFETY: a busy state is used by its thread alone; the rest is as the caller promises.
    unsafe {
        if (*state).sampler.takes(size) {
            alloc_sampled(state, allocator, size, address, below);
        }
    }
}

/// Kept out of line: few allocations are sampled.
///
/// # Safety
/// As for [`alloc`].
#[cold]
#[inline(never)]
unsafe fn alloc_sampled(
    state: *mut ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
    below: Option<Frame>,
) {
    if sampler::follow(address) {
        // SAFETY: the caller's promise is that of `alloc`.
        unsafe { alloc(state, allocator, size, address, below) };
    } else {
        session::count_lost(Lost::SampleTableFull, 1);
    }
}

/// A block is about to be released. The calling thread's `state` is busy.
///
/// # Safety
/// `state` comes from `threads::enter` on this thread.
#[inline(always)]
pub unsafe fn free(state: *mut ThreadState, address: usize) {
    // SAFETY: as the caller says; the room that `begin` leaves is enough for any one record.
    unsafe { one_record(state, |tables, out| tables.write_free(out, address as u64)) };
}

/// An address range is about to be released.
///
/// # Safety
/// As [`free`].
pub unsafe fn free_range(state: *mut ThreadState, address: usize, length: usize) {
    // SAFETY: as `free`.
    unsafe {
        one_record(state, |tables, out| {
            tables.write_free_range(out, address as u64, length as u64)
        })
    };
}

/// The release that this thread recorded last did not happen.
///
/// # Safety
/// As [`free`].
pub unsafe fn unfree(state: *mut ThreadState) {
    // SAFETY: as `free`.
    unsafe { one_record(state, |tables, out| tables.write_unfree(out)) };
}

#[inline(always)]
unsafe fn one_record(state: *mut ThreadState, write: impl FnOnce(&mut Tables, &mut Writer)) {
    // SAFETY: a busy state is used by its thread alone.
    let state = unsafe { &mut *state };
    // SAFETY: as the caller says.
    if !unsafe { begin(state) } {
        return;
    }
    let Some(slot) = state.slot else { return };
    let start = state.position;
    // SAFETY: from the position to the slot's end the chunk is this thread's.
    let mut room = unsafe { Room::new(&mut state.tables, start, slot.end()) };
    write(room.tables, &mut room.out);
    let n_bytes = room.out.len();
    // SAFETY: the writer stays within the room.
    unsafe { commit(state, start.add(n_bytes)) };
}

/// Makes sure that this thread may write, has room, and that the clock is right.
#[inline(always)]
unsafe fn begin(state: &mut ThreadState) -> bool {
    let word = ORDER.word.load(Ordering::Acquire);
    if word & TOKEN_MASK != state.token && !switch(state) {
        return false;
    }
    if state.position >= state.limit && !roll(state) {
        return false;
    }
    let now = clock::ticks() >> session::tick_shift();
    // Counters of two processors may differ by a hair; time never runs backwards in a stream.
    if now > state.tables.time() {
        // SAFETY: the position lies `EVENT_ROOM` before the slot's end, or more.
        let mut room = unsafe {
            Room::new(
                &mut state.tables,
                state.position,
                state.position.add(MAX_RECORD_BYTES),
            )
        };
        room.tables.write_time(&mut room.out, now);
        let n_bytes = room.out.len();
        // SAFETY: within the slot.
        state.position = unsafe { state.position.add(n_bytes) };
    }
    true
}

/// # Safety
/// `position` lies within the state's slot.
#[inline(always)]
unsafe fn commit(state: &mut ThreadState, position: *mut u8) {
    state.position = position;
    state.n_events += 1;
    if let Some(slot) = state.slot {
        slot.commit(position as usize - slot.payload() as usize);
    }
}

/// Another thread recorded last, or this one has not joined the session: takes the next number.
#[cold]
#[inline(never)]
fn switch(state: &mut ThreadState) -> bool {
    let _errno = KeepErrno::now();
    let mut word = ORDER.word.load(Ordering::Acquire);
    if word == 0 {
        // Nothing is recorded any more, and the session may be gone.
        return false;
    }
    let Some(session) = session::current() else {
        return false;
    };
    if state.token == NO_TOKEN || state.session != session.number {
        join(state, session);
    }
    let token = u64::from(state.index) + 1;
    let sequence = loop {
        if word == 0 {
            return false;
        }
        let sequence = (word >> session::TOKEN_BITS) + 1;
        let next = sequence << session::TOKEN_BITS | token;
        match ORDER
            .word
            .compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => break sequence,
            Err(now) => word = now,
        }
    };
    state.token = token;
    if state.position >= state.limit {
        // The chunk that begins now carries the number in its head.
        let time = state.tables.time();
        state
            .tables
            .reset(sequence, time.max(clock::ticks() >> session::tick_shift()));
        return roll(state);
    }
    // SAFETY: the position lies `EVENT_ROOM` before the slot's end, or more.
    let mut room = unsafe {
        Room::new(
            &mut state.tables,
            state.position,
            state.position.add(MAX_RECORD_BYTES),
        )
    };
    room.tables.write_switch(&mut room.out, sequence);
    let n_bytes = room.out.len();
    // SAFETY: within the slot.
    state.position = unsafe { state.position.add(n_bytes) };
    true
}

fn join(state: &mut ThreadState, session: &session::Session) {
    state.session = session.number;
    state.stream = session.next_stream();
    state.n_chunks = 0;
    state.n_events = 0;
    state.slot = None;
    state.position = null_mut();
    state.limit = null_mut();
    state.tables.reset(0, 0);
    state.stack.forget();
    state.native = null_mut();
    if session.config.mode.native {
        if state.native_memory.is_null() {
            state.native_memory = native::new_stack();
        }
        state.native = state.native_memory;
        // SAFETY: memory of this state's own, or null.
        match unsafe { state.native.as_mut() } {
            Some(native) => native.join_session(),
            None => session::count_lost(Lost::CutNativeStack, 1),
        }
    }
    // SAFETY: the reference is a state's.
    session.announce_thread(state.stream, unsafe {
        crate::record::threads::os_id(state)
    });
}

/// Leaves the full chunk to the keeper and begins the next one.
#[cold]
#[inline(never)]
pub fn roll(state: &mut ThreadState) -> bool {
    let _errno = KeepErrno::now();
    let Some(session) = session::current() else {
        return false;
    };
    hand_over(state, session);
    let (sequence, time) = (state.tables.sequence(), state.tables.time());
    let head = ChunkHead {
        stream: state.stream,
        number: state.n_chunks,
        sequence,
        time,
        generation: 0,
    };
    let Some(slot) = session.store.take(head) else {
        state.token = NO_TOKEN;
        return false;
    };
    state.n_chunks += 1;
    state.n_events = 0;
    state.slot = Some(slot);
    state.position = slot.payload();
    // SAFETY: a slot is much longer than EVENT_ROOM.
    state.limit = unsafe { slot.end().sub(EVENT_ROOM) };
    state.tables.reset(sequence, time);
    state.stack.forget();
    // SAFETY: memory of this state's own, or null.
    if let Some(native) = unsafe { state.native.as_mut() } {
        native.forget();
    }
    true
}

/// Gives the thread's slot back to the store, filled or empty.
pub fn hand_over(state: &mut ThreadState, session: &session::Session) {
    if let Some(slot) = state.slot.take() {
        session.store.leave(Filled {
            slot,
            n_events: state.n_events,
            last_sequence: state.tables.sequence(),
        });
    }
    state.position = null_mut();
    state.limit = null_mut();
}
