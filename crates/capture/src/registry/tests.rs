//! Tests of the registry's entries.

use super::*;
use proptest::prelude::*;

#[test]
fn entries_round_trip() {
    let entries = [
        Entry::Code(Code {
            id: 9,
            first_line: -1,
            name: b"f",
            qualifier: "Größe.".as_bytes(),
            file: b"/srv/job.py",
            line_table: &[0x80; 300],
        }),
        Entry::Module(Module {
            id: 10,
            base: 1 << 46,
            start: 1 << 46,
            length: 1 << 20,
            time: 6,
            path: &[b'x'; 2000],
            build_id: &[7; 20],
        }),
        Entry::Symbol(Symbol {
            module: 10,
            offset: u32::MAX,
            function: &[b'f'; 900],
            file: b"list.c",
            line: 7,
        }),
        Entry::Thread {
            stream: 1,
            os_id: u32::MAX,
            time: 7,
        },
        Entry::ThreadName {
            stream: 1,
            name: b"MainThread",
        },
        Entry::Resident {
            time: 1,
            bytes: 1 << 40,
        },
        Entry::Limit { bytes: 1 << 30 },
        Entry::Clock {
            ticks: 1,
            monotonic_ns: 2,
            unix_ns: u64::MAX,
        },
        Entry::Lost {
            reason: Lost::WriteFailed,
            count: 3,
        },
        Entry::OwnMemory { bytes: 5 },
        Entry::Memory {
            part: MemoryPart::LibcFree,
            bytes: 6,
        },
        Entry::JobBegan(JobBegan {
            number: 7,
            name_number: 2,
            parent: 3,
            thread: 4711,
            time: 50,
            unix_ns: 1 << 60,
            name: b"import",
            key: Some(b""),
            labels: b"\x05queue\x04mail",
        }),
        Entry::JobEnded(JobEnded {
            number: 7,
            time: 60,
            unix_ns: 1 << 60,
            outcome: Outcome::Retried,
            error: b"OSError",
        }),
        Entry::Label {
            key: b"queue",
            value: b"mail",
        },
        Entry::ModeChange(ModeChange {
            number: 2,
            time: 77,
            mode: Mode {
                sample_bytes: 1 << 19,
                native: true,
                ..Mode::default()
            },
        }),
        Entry::End { time: 99 },
    ];
    let mut bytes = vec![0; 4096];
    let mut len = 0;
    for entry in &entries {
        len += entry.write(&mut bytes[len..]);
    }
    let mut input = Reader::new(&bytes[..len]);
    for entry in &entries {
        assert_eq!(Entry::read(&mut input), Some(Some(*entry)));
    }
    assert_eq!(Entry::read(&mut input), None);
    assert!(input.is_at_end());
}

#[test]
fn entry_of_a_later_release_is_skipped() {
    let bytes = [200, 2, 0xaa, 0xbb, LIMIT, 1, 5];
    let mut input = Reader::new(&bytes);
    assert_eq!(Entry::read(&mut input), Some(None));
    assert_eq!(
        Entry::read(&mut input),
        Some(Some(Entry::Limit { bytes: 5 }))
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut input = Reader::new(&bytes);
        while Entry::read(&mut input).is_some() {}
    }
}
