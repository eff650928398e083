//! Decoding ahead of the replay, on other cores.
//!
//! The order in which the replay begins chunks is known before anything is decoded: it is the order of the sequence
//! numbers in their heads. So workers simply go down that list, a few chunks ahead. A damaged file may make the replay
//! want a chunk out of turn; it then decodes that chunk itself, and nobody ever waits for work that nobody has begun.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use heaptide_capture::{Capture, Damage, DecodedChunk};

use super::is_wanted;

pub(super) type Decoded = Result<DecodedChunk, Damage>;

/// Chunks decoded, or being decoded, before they are wanted.
pub(super) struct Ahead<'a> {
    capture: &'a Capture,
    /// Indices into the capture's chunks, in the order in which they will be wanted.
    order: Vec<u32>,
    max_ahead: usize,
    shared: Mutex<Shared>,
    changed: Condvar,
}

struct Shared {
    /// By index into the capture's chunks.
    states: Vec<State>,
    /// Place in `order` before which every chunk was begun.
    next: usize,
    /// Chunks begun and not taken yet.
    n_ahead: usize,
    ready: HashMap<usize, Decoded>,
    /// Memory of chunks that the replay is done with.
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
    /// `max_ahead` bounds the memory: at most so many chunks are decoded before they are wanted.
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

    /// A worker's life: decodes until all is begun or the replay is over.
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

    /// The chunk with this index, decoded; waits for it only while a worker is at it, and helps the workers meanwhile.
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

    /// Takes back a chunk that is replayed, for its memory.
    pub(super) fn give_back(&self, chunk: DecodedChunk) {
        let mut shared = self.lock();
        if shared.used.len() < self.max_ahead {
            shared.used.push(chunk);
        }
    }

    /// Something that tells the workers to go home when it is dropped, whether the replay ends or panics.
    pub(super) fn stop_at_the_end(&self) -> impl Drop {
        struct StopAtTheEnd<'b, 'a>(&'b Ahead<'a>);
        impl Drop for StopAtTheEnd<'_, '_> {
            fn drop(&mut self) {
                self.0.lock().stop = true;
                self.0.changed.notify_all();
            }
        }
        StopAtTheEnd(self)
    }

    /// Moves `next` to a chunk that nobody has begun; false if there is none left.
    fn skip_begun(&self, shared: &mut Shared) -> bool {
        while let Some(index) = self.order.get(shared.next) {
            if shared.states[*index as usize] == State::Waiting {
                return true;
            }
            shared.next += 1;
        }
        false
    }

    /// Decodes the chunk at `next`. The result is stored when what is returned is dropped, also after a panic, because
    /// somebody may be waiting for it.
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
            self.give_back(memory);
            return Err(damage);
        }
        // Growing by doubling would hold up to twice as much, for as long as the thread's chunk is not done. The count comes
        // from the file and may be wrong, but no event is shorter than a byte.
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

/// A chunk that somebody has begun to decode.
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
