//! Both formats of timelines, written and read again, complete and truncated at every byte; and files of mprof.

use std::path::Path;

use heaptide_timeline::{
    Backend, Call, Ending, Format, Header, Memory, NewProcess, Point, ReadError, Recorder, Tick,
    Timeline, read,
};

const START: f64 = 1_794_786_898.5;
const KIB: u64 = 1024;

fn header() -> Header {
    Header {
        command: "python job.py 'a b'\n--x".into(),
        host: Some("node 7".into()),
        facts: vec![("boot_id".into(), "a b".into())],
        rank: Some(3),
        started_s: START,
        interval_s: 0.1,
        backend: Backend::Pss,
    }
}

fn memory(resident: u64, rest: Option<[u64; 3]>) -> Memory {
    Memory {
        resident: resident * KIB,
        proportional: rest.map(|rest| rest[0] * KIB),
        unique: rest.map(|rest| rest[1] * KIB),
        swap: rest.map(|rest| rest[2] * KIB),
    }
}

fn tick(since_s: f64, processes: &[(usize, u32, Memory)], limit: Option<u64>) -> Tick {
    Tick {
        time_s: START + since_s,
        processes: processes.to_vec(),
        group: Some(900 * KIB),
        limit: limit.map(|limit| limit * KIB),
    }
}

/// Two processes, one of which ends; a call; a limit that changes; an out-of-memory kill.
fn written(format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut recorder =
        Recorder::begin(&mut bytes, format, header()).expect("writing to a vector succeeds");
    let process = |number, pid, name, command| NewProcess {
        number,
        pid,
        parent: 1,
        name,
        command,
        start: "83456.12s",
    };
    recorder
        .appeared(START, &process(0, 40, "python", "python job.py"))
        .unwrap();
    recorder
        .tick(&tick(0.0, &[(0, 40, memory(100, None))], Some(5000)))
        .unwrap();
    recorder
        .appeared(START + 0.1, &process(1, 41, "a (b) c", ""))
        .unwrap();
    let both = [
        (0, 40, memory(100, Some([60, 50, 8]))),
        (1, 41, memory(400, None)),
    ];
    recorder.tick(&tick(0.1, &both, Some(5000))).unwrap();
    recorder
        .appeared(START + 0.2, &process(1, 41, "worker", "worker --fast"))
        .unwrap();
    recorder.tick(&tick(0.2, &both, None)).unwrap();
    recorder.ended(START + 0.3, 1).unwrap();
    recorder.tick(&tick(0.3, &both[..1], Some(4000))).unwrap();
    let point = |since_s: f64, kib: u64| Point {
        time_s: START + since_s,
        bytes: kib * KIB,
    };
    let call = Call {
        function: "job.load".into(),
        begin: point(0.05, 1024),
        end: point(0.25, 2048),
        level: Some(1),
    };
    recorder.call(&call).unwrap();
    recorder.finish(START + 0.4, Ending::Signal(9), 1).unwrap();
    bytes
}

/// One process keeps its size for six samples and then grows, like its control group. A child ends in between.
fn with_unchanged_samples() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut recorder = Recorder::begin(&mut bytes, Format::Heaptide, header())
        .expect("writing to a vector succeeds");
    let process = |number| NewProcess {
        number,
        pid: 40,
        parent: 1,
        name: "python",
        command: "",
        start: "",
    };
    recorder.appeared(START, &process(0)).unwrap();
    recorder.appeared(START, &process(1)).unwrap();
    for n in 0..9u32 {
        let root = memory(if n < 6 { 100 } else { 700 }, None);
        let both = [(0, 40, root), (1, 41, memory(50, None))];
        let n_alive = if n < 3 { 2 } else { 1 };
        if n == 3 {
            recorder.ended(START + 0.25, 1).unwrap();
        }
        let since_s = f64::from(n) / 10.0;
        let mut tick = tick(since_s, &both[..n_alive], None);
        tick.group = Some(if n < 6 { 900 } else { 1500 } * KIB);
        recorder.tick(&tick).unwrap();
    }
    recorder
        .finish(START + 0.9, Ending::StillRunning, 0)
        .unwrap();
    bytes
}

