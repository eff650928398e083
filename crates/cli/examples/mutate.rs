//! Runs report commands on files changed at random, in one process, and counts the inputs that make them fail.
//!
//! ```text
//! mutate N [--seed N] [--report FILE] [--sample NAME] [--command WORDS] [SAMPLE…]
//! ```
//! Standard output and standard error are those of the commands: send them to /dev/null.
//! Each input is a sample (built in, or a given `.tide`, `.heap`, `.timeline`, `.dat` or `.bin` file), changed as
//! `testkit::mutation` describes, and read by one command. A command may refuse an input. Failures are panics, inputs that
//! need more memory than `MAX_BYTES`, and inputs that take longer than `MAX_TIME`. The report describes the first
//! `MAX_DESCRIBED` with their seeds; `mutate 1 --seed SEED`, with the same samples, repeats one. To repeat it also after
//! the lists of samples and commands have changed, name both as the report does. The exit code is 1 if there was a
//! failure.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use heaptide_capture::heap::{EdgeType, Label, RootCategory, write_heap};
use heaptide_testkit::mutation::{FileFormat, Random, mutate};
use heaptide_testkit::{CountingAllocator, HeapBuilder, capture_bytes, header, memray_files, shop};

/// More than any command needs for files of this size.
const MAX_BYTES: usize = 512 << 20;
/// An input that takes longer ends the run, because it cannot be stopped.
const MAX_TIME: Duration = Duration::from_secs(60);
/// The maximum number of failures that the report describes; the others are counted.
const MAX_DESCRIBED: usize = 50;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

struct Sample {
    format: FileFormat,
    /// The name of the changed file: commands recognise some formats by it.
    name: &'static str,
    bytes: Vec<u8>,
}

/// Commands by format; `IN` is the changed file, `GOOD` the sample and `OUT` a file to write.
const OF_CAPTURES: &[&str] = &[
    "stats IN",
    "stats --json IN",
    "stats --json IN GOOD",
    "summary IN",
    "summary --by thread --temporary-allocations IN",
    "tree --plain IN",
    "tree --plain --inverted --leaks IN",
    "table -f -o OUT IN",
    "flamegraph -f -o OUT IN",
    "flamegraph --total --split-threads -f -o OUT IN",
    "timeline -f -o OUT IN",
    "parse IN",
    "jobs IN",
    "jobs --json IN",
    "jobs --html -f -o OUT IN",
    "lines --from IN",
    "lines --html -f -o OUT --from IN",
    "live IN",
    "diff GOOD IN",
    "diff --html -f -o OUT IN GOOD",
    "transform pprof -f -o OUT IN",
    "transform speedscope -f -o OUT IN",
    "transform collapsed -f -o OUT IN",
    "transform csv -f -o OUT IN",
    "transform gprof2dot -f -o OUT IN",
    "transform json -f -o OUT IN",
    "transform chrome -f -o OUT IN",
    "transform events -f -o OUT IN",
    "transform packed-events -f -o OUT IN",
    "transform memray -f -o OUT IN",
    "transform memray-1.19 -f -o OUT IN",
];
const OF_HEAPS: &[&str] = &[
    "heap show IN",
    "heap show --by referrers --json IN",
    "heap types -n 0 IN",
    "heap types --json --by module IN",
    "heap paths --kind str IN",
    "heap paths --kind shop.Order --long IN",
    "heap paths --kind dict --pattern IN",
    "heap paths --kind list --json IN",
    "heap dominators --depth 100 --min-percent 0 IN",
    "heap dominators --json IN",
    "heap diff GOOD IN",
    "heap diff --json IN GOOD",
    "heap diff GOOD GOOD IN",
    "heap suspects IN",
    "heap suspects --json --baseline GOOD IN",
    "heap waste IN",
    "heap explore -f -o OUT IN",
    "heap explore -f -o OUT --baseline GOOD IN",
    "heap graph --kind str -f -o OUT.svg IN",
    "heap graph --kind list --way -f -o OUT.dot IN",
    "heap graph --kind dict --forward -f -o OUT.html IN",
    "heap export -f -o OUT IN",
    "heap export --format json -f -o OUT IN",
    "heap export --format dot -f -o OUT IN",
];
const OF_TIMELINES: &[&str] = &[
    "plot -f -o OUT.png IN",
    "plot -s -o OUT.txt IN",
    "plot -o OUT.html IN",
    "plot -n -w 0,20 -o OUT.svg IN GOOD",
    "peak IN",
    "peak --func load IN",
];

