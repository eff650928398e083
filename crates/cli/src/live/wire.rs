//! The protocol between `run --live-remote` and `live`, which may be of different releases.
//!
//! ```text
//! viewer → server   "tideLIV1"                 once
//! server → viewer   "tideTOK1"                 only if the viewer is of another user and must send a token
//! viewer → server   u16 length, that many bytes: the token
//! server → viewer   "tideLIV1"                 once
//! viewer → server   one byte                   to request the newest update: 1, or 2 for one with jobs
//! server → viewer   u32 length, that many bytes: varint number of the update, u8 state, then the numbers as below
//! ```
//! The state is a sum: 1 if the program has ended, 2 if numbers follow, 4 if they include jobs. A viewer of an earlier
//! release requests 1; an earlier server sends no jobs.
//!
//! Numbers are varints, a text is a length and that many bytes, an option is 0 or the value plus 1. Input is untrusted:
//! lengths are checked against the available bytes. Only a recording that failed has the fields about its failure, at the
//! end.

use std::io::{self, Read, Write};

use heaptide_analysis::model::Stopped;
use heaptide_analysis::model::live::{Curve, Held, Live, LiveFunction, LiveJob, LiveThread};
use heaptide_capture::Lost;
use heaptide_capture::wire::{Reader, push_varint};

pub(super) const GREETING: &[u8; 8] = b"tideLIV1";
pub(super) const TOKEN_REQUIRED: &[u8; 8] = b"tideTOK1";
/// A viewer's request for an update with jobs.
pub(super) const REQUEST_WITH_JOBS: u8 = 2;
/// A longer token is invalid.
const MAX_TOKEN_LEN: u16 = 4096;
/// A longer message is invalid.
const MAX_LEN: u32 = 16 << 20;

/// One update: its sequence number, whether the program has ended, and its numbers once it records.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Message {
    pub number: u64,
    pub is_gone: bool,
    pub live: Option<Live>,
}

/// Sends an update, as an answer to a request.
pub(super) fn send(
    out: &mut impl Write,
    request: u8,
    number: u64,
    is_gone: bool,
    live: Option<&Live>,
) -> io::Result<()> {
    let with_jobs = request == REQUEST_WITH_JOBS && live.is_some();
    let mut bytes = vec![0; 4];
    let mut encoder = Encoder(&mut bytes);
    encoder.number(number);
    encoder
        .0
        .push(u8::from(is_gone) | u8::from(live.is_some()) << 1 | u8::from(with_jobs) << 2);
    if let Some(live) = live {
        encoder.live(live, with_jobs);
    }
    let len = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    out.write_all(&bytes)?;
    out.flush()
}

pub(super) fn receive(input: &mut impl Read) -> io::Result<Message> {
    let mut len = [0; 4];
    input.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len);
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "invalid message");
    if len > MAX_LEN {
        return Err(invalid());
    }
    let mut bytes = vec![0; len as usize];
    input.read_exact(&mut bytes)?;
    decode(&bytes).ok_or_else(invalid)
}

