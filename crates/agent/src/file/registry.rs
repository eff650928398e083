//! The registry stream while it is written. Its entries are in a slot, so they survive a kill like events.
//!
//! An entry is complete in the file before anything refers to it: the entry of a code object is written before a frame that
//! refers to it is committed.

use std::collections::HashMap;

use heaptide_capture::Entry;
use heaptide_capture::area::{BlockHead, ChunkHead, REGISTRY_STREAM, SlotHead};

use crate::file::slot::{Filled, Size, Slot};
use crate::file::store::Store;

#[derive(Default)]
pub struct RegistryStream {
    slot: Option<Slot>,
    used: usize,
    n_chunks: u32,
    /// By the operating system's thread ID: streams, and the names of threads that have no stream yet.
    streams: HashMap<u32, u32>,
    names: HashMap<u32, String>,
}

impl RegistryStream {
    pub fn write(&mut self, store: &Store, entry: &Entry) {
        let needed = entry.max_bytes();
        if needed > Size::Large.slot_len() - SlotHead::LEN {
            // A code object with a very long line table gets its own block.
            let mut bytes = vec![0; needed];
            let len = entry.write(&mut bytes);
            self.hand_over(store);
            let head = BlockHead {
                chunk: self.next_head(),
                ..BlockHead::default()
            };
            store.write_block(head, &bytes[..len]);
            return;
        }
        // The first slots are small, so the entry may fit only into a later one.
        while self
            .slot
            .is_none_or(|slot| self.used + needed > slot.payload_len())
        {
            self.hand_over(store);
            let head = self.next_head();
            self.slot = store.take(head);
            self.used = 0;
            if self.slot.is_none() {
                // Readers expect the numbers of chunks to follow each other.
                self.n_chunks -= 1;
                return;
            }
        }
        let Some(slot) = self.slot else { return };
        // SAFETY: `needed` bytes from `self.used` on lie within the slot, as the loop above ensured. The slot belongs
        // to this stream, and `&mut self` keeps other threads out.
        let room = unsafe { std::slice::from_raw_parts_mut(slot.payload().add(self.used), needed) };
        self.used += entry.write(room);
        slot.commit(self.used);
    }

    pub fn announce_thread(&mut self, store: &Store, stream: u32, os_id: u32, time: u64) {
        self.write(
            store,
            &Entry::Thread {
                stream,
                os_id,
                time,
            },
        );
        self.streams.insert(os_id, stream);
        if let Some(name) = self.names.remove(&os_id) {
            self.write(
                store,
                &Entry::ThreadName {
                    stream,
                    name: name.as_bytes(),
                },
            );
        }
    }

    pub fn name_thread(&mut self, store: &Store, os_id: u32, name: &str) {
        match self.streams.get(&os_id) {
            Some(&stream) => self.write(
                store,
                &Entry::ThreadName {
                    stream,
                    name: name.as_bytes(),
                },
            ),
            None => {
                self.names.insert(os_id, name.to_owned());
            }
        }
    }

    pub fn hand_over(&mut self, store: &Store) {
        if let Some(slot) = self.slot.take() {
            store.enqueue(Filled {
                slot,
                n_events: 0,
                last_sequence: 0,
            });
        }
    }

    fn next_head(&mut self) -> ChunkHead {
        let head = ChunkHead {
            stream: REGISTRY_STREAM,
            number: self.n_chunks,
            ..ChunkHead::default()
        };
        self.n_chunks += 1;
        head
    }
}