/// Counts and descriptions of failures, shared with the panic hook and the watchdog.
#[derive(Default)]
struct Report {
    n_inputs: u64,
    n_reported: u64,
    n_panics: u64,
    n_large: u64,
    slowest_ms: u128,
    largest_bytes: usize,
    described: String,
    n_described: usize,
}

impl Report {
    fn describe(&mut self, what: &str) {
        self.n_described += 1;
        if self.n_described <= MAX_DESCRIBED {
            let seed = SEED.load(Ordering::Relaxed);
            let _ = writeln!(self.described, "seed {seed}: {what}");
        }
    }

    fn text(&self, hung: u64) -> String {
        format!(
            "inputs {}, read to a report {}, panics {}, over {} MiB {}, hangs {hung}, slowest {} ms, most memory {} KiB\n{}",
            self.n_inputs,
            self.n_reported,
            self.n_panics,
            MAX_BYTES >> 20,
            self.n_large,
            self.slowest_ms,
            self.largest_bytes >> 10,
            self.described
        )
    }
}

/// The seed of the current input, and the time at which it began, in milliseconds since the start.
static SEED: AtomicU64 = AtomicU64::new(0);
static BEGAN_MS: AtomicU64 = AtomicU64::new(0);

fn main() {
    let options = Options::parse(std::env::args().skip(1));
    let folder = std::env::temp_dir().join(format!("heaptide-mutate-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let mut samples: Vec<Sample> = built_in().into_iter().chain(options.samples).collect();
    if let Some(name) = &options.sample {
        samples.retain(|sample| sample.name == name);
        assert!(!samples.is_empty(), "there is no sample {name}");
    }
    for (at, sample) in samples.iter().enumerate() {
        std::fs::write(
            folder.join(format!("good{at}-{}", sample.name)),
            &sample.bytes,
        )
        .expect("a file in the temporary folder");
    }
    if options.sample.is_none() && options.command.is_none() {
        check_commands(&samples, &folder);
    }
    let report = Arc::new(Mutex::new(Report::default()));
    let start = Instant::now();
    describe_panics(&report);
    watch(&report, start, options.report.clone(), folder.clone());
    for seed in options.first_seed..options.first_seed + options.n_inputs {
        SEED.store(seed, Ordering::Relaxed);
        BEGAN_MS.store(start.elapsed().as_millis() as u64, Ordering::Relaxed);
        run(seed, &samples, options.command.as_deref(), &folder, &report);
    }
    let _ = std::fs::remove_dir_all(&folder);
    let report = report.lock().unwrap_or_else(PoisonError::into_inner);
    options.report.write(&report.text(0));
    std::process::exit(i32::from(report.n_panics + report.n_large > 0));
}

/// Checks that each command makes a report of an unchanged sample. Otherwise it would refuse all changed ones.
fn check_commands(samples: &[Sample], folder: &Path) {
    for commands in [OF_CAPTURES, OF_HEAPS, OF_TIMELINES] {
        for command in commands {
            let mut of_format = samples.iter().enumerate();
            let makes_report = of_format.any(|(at, sample)| {
                let good = folder.join(format!("good{at}-{}", sample.name));
                let arguments = arguments(command, &good, &good, folder);
                commands_of(sample.format) == commands
                    && matches!(
                        heaptide_cli::main(arguments.into_iter()),
                        heaptide_cli::Outcome::Exit(0)
                    )
            });
            assert!(makes_report, "{command} makes no report");
        }
    }
}

fn commands_of(format: FileFormat) -> &'static [&'static str] {
    match format {
        FileFormat::Heap => OF_HEAPS,
        FileFormat::Text => OF_TIMELINES,
        FileFormat::Capture | FileFormat::Plain => OF_CAPTURES,
    }
}

/// The words of a command, with paths for `IN`, `GOOD` and `OUT`.
fn arguments(command: &str, input: &Path, good: &Path, folder: &Path) -> Vec<OsString> {
    let words = command.split(' ').map(|word| match word {
        "IN" => input.into(),
        "GOOD" => good.into(),
        _ if word.starts_with("OUT") => folder.join(word).into_os_string(),
        _ => word.into(),
    });
    std::iter::once("heaptide".into()).chain(words).collect()
}

/// Makes one input, runs one command on it, and counts the result.
fn run(
    seed: u64,
    samples: &[Sample],
    command: Option<&str>,
    folder: &Path,
    report: &Mutex<Report>,
) {
    let mut random = Random::new(seed);
    let at = random.below(samples.len());
    let sample = &samples[at];
    let bytes = mutate(sample.format, &sample.bytes, &mut random);
    let input = folder.join(format!("changed-{}", sample.name));
    std::fs::write(&input, &bytes).expect("a file in the temporary folder");
    let command = command.unwrap_or_else(|| random.one_of(commands_of(sample.format)));
    let good = folder.join(format!("good{at}-{}", sample.name));
    let arguments = arguments(command, &input, &good, folder);
    let began = Instant::now();
    let source = format!("by {command:?} on a changed {}", sample.name);
    let (bytes, outcome) = ALLOCATOR
        .peak_of(|| std::panic::catch_unwind(|| heaptide_cli::main(arguments.into_iter())));
    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
    report.n_inputs += 1;
    report.n_reported += u64::from(matches!(outcome, Ok(heaptide_cli::Outcome::Exit(0))));
    report.slowest_ms = report.slowest_ms.max(began.elapsed().as_millis());
    report.largest_bytes = report.largest_bytes.max(bytes);
    if outcome.is_err() {
        report.describe(&source);
    }
    if bytes > MAX_BYTES {
        report.n_large += 1;
        report.describe(&format!("{bytes} bytes {source}"));
    }
}

/// Counts panics of all threads.
fn describe_panics(report: &Arc<Mutex<Report>>) {
    let report = Arc::clone(report);
    std::panic::set_hook(Box::new(move |panic| {
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        report.n_panics += 1;
        report.describe(&panic.to_string());
    }));
}

/// Ends the process if an input takes too long.
fn watch(report: &Arc<Mutex<Report>>, start: Instant, to: Destination, folder: PathBuf) {
    let report = Arc::clone(report);
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let began = Duration::from_millis(BEGAN_MS.load(Ordering::Relaxed));
            if start.elapsed().saturating_sub(began) > MAX_TIME {
                let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                report.describe("takes too long");
                to.write(&report.text(1));
                let _ = std::fs::remove_dir_all(&folder);
                std::process::exit(1);
            }
        }
    });
}