#[test]
fn samples_without_changes_are_restored_by_the_reader() {
    let bytes = with_unchanged_samples();
    let n_samples = bytes.windows(4).filter(|part| part == b"\nat ").count();
    assert_eq!(n_samples, 2);
    let timeline = parsed(&bytes);
    assert_eq!(
        total(&timeline),
        [150, 150, 150, 100, 100, 100, 700, 700, 700]
    );
    for (n, point) in timeline.total.iter().enumerate() {
        assert!((point.time_s - START - n as f64 / 10.0).abs() < 0.001);
    }
    // The usage of their group is also restored.
    let group: Vec<u64> = timeline
        .group
        .iter()
        .map(|point| point.bytes / KIB)
        .collect();
    assert_eq!(group, [900, 900, 900, 900, 900, 900, 1500, 1500, 1500]);
    assert!((timeline.group[5].time_s - START - 0.5).abs() < 0.001);
    // The curve of the process is flat until it grows.
    let root = &timeline.processes[0].samples;
    let before = root
        .iter()
        .rev()
        .find(|sample| sample.1.resident == 100 * KIB);
    assert!((before.unwrap().0 - START - 0.5).abs() < 0.001);
}

fn parsed(bytes: &[u8]) -> Timeline {
    read(Path::new("x"), bytes).expect("a timeline")
}

fn total(timeline: &Timeline) -> Vec<u64> {
    timeline
        .total
        .iter()
        .map(|point| point.bytes / KIB)
        .collect()
}

#[test]
fn heaptide_format_round_trips_every_process_and_size() {
    let timeline = parsed(&written(Format::Heaptide));
    assert_eq!(timeline.header, header());
    assert_eq!(timeline.damage, [""; 0]);
    // The proportional size if it is known, else the resident size.
    assert_eq!(total(&timeline), [100, 460, 460, 60]);
    let child = &timeline.children()[0];
    assert_eq!(
        (child.pid, child.name.as_str(), child.command.as_str()),
        (41, "worker", "worker --fast")
    );
    assert_eq!((child.samples.len(), child.ended_s), (2, Some(START + 0.3)));
    let root = &timeline.processes[0];
    assert_eq!(root.samples[1].1, memory(100, Some([60, 50, 8])));
    assert_eq!(root.ended_s, None);
    let limits: Vec<Option<u64>> = timeline.limits.iter().map(|limit| limit.1).collect();
    assert_eq!(limits, [Some(5000 * KIB), None, Some(4000 * KIB)]);
    assert_eq!(timeline.group[0].bytes, 900 * KIB);
    assert_eq!(
        (timeline.calls[0].function.as_str(), timeline.calls[0].level),
        ("job.load", Some(1))
    );
    assert_eq!(
        (timeline.ending, timeline.n_oom_kills),
        (Some(Ending::Signal(9)), 1)
    );
}

#[test]
fn mprof_format_has_the_lines_that_mprof_reads() {
    let format = |include_children, multiprocess| Format::Mprof {
        include_children,
        multiprocess,
    };
    let text = String::from_utf8(written(format(true, true))).expect("text");
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("HEAPTIDE"))
        .collect();
    assert_eq!(lines[0], "CMDLINE python job.py 'a b' --x");
    assert_eq!(lines[1], "MEM 0.097656 1794786898.5000");
    assert_eq!(
        lines[2..4],
        [
            "MEM 0.449219 1794786898.6000",
            "CHLD 41 0.390625 1794786898.6000"
        ]
    );
    assert!(lines.contains(&"FUNC job.load 1.0000 1794786898.5500 2.0000 1794786898.7500 1"));
    // mprof's reader divides each line at the first blank.
    assert!(text.lines().all(|line| line.contains(' ')));
    let timeline = parsed(text.as_bytes());
    assert_eq!(total(&timeline), [100, 460, 460, 60]);
    assert_eq!(
        (timeline.header.host, timeline.header.rank),
        (Some("node 7".into()), Some(3))
    );
    assert_eq!(
        (timeline.ending, timeline.n_oom_kills),
        (Some(Ending::Signal(9)), 1)
    );

    let alone = String::from_utf8(written(format(false, false))).expect("text");
    assert_eq!(total(&parsed(alone.as_bytes())), [100, 60, 60, 60]);
    assert!(!alone.contains("CHLD"));
}

#[test]
fn truncated_file_gives_the_lines_before_the_cut() {
    for format in [
        Format::Heaptide,
        Format::Mprof {
            include_children: true,
            multiprocess: true,
        },
    ] {
        let bytes = written(format);
        let whole = parsed(&bytes);
        let mut n_most = 0;
        for len in 0..bytes.len() {
            let Ok(timeline) = read(Path::new("x"), &bytes[..len]) else {
                assert_eq!(n_most, 0, "a longer file has more");
                continue;
            };
            assert!(timeline.total.len() >= n_most);
            n_most = timeline.total.len();
            assert_eq!(timeline.total, whole.total[..n_most]);
            assert!(bytes[len - 1] == b'\n' || !timeline.damage.is_empty());
        }
    }
}

