//! Writes an event as bytes into the calling thread's chunk.
//!
//! An event consists of up to five records: thread switch, time, change of job, change of stack, and the event itself. The slot's
//! `committed` moves only after all of them are written, so a kill in between loses this one event.
//!
//! **Order between threads.** One shared word, the *order word*, names the thread that recorded last and holds a sequence
//! number. A thread that finds its own name there continues to write. Any other thread takes the next number, stores its
//! name and writes a switch record. A release is recorded before it happens and an allocation after it. So when a block
//! passes from one thread to another through the allocator, the allocator's own synchronisation makes the second thread see
//! the first one's name. Causally related events are therefore always in order, and a program with one thread needs only a
//! load and a comparison.
//!
//! Runs on: the thread whose event it is. Allocates: never. Locks: when a chunk is full. During fork/exit: the kernel
//! wipes the order word in a child, so the next event of the child enters `switch`, which records nothing.

pub(crate) mod adoption;
pub(crate) mod clock;
pub(crate) mod codes;
pub mod job_marks;
pub(crate) mod own_blocks;
pub(crate) mod releases;
pub(crate) mod sampler;
pub(crate) mod stack;
pub mod threads;
pub(crate) mod tls;

use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use heaptide_capture::area::ChunkHead;
use heaptide_capture::event::MAX_RECORD_BYTES;
use heaptide_capture::wire::Writer;
use heaptide_capture::{Allocator, Frame, Tables};

use crate::cpython::interpreter;
use crate::file::slot::Filled;
use crate::hooks::{EXACT, SAMPLED};
use crate::host::signals;
use crate::host::sys::KeepErrno;
use crate::native;
use crate::record::threads::{NO_TOKEN, ThreadState};
use crate::session::{self, ORDER, TOKEN_MASK};

/// More bytes than any event with an unchanged stack needs.
const EVENT_ROOM: usize = 512;

/// The unwritten rest of a chunk, with the tables that encode its records.
pub(crate) struct Room<'a> {
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
        // SAFETY: the caller promises that only it uses these bytes.
        let out = Writer::new(unsafe { std::slice::from_raw_parts_mut(position, len) });
        Room { tables, out, len }
    }

    #[inline(always)]
    pub fn left(&self) -> usize {
        self.len - self.out.len()
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self, n_frames: usize) {
        self.tables.write_pop(&mut self.out, n_frames);
    }

    #[inline(always)]
    pub fn push(&mut self, frame: Frame) {
        self.tables.write_push(&mut self.out, frame);
    }
}