/// The file for the report, or standard output.
#[derive(Clone, Default)]
struct Destination(Option<PathBuf>);

impl Destination {
    fn write(&self, text: &str) {
        match &self.0 {
            Some(path) => std::fs::write(path, text).expect("a file for the report"),
            None => print!("{text}"),
        }
    }
}

#[derive(Default)]
struct Options {
    n_inputs: u64,
    first_seed: u64,
    report: Destination,
    /// The name of the only sample to change, and the only command to run.
    sample: Option<String>,
    command: Option<String>,
    samples: Vec<Sample>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Options {
        let mut options = Options::default();
        while let Some(word) = arguments.next() {
            let mut value = || arguments.next().expect("a value for the option");
            match word.as_str() {
                "--seed" => options.first_seed = value().parse().expect("a number"),
                "--report" => options.report = Destination(Some(value().into())),
                "--sample" => options.sample = Some(value()),
                "--command" => options.command = Some(value()),
                number if number.parse::<u64>().is_ok() => {
                    options.n_inputs = number.parse().unwrap_or(0);
                }
                file => options.samples.push(read_sample(Path::new(file))),
            }
        }
        options
    }
}

fn read_sample(path: &Path) -> Sample {
    let bytes = std::fs::read(path).expect("a sample that can be read");
    let (format, name) = match path.extension().and_then(|extension| extension.to_str()) {
        Some("heap") => (FileFormat::Heap, "given.heap"),
        Some("timeline") => (FileFormat::Text, "given.timeline"),
        Some("dat") => (FileFormat::Text, "given.dat"),
        Some("bin") => (FileFormat::Plain, "given.bin"),
        _ => (FileFormat::Capture, "given.tide"),
    };
    Sample {
        format,
        name,
        bytes,
    }
}

