//! The registry of a file of memray, and its threads as streams.

use std::collections::HashMap;

use heaptide_capture::{Code, Entry, Registry, RegistryBuilder};

use super::header::FileHeader;

/// The maximum number of threads; a file with more is damaged.
const MAX_THREADS: usize = 1 << 22;
/// Limit for all code objects together.
const MAX_CODE_BYTES: usize = 1 << 30;

/// The stream of each thread of memray, from 1 in the order of their first record.
#[derive(Debug, Default)]
pub struct Streams {
    by_thread: HashMap<u64, u32>,
}

impl Streams {
    /// Returns the stream of a thread, and whether it is new; `None` if there are too many.
    pub fn of(&mut self, thread: u64) -> Option<(u32, bool)> {
        if let Some(&stream) = self.by_thread.get(&thread) {
            return Some((stream, false));
        }
        if self.by_thread.len() >= MAX_THREADS {
            return None;
        }
        let stream = self.by_thread.len() as u32 + 1;
        self.by_thread.insert(thread, stream);
        Some((stream, true))
    }
}

/// Collects the registry of a file. Times are milliseconds since the start.
pub struct Metadata {
    builder: RegistryBuilder,
    streams: Streams,
    stream: u32,
    n_code_bytes: usize,
    pub time: u64,
}

impl Metadata {
    pub fn new(header: &FileHeader) -> Metadata {
        let mut builder = RegistryBuilder::new(0);
        // Two points define the clock: one unit is a millisecond.
        for ticks in [0, 1000] {
            builder.add(Entry::Clock {
                ticks,
                monotonic_ns: ticks * 1_000_000,
                unix_ns: header
                    .start_ms
                    .saturating_add(ticks)
                    .saturating_mul(1_000_000),
            });
        }
        Metadata {
            builder,
            streams: Streams::default(),
            stream: 0,
            n_code_bytes: 0,
            time: 0,
        }
    }

    /// Sets the thread of the following records. Returns `None` if there are too many threads.
    pub fn thread(&mut self, thread: u64) -> Option<u32> {
        let (stream, is_new) = self.streams.of(thread)?;
        if is_new {
            self.builder.add(Entry::Thread {
                stream,
                os_id: u32::try_from(thread).unwrap_or(0),
                time: self.time,
            });
        }
        self.stream = stream;
        Some(stream)
    }

    pub fn thread_name(&mut self, name: &[u8]) {
        let stream = self.stream;
        if stream > 0 && !name.is_empty() {
            self.builder.add(Entry::ThreadName { stream, name });
        }
    }

    pub fn resident(&mut self, time: u64, bytes: u64) {
        self.time = self.time.max(time);
        self.builder.add(Entry::Resident { time, bytes });
    }

    /// Returns `None` if there is more code than any program has.
    pub fn code(&mut self, code: Code) -> Option<()> {
        self.n_code_bytes += code.max_bytes();
        self.builder.add(Entry::Code(code));
        (self.n_code_bytes <= MAX_CODE_BYTES).then_some(())
    }

    pub fn end(&mut self, header: &FileHeader) {
        let time = header.end_ms.saturating_sub(header.start_ms);
        self.builder.add(Entry::End {
            time: time.max(self.time),
        });
    }

    pub fn finish(self) -> Registry {
        self.builder.finish()
    }
}