pub(super) fn send_token(out: &mut impl Write, token: &str) -> io::Result<()> {
    let len = u16::try_from(token.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut bytes = len.to_le_bytes().to_vec();
    bytes.extend_from_slice(token.as_bytes());
    out.write_all(&bytes)
}

pub(super) fn receive_token(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut len = [0; 2];
    input.read_exact(&mut len)?;
    let len = u16::from_le_bytes(len);
    if len > MAX_TOKEN_LEN {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut token = vec![0; len.into()];
    input.read_exact(&mut token)?;
    Ok(token)
}

struct Encoder<'a>(&'a mut Vec<u8>);

impl Encoder<'_> {
    fn number(&mut self, value: u64) {
        push_varint(self.0, value);
    }

    fn option(&mut self, value: Option<u64>) {
        self.number(value.map_or(0, |value| value.saturating_add(1)));
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.number(items.len() as u64);
        for item in items {
            each(self, item);
        }
    }

    fn held(&mut self, held: &[Held], with_jobs: bool) {
        self.list(held, |out, held| {
            out.number(held.thread.into());
            for number in [held.own_bytes, held.total_bytes, held.count] {
                out.number(number);
            }
            if with_jobs {
                out.number(held.job.into());
            }
        });
    }

    fn live(&mut self, live: &Live, with_jobs: bool) {
        self.number(live.pid.into());
        self.list(&live.command, |out, word| out.text(word));
        self.number(live.elapsed_ns);
        self.number(live.is_ended.into());
        for number in [live.heap_bytes, live.n_blocks, live.peak_bytes] {
            self.number(number);
        }
        self.option(live.resident_bytes);
        self.option(live.limit_bytes);
        for number in [
            live.sample_bytes,
            live.n_events,
            live.n_damaged,
            live.n_more,
        ] {
            self.number(number);
        }
        self.list(&live.lost, |out, &(reason, count)| {
            out.number(reason as u64);
            out.number(count);
        });
        self.list(&live.threads, |out, thread| {
            out.number(thread.os_id.into());
            out.text(&thread.name);
        });
        self.list(&live.functions, |out, function| {
            out.text(&function.function);
            out.text(&function.file);
            // Viewers of an earlier release add the bytes that a function holds for several jobs in one thread.
            out.held(&function.held, with_jobs);
        });
        self.number(live.curve.bin_ns);
        self.list(&live.curve.heap, |out, &value| out.option(value));
        self.list(&live.curve.resident, |out, &value| out.option(value));
        if with_jobs {
            self.list(&live.jobs, |out, job| {
                out.text(&job.name);
                out.number(job.n_running);
                out.held(&job.held, with_jobs);
            });
        }
        if let Some(stopped) = &live.stopped {
            self.number(stopped.elapsed_ns);
            self.number(stopped.n_dropped);
            self.text(&stopped.reason);
        }
    }
}

fn decode(bytes: &[u8]) -> Option<Message> {
    let mut input = Decoder {
        input: Reader::new(bytes),
        len: bytes.len(),
        with_jobs: false,
    };
    let number = input.number()?;
    let state = input.input.u8()?;
    input.with_jobs = state & 4 != 0;
    let live = match state {
        0 | 1 => None,
        2 | 3 | 6 | 7 => Some(input.live()?),
        _ => return None,
    };
    input.input.is_at_end().then_some(Message {
        number,
        is_gone: state & 1 == 1,
        live,
    })
}

struct Decoder<'a> {
    input: Reader<'a>,
    len: usize,
    with_jobs: bool,
}