fn built_in() -> Vec<Sample> {
    let sample = |format, name, bytes| Sample {
        format,
        name,
        bytes,
    };
    let events = "alloc a 100 at main:3 > load:7; time 500; alloc m 8192 mmap at main:4; thread 2 pool; \
                  alloc b 50 at work:9 > load:8; free a; unmap m+4096 4096; part LibcFree 4096; resident 70000; \
                  limit 1000000; own 5000; time 1500; alloc c 3000000 at main:3 > load:7 > parse:2; free b; refuse; \
                  lost 3; resident 90000; end 2000";
    let mut sampled = header();
    sampled.mode.sample_bytes = 512 << 10;
    vec![
        sample(
            FileFormat::Capture,
            "events.tide",
            capture_bytes(&header(), events),
        ),
        sample(
            FileFormat::Capture,
            "sampled.tide",
            capture_bytes(&sampled, events),
        ),
        sample(
            FileFormat::Capture,
            "jobs.tide",
            capture_bytes(&header(), JOBS),
        ),
        sample(FileFormat::Heap, "shop.heap", heap(shop())),
        sample(FileFormat::Heap, "mixed.heap", heap(mixed())),
        sample(
            FileFormat::Text,
            "job.timeline",
            TIMELINE.as_bytes().to_vec(),
        ),
        sample(FileFormat::Text, "job.dat", MPROF.as_bytes().to_vec()),
        sample(FileFormat::Plain, "events.bin", memray_files::events()),
        sample(FileFormat::Plain, "sums.bin", memray_files::aggregated()),
    ]
}

fn heap(builder: HeapBuilder) -> Vec<u8> {
    write_heap(&builder.finish(), Vec::new()).expect("writing to a vector succeeds")
}

/// A module that holds a linked list and a set of texts with values, and a cycle that nothing holds.
fn mixed() -> HeapBuilder {
    let mut heap = HeapBuilder::new();
    let module = heap.object("module", 72);
    let namespace = heap.object("dict", 232);
    heap.edge(module, namespace, Label::new(EdgeType::DictOf, 0));
    heap.root(RootCategory::Module, "job", module);
    heap.root(RootCategory::C, "", namespace);
    let mut last = heap.object("list", 88);
    heap.named(namespace, last, EdgeType::Key, "chain");
    for _ in 0..40 {
        let next = heap.object("job.Node", 9_000);
        heap.named(last, next, EdgeType::Attribute, "next");
        last = next;
    }
    let texts = heap.object("set", 2_264);
    heap.named(namespace, texts, EdgeType::Key, "texts");
    for text in ["one", "two", "one", "ü"] {
        let object = heap.object("str", 52);
        heap.edge(texts, object, Label::new(EdgeType::Element, 0));
        heap.value(object, text);
    }
    let (one, other) = (heap.object("list", 64), heap.object("list", 64));
    heap.edge(one, other, Label::new(EdgeType::Index, 0));
    heap.edge(other, one, Label::new(EdgeType::Index, 0));
    heap
}

/// Two jobs of one name in turns, and one that does not end.
const JOBS: &str = "\
job 1 send k1; alloc a 5000 at main:3 > send:5; time 1000; alloc b 70 at main:3 > send:6; free b; job_end 1; time 2000
job 2 send k2; alloc c 6000 at main:3 > send:5; time 3000; job 0; free a; job 2 send; resident 90000; job_end 2 failed
thread 2 pool; job 3 load; alloc d 100 at work:9; time 4000; thread 1; job 0; alloc e 40 at main:4; end 5000
";
const TIMELINE: &str = "\
heaptide timeline 1
started 1794786898.5000
command python job.py --fast
host node7
rank 3
interval 0.1
backend pss
new 0.0000 0 40 1 python python job.py
at 0.0000 0=102400 0~90000,80000,0 group=900000 limit=5000000
new 0.1000 1 41 40 worker\\sA python -c 'a\\nb'
at 0.1000 0=112400 1=5000 1~4000,3000,10
call job.load 0.0500 102400 0.1500 112400 0
at 0.2000 1=9000 limit=none
end 0.3000 1
oom 1
at 1.3000
at 1.4000 0=120000
over 1.5000 exit 0
";
const MPROF: &str = "\
CMDLINE python job.py
MEM 10.5 1794786898.5000
FUNC job.load 10.5000 1794786898.6000 20.2500 1794786899.0000
CHLD 4712 3.250 1794786898.7000
MEM 20.25 1794786899.1
FUNC job.load 20.5 1794786899.2 20.5 1794786899.4
MEM 12 1794786899.5
";