/// Records one allocation, through a hook of the class `CLASS`: `EXACT` or `SAMPLED`. `below` is an additional innermost
/// frame for this event alone.
///
/// # Safety
/// `state` comes from `threads::enter` on this thread.
#[inline(always)]
pub(crate) unsafe fn alloc<const CLASS: u8>(
    pointer: *mut ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
    below: Option<Frame>,
) {
    // SAFETY: `enter` marked the state busy, and a busy state is used by its thread alone.
    let state = unsafe { &mut *pointer };
    if !begin::<CLASS, true>(state) {
        if CLASS == EXACT && state.sampler.is_sampling() {
            // SAFETY: the caller promises the same, and `state` is not used afterwards.
            unsafe { adoption::alloc_by_old_hook(pointer, allocator, size, address, below) };
        }
        return;
    }
    loop {
        let Some(slot) = state.slot else { return };
        if job_marks::are_used() {
            job_marks::sync(state, below.is_some());
        }
        let start = state.position;
        // SAFETY: only this thread uses its slot from the position to the end.
        let mut room = unsafe { Room::new(&mut state.tables, start, slot.end()) };
        let synced = if state.native.is_null() {
            match interpreter::layout() {
                // SAFETY: `interpreter::thread_state` returns this thread's own state or 0, and `interpreter::layout` only a
                // layout that was checked against this interpreter.
                Some(layout) => unsafe {
                    state
                        .stack
                        .sync(layout, interpreter::thread_state(), &mut room)
                },
                None => true,
            }
        } else {
            // SAFETY: both stacks belong to this busy state, so nothing else refers to them.
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
            // SAFETY: the writer stays within the room, which ends where the slot ends.
            unsafe { commit(state, start.add(n_bytes)) };
            return;
        }
        // Nothing of this attempt is committed, and the new chunk starts with the whole stack.
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
pub(crate) unsafe fn alloc_if_sampled(
    state: *mut ThreadState,
    allocator: Allocator,
    size: usize,
    address: usize,
    below: Option<Frame>,
) {
    // SAFETY: `enter` marked the state busy, so its thread alone uses it; the caller promises what `alloc_sampled`
    // requires.
    unsafe {
        if (*state).sampler.takes(size) {
            adoption::alloc_sampled(state, allocator, size, address, below);
        }
    }
}

/// Records that a block is about to be released.
///
/// # Safety
/// `state` comes from `threads::enter` on this thread.
#[inline(always)]
pub(crate) unsafe fn free<const CLASS: u8>(state: *mut ThreadState, address: usize) {
    // SAFETY: the caller promises what `one_record` requires.
    unsafe { one_record::<CLASS>(state, |tables, out| tables.write_free(out, address as u64)) };
}

/// Records that an address range is about to be released.
///
/// # Safety
/// As for [`free`].
pub(crate) unsafe fn free_range<const CLASS: u8>(
    state: *mut ThreadState,
    address: usize,
    length: usize,
) {
    // SAFETY: the caller promises what `one_record` requires.
    unsafe {
        one_record::<CLASS>(state, |tables, out| {
            tables.write_free_range(out, address as u64, length as u64)
        })
    };
}

/// Undoes the release that this thread recorded last, because the real call failed.
///
/// # Safety
/// As for [`free`].
pub(crate) unsafe fn unfree<const CLASS: u8>(state: *mut ThreadState) {
    // SAFETY: the caller promises what `one_record` requires.
    unsafe { one_record::<CLASS>(state, |tables, out| tables.write_unfree(out)) };
}

/// Records that a job ended. Does not count as an event.
///
/// # Safety
/// As for [`free`].
pub(crate) unsafe fn job_end(state: *mut ThreadState, job: u32) {
    let write = |tables: &mut Tables, out: &mut Writer| tables.write_job_end(out, job);
    // SAFETY: the caller promises what `one_record` requires; the state and its counter belong to this thread.
    unsafe {
        let is_written = match (*state).sampler.is_sampling() {
            true => one_record::<SAMPLED>(state, write),
            false => one_record::<EXACT>(state, write),
        };
        (*state).n_events -= u32::from(is_written);
    }
}

/// Records an event that `write` encodes as one record. `begin` leaves enough room for any one record. Returns `false` if
/// nothing can be recorded.
///
/// # Safety
/// As for [`free`].
#[inline(always)]
unsafe fn one_record<const CLASS: u8>(
    state: *mut ThreadState,
    write: impl FnOnce(&mut Tables, &mut Writer),
) -> bool {
    // SAFETY: `enter` marked the state busy, and a busy state is used by its thread alone.
    let state = unsafe { &mut *state };
    if !begin::<CLASS, false>(state) {
        return false;
    }
    let Some(slot) = state.slot else { return false };
    let start = state.position;
    // SAFETY: only this thread uses its slot from the position to the end.
    let mut room = unsafe { Room::new(&mut state.tables, start, slot.end()) };
    write(room.tables, &mut room.out);
    let n_bytes = room.out.len();
    // SAFETY: the writer stays within the room, which ends where the slot ends.
    unsafe { commit(state, start.add(n_bytes)) };
    true
}

/// Makes this thread the one that recorded last, makes room and writes the time. Returns `false` if nothing can be recorded.
#[inline(always)]
fn begin<const CLASS: u8, const IS_ALLOC: bool>(state: &mut ThreadState) -> bool {
    let word = ORDER.word.load(Ordering::Acquire);
    if word & TOKEN_MASK != state.tokens[CLASS as usize] && !switch::<CLASS, IS_ALLOC>(state) {
        return false;
    }
    if state.position >= state.limit && !roll(state) {
        return false;
    }
    let now = clock::ticks() >> session::tick_shift();
    // The counters of two processors may differ slightly; time never runs backwards in a stream.
    if now > state.tables.time() {
        // SAFETY: the position is below the limit, which lies `EVENT_ROOM` before the slot's end.
        let mut room = unsafe {
            Room::new(
                &mut state.tables,
                state.position,
                state.position.add(MAX_RECORD_BYTES),
            )
        };
        room.tables.write_time(&mut room.out, now);
        let n_bytes = room.out.len();
        // SAFETY: the writer stays within its room, which lies in the slot.
        state.position = unsafe { state.position.add(n_bytes) };
    }
    true
}

/// Makes the event complete: readers see everything up to `position`.
///
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

/// Takes the next sequence number. Called if another thread recorded last, or if this thread has not yet joined the session
/// or adopted its mode. Returns `false` if nothing can be recorded, or if the hook records every allocation and the thread
/// samples.
#[cold]
#[inline(never)]
fn switch<const CLASS: u8, const IS_ALLOC: bool>(state: &mut ThreadState) -> bool {
    let _errno = KeepErrno::now();
    let mut word = ORDER.word.load(Ordering::Acquire);
    if word == 0 {
        // The recording has ended, and the session may have been freed.
        session::count_dropped();
        return false;
    }
    let Some(session) = session::current() else {
        return false;
    };
    let has_joined = state.tokens != [NO_TOKEN; 2] && state.session == session.number;
    if !has_joined {
        join(state, session);
    } else if !(IS_ALLOC && CLASS == SAMPLED) {
        adoption::adopt(state, session);
    }
    if IS_ALLOC && CLASS == EXACT && state.sampler.is_sampling() {
        return false;
    }
    let token = u64::from(state.index) + 1;
    let sequence = loop {
        if word == 0 {
            session::count_dropped();
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
    adoption::set_token(state, token);
    if state.position >= state.limit {
        // The head of the chunk that begins now holds the number.
        let time = state.tables.time();
        state
            .tables
            .reset(sequence, time.max(clock::ticks() >> session::tick_shift()));
        return roll(state);
    }
    // SAFETY: the position is below the limit, which lies `EVENT_ROOM` before the slot's end.
    let mut room = unsafe {
        Room::new(
            &mut state.tables,
            state.position,
            state.position.add(MAX_RECORD_BYTES),
        )
    };
    room.tables.write_switch(&mut room.out, sequence);
    let n_bytes = room.out.len();
    // SAFETY: the writer stays within its room, which lies in the slot.
    state.position = unsafe { state.position.add(n_bytes) };
    true
}

/// Prepares a thread's state for its first event in a session.
fn join(state: &mut ThreadState, session: &session::Session) {
    signals::unblock_bus_error(&state.blocks_bus_error);
    state.session = session.number;
    state.stream = session.next_stream();
    state.n_chunks = 0;
    state.n_events = 0;
    state.slot = None;
    state.position = null_mut();
    state.limit = null_mut();
    state.tables.reset(0, 0);
    state.job.begin_chunk();
    state.stack.forget();
    adoption::set_mode(state, session.current_mode());
    adoption::set_token(state, u64::from(state.index) + 1);
    session.announce_thread(state.stream, state.os_id);
}

/// Hands the full chunk over to the keeper and begins the next one. Returns `false` if the recording has failed.
#[cold]
#[inline(never)]
pub(crate) fn roll(state: &mut ThreadState) -> bool {
    let _errno = KeepErrno::now();
    // Many libraries block all signals in their threads.
    signals::unblock_bus_error(&state.blocks_bus_error);
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
        generation: state.mode,
    };
    let Some(slot) = session.store.take(head) else {
        state.tokens = [NO_TOKEN; 2];
        session::count_dropped();
        return false;
    };
    state.n_chunks += 1;
    state.n_events = 0;
    state.slot = Some(slot);
    state.position = slot.payload();
    // SAFETY: every slot is longer than `EVENT_ROOM`, so the result lies in it.
    state.limit = unsafe { slot.end().sub(EVENT_ROOM) };
    state.tables.reset(sequence, time);
    state.job.begin_chunk();
    state.stack.forget();
    // SAFETY: null, or memory that only this busy state refers to and that is never unmapped.
    if let Some(native) = unsafe { state.native.as_mut() } {
        native.forget();
    }
    true
}

/// Returns the thread's slot to the store, filled or empty.
pub(crate) fn hand_over(state: &mut ThreadState, session: &session::Session) {
    // SAFETY: the reference is exclusive.
    unsafe { hand_over_slot(state, session) };
}

/// Does the same for the state of any thread. That thread may use its accounts of jobs meanwhile.
///
/// # Safety
/// `state` is a thread's state, and no other thread uses the fields that belong to the recording.
pub(crate) unsafe fn hand_over_slot(state: *mut ThreadState, session: &session::Session) {
    // SAFETY: the caller's promise. Each access is to one field, so nothing here refers to the whole state.
    unsafe {
        if let Some(slot) = (*state).slot.take() {
            session.store.enqueue(Filled {
                slot,
                n_events: (*state).n_events,
                last_sequence: (*state).tables.sequence(),
            });
        }
        (*state).position = null_mut();
        (*state).limit = null_mut();
    }
}
