//! Decoding ahead of the replay, on other cores.
//!
//! The order in which the replay begins chunks is known before anything is decoded: it is the order of the sequence numbers
//! in their heads. So workers process that list, a few chunks ahead. If a file is damaged, the replay may need a chunk out
//! of order. It then decodes that chunk itself, so that no thread waits for work that has not begun.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use heaptide_capture::{Capture, Damage, DecodedChunk};

use super::is_wanted;

pub(super) type Decoded = Result<DecodedChunk, Damage>;

/// Chunks decoded, or being decoded, before they are needed.
pub(super) struct Ahead<'a> {
    capture: &'a Capture,
    /// Indices into the capture's chunks, in the order in which they will be needed.
    order: Vec<u32>,
    max_ahead: usize,
    shared: Mutex<Shared>,
    changed: Condvar,
}

struct Shared {
    /// By index into the capture's chunks.
    states: Vec<State>,
    /// Position in `order` before which every chunk was begun.
    next: usize,
    /// Chunks begun and not taken yet.
    n_ahead: usize,
    ready: HashMap<usize, Decoded>,
    /// Replayed chunks, whose memory is reused.
    used: Vec<DecodedChunk>,
    stop: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Begun,
    Ready,
    Taken,
}

impl<'a> Ahead<'a> {
    /// `max_ahead` bounds the memory: at most this many chunks are decoded before they are needed.
    pub(super) fn new(
        capture: &'a Capture,
        wanted: &RangeInclusive<u64>,
        max_ahead: usize,
    ) -> Self {
        let chunks = &capture.chunks;
        let mut order: Vec<u32> = (0..chunks.len() as u32)
            .filter(|index| is_wanted(&chunks[*index as usize], wanted))
            .collect();
        order.sort_by_key(|index| {
            let head = &chunks[*index as usize].head;
            (head.sequence, head.stream, head.number)
        });
        Ahead {
            capture,
            order,
            max_ahead,
            shared: Mutex::new(Shared {
                states: vec![State::Waiting; chunks.len()],
                next: 0,
                n_ahead: 0,
                ready: HashMap::new(),
                used: Vec::new(),
                stop: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Runs a worker: decodes until every chunk is begun or the replay is over.
    pub(super) fn work(&self) {
        let mut raw = Vec::new();
        let mut shared = self.lock();
        while !shared.stop && self.skip_begun(&mut shared) {
            if shared.n_ahead < self.max_ahead {
                drop(self.decode_next(shared, &mut raw));
                shared = self.lock();
            } else {
                shared = self.wait(shared);
            }
        }
    }

    /// Returns a decoded chunk. Waits only while a worker decodes it, and decodes other chunks meanwhile.
    pub(super) fn take(&self, index: usize, raw: &mut Vec<u8>) -> Decoded {
        let mut shared = self.lock();
        loop {
            match shared.states[index] {
                State::Waiting | State::Taken => {
                    shared.states[index] = State::Taken;
                    let memory = shared.used.pop().unwrap_or_default();
                    drop(shared);
                    return self.decode(index, memory, raw);
                }
                State::Ready => {
                    shared.states[index] = State::Taken;
                    shared.n_ahead -= 1;
                    self.changed.notify_all();
                    if let Some(decoded) = shared.ready.remove(&index) {
                        return decoded;
                    }
                }
                State::Begun => {
                    let has_room = shared.n_ahead < self.max_ahead;
                    if has_room && self.skip_begun(&mut shared) {
                        drop(self.decode_next(shared, raw));
                        shared = self.lock();
                    } else {
                        shared = self.wait(shared);
                    }
                }
            }
        }
    }

    /// Takes a replayed chunk to reuse its memory.
    pub(super) fn recycle(&self, chunk: DecodedChunk) {
        let mut shared = self.lock();
        if shared.used.len() < self.max_ahead {
            shared.used.push(chunk);
        }
    }

    /// Returns a guard that stops the workers when it is dropped, also after a panic.
    pub(super) fn stop_guard(&self) -> impl Drop {
        struct StopGuard<'b, 'a>(&'b Ahead<'a>);
        impl Drop for StopGuard<'_, '_> {
            fn drop(&mut self) {
                self.0.lock().stop = true;
                self.0.changed.notify_all();
            }
        }
        StopGuard(self)
    }

    /// Moves `next` to a chunk that no thread has begun. Returns false if there is none left.
    fn skip_begun(&self, shared: &mut Shared) -> bool {
        while let Some(index) = self.order.get(shared.next) {
            if shared.states[*index as usize] == State::Waiting {
                return true;
            }
            shared.next += 1;
        }
        false
    }

    /// Decodes the chunk at `next`. Dropping the returned value stores the result, also after a panic, because
    /// another thread may be waiting for it.
    fn decode_next(&self, mut shared: MutexGuard<Shared>, raw: &mut Vec<u8>) -> Promise<'_, 'a> {
        let index = self.order[shared.next] as usize;
        shared.next += 1;
        shared.states[index] = State::Begun;
        shared.n_ahead += 1;
        let memory = shared.used.pop().unwrap_or_default();
        drop(shared);
        let mut promise = Promise {
            ahead: self,
            index,
            decoded: None,
        };
        promise.decoded = Some(self.decode(index, memory, raw));
        promise
    }

    fn decode(&self, index: usize, mut memory: DecodedChunk, raw: &mut Vec<u8>) -> Decoded {
        let chunk = &self.capture.chunks[index];
        if let Err(damage) = self.capture.read_chunk(chunk, raw) {
            self.recycle(memory);
            return Err(damage);
        }
        // A vector that grows by doubling would hold up to twice the memory until the chunk is replayed. The count comes from
        // the file and may be wrong, but every event takes at least a byte.
        memory.ops.clear();
        memory
            .ops
            .reserve_exact((chunk.n_events as usize).min(raw.len()));
        memory.decode(&chunk.head, raw);
        Ok(memory)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'b>(&self, shared: MutexGuard<'b, Shared>) -> MutexGuard<'b, Shared> {
        self.changed
            .wait(shared)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A chunk that a thread is decoding.
struct Promise<'b, 'a> {
    ahead: &'b Ahead<'a>,
    index: usize,
    decoded: Option<Decoded>,
}

impl Drop for Promise<'_, '_> {
    fn drop(&mut self) {
        let chunk = &self.ahead.capture.chunks[self.index];
        let decoded = self
            .decoded
            .take()
            .unwrap_or_else(|| Err(chunk.wrong_record()));
        let mut shared = self.ahead.lock();
        shared.ready.insert(self.index, decoded);
        shared.states[self.index] = State::Ready;
        self.ahead.changed.notify_all();
    }
}
