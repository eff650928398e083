//! Bounded captures: the keeper replaces the events in the file by their sums whenever they take too much space.
//!
//! The keeper takes a sequence number for itself, the *cut*, and waits until no thread is in the middle of an event. Then
//! all events with smaller numbers are in the file, and all later events have greater ones. The keeper reads the earlier
//! events back from the file, adds them to its tally, writes the tally as a checkpoint and removes the blocks that it
//! replaces. The file is complete at any instant, and threads only have to take a new sequence number.
//!
//! Runs on: the keeper; at the end the thread that stops the recording. Allocates: bypassing the hooks, in proportion
//! to live blocks. Locks: the store's. During fork: a child starts without sums.

use heaptide_capture::Capture;
use heaptide_capture::area::{BlockHead, CHECKPOINT_STREAM, ChunkHead};
use heaptide_capture::read::MAX_CHECKPOINT_LEN;
use heaptide_tally::Tally;
use heaptide_tally::replay_between;

use crate::arenas;
use crate::record::clock;
use crate::session::{self, Session, TOKEN_BITS};

/// When the events in the file take more bytes than this, they are replaced.
const MAX_EVENT_BYTES: u64 = 16 << 20;
const PIECE_BYTES: usize = 512 * 1024;

/// The sums so far. They belong to the keeper.
pub struct Checkpoints {
    tally: Tally,
    cut: u64,
    generation: u32,
    /// Length of the last checkpoint. The next one waits until the events take as many bytes, so checkpoints at most double
    /// the bytes written.
    last_len: u64,
}

impl Checkpoints {
    pub fn new(session: &Session) -> Self {
        let mut tally = Tally::new(session.config.mode.sample_bytes);
        tally.keep_jobs();
        Checkpoints {
            tally,
            cut: 0,
            generation: 0,
            last_len: 0,
        }
    }

    pub fn is_due(&self, session: &Session) -> bool {
        session.store.event_bytes() > MAX_EVENT_BYTES.max(self.last_len)
    }

    /// Replaces the events so far by their sums.
    pub fn make(&mut self, session: &Session) {
        let Some(cut) = session::cut() else { return };
        if session::wait_for_recording_threads() {
            self.replace(session, cut, true);
        }
    }

    /// Writes the last checkpoint, when no thread records any more. It has no live blocks, because nothing is freed after it.
    pub fn make_last(&mut self, session: &Session) {
        session.store.pack_waiting();
        self.replace(session, u64::MAX >> TOKEN_BITS, false);
    }

    fn replace(&mut self, session: &Session, cut: u64, with_blocks: bool) {
        let file = session.store.reopen();
        let capture = file
            .ok()
            .and_then(|file| Capture::events_from_file(file, &session.config.path).ok());
        let Some(capture) = capture else { return };
        // Threads adopt a mode after it is published, so all modes of the events in the file are known here.
        let changes = session.wanted_mode.changes();
        self.tally
            .set_modes(session.config.mode, &changes, arenas::python::codes());
        let damage = replay_between(&capture, self.cut, cut, 0, &mut |chunk, ops| {
            self.tally.apply(chunk, ops)
        });
        if !damage.is_empty() {
            // The sums would be wrong. The events stay in the file, and readers report the damage.
            session::abandon("another process changed the capture while it was being written");
            return;
        }
        drop(capture);
        self.cut = cut;
        self.generation += 1;
        let bytes = self.tally.to_bytes(with_blocks);
        if bytes.len() as u64 > MAX_CHECKPOINT_LEN {
            session::abandon("the program has more live blocks than a bounded capture can hold");
            return;
        }
        self.last_len = bytes.len() as u64;
        let n_pieces = bytes.len().div_ceil(PIECE_BYTES) as u32;
        for (number, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            let head = BlockHead {
                chunk: ChunkHead {
                    stream: CHECKPOINT_STREAM,
                    number: number as u32,
                    sequence: cut,
                    time: clock::ticks() >> session::tick_shift(),
                    generation: self.generation,
                },
                n_events: n_pieces,
                last_sequence: cut,
                ..BlockHead::default()
            };
            if !session.store.write_block(head, piece) {
                return;
            }
        }
        session.store.drop_before(cut, self.generation);
    }
}