impl Decoder<'_> {
    fn number(&mut self) -> Option<u64> {
        self.input.varint()
    }

    fn number32(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn option(&mut self) -> Option<Option<u64>> {
        Some(self.number()?.checked_sub(1))
    }

    fn text(&mut self) -> Option<String> {
        let bytes = self.input.text()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Refuses a length above the remaining bytes, because each item takes at least one byte.
    fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let n = usize::try_from(self.number()?).ok()?;
        if n > self.len.saturating_sub(self.input.position()) {
            return None;
        }
        (0..n).map(|_| each(self)).collect()
    }

    fn live(&mut self) -> Option<Live> {
        let pid = self.number32()?;
        let command = self.list(Self::text)?;
        let elapsed_ns = self.number()?;
        let is_ended = self.number()? != 0;
        let (heap_bytes, n_blocks, peak_bytes) = (self.number()?, self.number()?, self.number()?);
        let (resident_bytes, limit_bytes) = (self.option()?, self.option()?);
        let (sample_bytes, n_events) = (self.number()?, self.number()?);
        let (n_damaged, n_more) = (self.number()?, self.number()?);
        let lost = self.list(|input| {
            let reason = u8::try_from(input.number()?).ok()?;
            Some((Lost::from_number(reason), input.number()?))
        })?;
        // Reasons of a later release are unknown here.
        let lost = lost
            .into_iter()
            .filter_map(|(reason, count)| Some((reason?, count)));
        let threads = self.list(|input| {
            Some(LiveThread {
                os_id: input.number32()?,
                name: input.text()?,
            })
        })?;
        let functions = self.list(|input| {
            Some(LiveFunction {
                function: input.text()?,
                file: input.text()?,
                held: input.list(Self::held)?,
            })
        })?;
        Some(Live {
            pid,
            command,
            elapsed_ns,
            is_ended,
            heap_bytes,
            n_blocks,
            peak_bytes,
            resident_bytes,
            limit_bytes,
            sample_bytes,
            n_events,
            n_damaged,
            n_more,
            lost: lost.collect(),
            threads,
            functions,
            curve: Curve {
                bin_ns: self.number()?,
                heap: self.list(Self::option)?,
                resident: self.list(Self::option)?,
            },
            jobs: match self.with_jobs {
                true => self.list(Self::job)?,
                false => Vec::new(),
            },
            stopped: self.stopped()?,
        })
    }

    fn stopped(&mut self) -> Option<Option<Stopped>> {
        if self.input.is_at_end() {
            return Some(None);
        }
        Some(Some(Stopped {
            elapsed_ns: self.number()?,
            n_dropped: self.number()?,
            reason: self.text()?,
        }))
    }

    fn job(&mut self) -> Option<LiveJob> {
        Some(LiveJob {
            name: self.text()?,
            n_running: self.number()?,
            held: self.list(Self::held)?,
        })
    }

    fn held(&mut self) -> Option<Held> {
        Some(Held {
            thread: self.number32()?,
            own_bytes: self.number()?,
            total_bytes: self.number()?,
            count: self.number()?,
            job: match self.with_jobs {
                true => self.number32()?,
                false => 0,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        let held = Held {
            thread: 1,
            job: 1,
            own_bytes: 700,
            total_bytes: u64::MAX,
            count: 3,
        };
        Message {
            number: 12,
            is_gone: false,
            live: Some(Live {
                pid: 4711,
                command: vec!["job.py".into(), "--größe".into()],
                resident_bytes: Some(0),
                limit_bytes: None,
                lost: vec![(Lost::DeepStack, 9)],
                threads: vec![LiveThread::default()],
                jobs: vec![
                    LiveJob::default(),
                    LiveJob {
                        name: "import".into(),
                        n_running: 2,
                        held: vec![held],
                    },
                ],
                functions: vec![LiveFunction {
                    function: "load".into(),
                    file: "/srv/job.py".into(),
                    held: vec![held],
                }],
                curve: Curve {
                    bin_ns: 5,
                    heap: vec![None, Some(7)],
                    resident: vec![],
                },
                ..Live::default()
            }),
        }
    }

    fn bytes(message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        send(
            &mut bytes,
            REQUEST_WITH_JOBS,
            message.number,
            message.is_gone,
            message.live.as_ref(),
        )
        .unwrap();
        bytes
    }

    #[test]
    fn messages_are_received_as_sent() {
        for message in [
            message(),
            Message::default(),
            Message {
                is_gone: true,
                ..message()
            },
            Message {
                live: Some(Live {
                    stopped: Some(Stopped {
                        elapsed_ns: 7,
                        n_dropped: 9,
                        reason: "disk full".into(),
                    }),
                    ..Live::default()
                }),
                ..message()
            },
        ] {
            assert_eq!(receive(&mut &bytes(&message)[..]).unwrap(), message);
        }
    }

    #[test]
    fn viewer_of_an_earlier_release_receives_the_same_numbers_without_jobs() {
        let sent = message();
        let mut bytes = Vec::new();
        send(&mut bytes, 1, sent.number, false, sent.live.as_ref()).unwrap();
        let received = receive(&mut &bytes[..]).unwrap().live.unwrap();
        assert_eq!(received.jobs, []);
        let held = received.functions[0].held[0];
        assert_eq!((held.job, held.own_bytes, held.count), (0, 700, 3));
    }

    #[test]
    fn truncated_messages_are_refused_and_changed_bytes_do_not_panic() {
        let good = bytes(&message());
        for at in 0..good.len() {
            assert!(receive(&mut &good[..at]).is_err(), "cut at {at}");
            for value in [0, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = receive(&mut &bad[..]);
            }
        }
        assert!(receive(&mut &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..]).is_err());
    }
}