#[test]
fn damaged_lines_are_left_out_and_counted() {
    let text = String::from_utf8(written(Format::Heaptide)).expect("text");
    let broken = text
        .replace("end 0.3000 1", "end \u{0} x")
        .replace("call job", "cull job");
    let timeline = parsed(broken.as_bytes());
    assert_eq!(timeline.damage, ["2 lines are invalid"]);
    assert!(timeline.calls.is_empty());
}

#[test]
fn idle_run_is_written_once_a_second() {
    let mut bytes = Vec::new();
    let mut recorder = Recorder::begin(&mut bytes, Format::Heaptide, header()).unwrap();
    let process = NewProcess {
        number: 0,
        pid: 40,
        parent: 1,
        name: "sleep",
        command: "sleep",
        start: "",
    };
    recorder.appeared(START, &process).unwrap();
    for n in 0..100 {
        recorder
            .tick(&tick(
                f64::from(n) / 10.0,
                &[(0, 40, memory(100, None))],
                None,
            ))
            .unwrap();
    }
    let n_samples = bytes.windows(4).filter(|part| part == b"\nat ").count();
    assert_eq!(n_samples, 10);
    let timeline = parsed(&bytes);
    assert_eq!(timeline.total.len(), 91);
    assert!(timeline.total.iter().all(|point| point.bytes == 100 * KIB));
}

#[test]
fn function_lines_before_the_command_and_empty_lines_are_read() {
    let text = "FUNC __main__.main 10.0000 100.5000 20.0000 101.5000\n\nFUNC .block 1.0 100.6 2.0 100.7 2\n\
                MEM 0.5 100.25\n\nMEM 30.25 101.0\nCMDLINE python x.py\nCHLD 7 3.5 101.0\nFUTURE words\n";
    let timeline = parsed(text.as_bytes());
    assert_eq!(timeline.header.command, "python x.py");
    assert_eq!(timeline.calls.len(), 2);
    assert_eq!(
        (timeline.calls[0].level, timeline.calls[1].level),
        (None, Some(2))
    );
    assert_eq!(timeline.total[1].bytes, 30 * 1024 * KIB + 256 * KIB);
    assert_eq!(timeline.children()[0].pid, 7);
    assert_eq!(timeline.damage, ["a line is invalid"]);
}

#[test]
fn two_runs_in_one_file_are_reported() {
    let text = "CMDLINE a\nMEM 1.0 100.0\nCMDLINE b\nMEM 2.0 200.0\n";
    assert!(parsed(text.as_bytes()).damage[0].contains("2 runs"));
}

#[test]
fn other_files_are_refused_by_their_format() {
    let of = |bytes: &[u8]| read(Path::new("x"), bytes).expect_err("no timeline");
    assert!(matches!(of(b""), ReadError::Empty(_)));
    assert!(matches!(of(b"\n \n"), ReadError::Empty(_)));
    assert!(matches!(of(b"CMDLINE x\n"), ReadError::Empty(_)));
    assert!(matches!(
        of(b"\x89TIDE\r\n\x1a rest\n"),
        ReadError::Capture(_)
    ));
    assert!(matches!(
        of(b"heaptide timeline 9\n"),
        ReadError::Newer { .. }
    ));
    assert!(matches!(of(b"name,size\na,1\n"), ReadError::Foreign(_)));
    assert!(matches!(
        of(&[0xff, 0xfe, 0x0a, 0x00]),
        ReadError::Foreign(_)
    ));
}

#[test]
fn timeline_of_a_later_format_names_the_version_that_wrote_it() {
    let message = |text: &str| {
        let error = read(Path::new("job.timeline"), text.as_bytes());
        error.expect_err("a later format").to_string()
    };
    let named = message("heaptide timeline 2\nversion 9.8.7\nsomething else\n");
    assert!(
        named
            .starts_with("job.timeline was written by Heaptide 9.8.7 in format 2, which Heaptide "),
        "{named}"
    );
    assert!(
        named.ends_with("install Heaptide 9.8.7 or later"),
        "{named}"
    );
    for text in [
        "heaptide timeline 2\n",
        "heaptide timeline \u{1b}[2J\nversion \u{1b}]0;x\n",
    ] {
        let unnamed = message(text);
        assert!(
            unnamed.ends_with("install the newest Heaptide"),
            "{unnamed}"
        );
        assert!(!unnamed.contains('\u{1b}'), "{unnamed}");
    }
}
