//! The recording loop: sample all processes, write the sample, wait for the next tick.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use heaptide_procfs as procfs;
use heaptide_timeline::{Backend, Ending, Format, Header, Memory, NewProcess, Recorder, Tick};

use crate::cgroup::Cgroup;
use crate::command::{self, Hide};
use crate::functions::{self, Functions};
use crate::node;
use crate::program::{Attached, Program, StartError};
use crate::tree::Tree;

/// The cgroup's limit and the function calls are read less often than every tick.
const SLOW_INTERVAL: Duration = Duration::from_secs(1);

pub enum Target {
    /// A program to start.
    Command(Vec<OsString>),
    /// A running process.
    Process(u32),
}

impl Target {
    /// Fills in the command, the time, and the facts that identify processes of this machine.
    pub fn describe(&self, header: &mut Header, hide: Hide) {
        header.command = match self {
            Target::Command(words) => {
                let words = words.iter().map(|word| word.to_string_lossy().into_owned());
                command::join(hide(words.collect()))
            }
            Target::Process(pid) => command::command_of(*pid, hide).unwrap_or_default(),
        };
        header.started_s = unix_seconds();
        header.facts = procfs::pid_space_facts();
        header.facts.extend(node::run_facts(hide));
    }
}

pub struct Plan {
    pub target: Target,
    pub interval: Duration,
    /// Recording ends after this time; the program continues.
    pub timeout: Option<Duration>,
    pub format: Format,
    /// Mount point of control groups: [`cgroup::ROOT`].
    pub groups: PathBuf,
    /// The control groups of the program, in the form of `/proc/PID/cgroup`; `None` reads them. Tests supply them.
    pub membership: Option<String>,
    /// The header of the file. [`Target::describe`] fills in the fields that depend on the target.
    pub header: Header,
    pub hide: Hide,
}

#[derive(Debug)]
pub struct Finished {
    pub ending: Ending,
    pub n_oom_kills: u64,
    /// The largest sum of all processes, by the plan's backend.
    pub peak_bytes: u64,
    /// The largest size of the first process.
    pub first_process_peak_bytes: u64,
    /// Processes that count with their resident size, because only their own user may read the size of the backend.
    pub n_resident_only: usize,
    /// The error that made the file incomplete. It does not affect the program.
    pub write_error: Option<io::Error>,
}

/// Records one run into a new file that has its header. The program runs to its end even if writing the file fails.
pub fn watch(plan: Plan, file: File, path: &Path) -> Result<Finished, StartError> {
    let mut functions = Functions::beside(path);
    let mut before = procfs::pids();
    // A program starts in the cgroup of this process; counters are read before it can change them.
    let in_group = match plan.target {
        Target::Command(_) => std::process::id(),
        Target::Process(pid) => pid,
    };
    let group = match &plan.membership {
        Some(membership) => Cgroup::below(&plan.groups, membership),
        None => Cgroup::of(in_group, &plan.groups),
    };
    let n_kills_before = procfs::oom_kills().unwrap_or(0);
    let (mut watched, root) = match &plan.target {
        Target::Command(words) => {
            let program =
                Program::start(words, (functions::VARIABLE, functions.path().as_os_str()))?;
            let pid = program.pid;
            (Watched::Program(program), pid)
        }
        Target::Process(pid) => {
            // The attached process may have started any of these processes.
            before.clear();
            (Watched::Process(Attached::begin()), *pid)
        }
    };
    let began = Instant::now();
    let header = plan.header;
    let mut session = Session {
        tree: Tree::new(root, before, header.backend, plan.hide),
        group,
        limit: None,
        n_kills_before,
        peak_bytes: 0,
        first_process_peak_bytes: 0,
        n_ticks: 0,
        slow: None,
        header: header.clone(),
    };
    let mut out = Writing {
        recorder: Some(Recorder::after_header(file, plan.format, header)),
        error: None,
    };
    let end = plan.timeout.and_then(|timeout| began.checked_add(timeout));
    let mut next = began;
    let ending = loop {
        let now = Instant::now();
        if end.is_some_and(|end| now >= end) {
            break Ending::StillRunning;
        }
        session.tick(now, &mut out, &mut functions);
        if session.is_over(&watched) {
            break Ending::Unknown;
        }
        // Missed ticks are skipped.
        while next <= now {
            next += plan.interval;
        }
        let next = end.map_or(next, |end| next.min(end));
        if let Some(ending) = watched.wait_until(next) {
            break ending;
        }
    };
    session.add_missing_sample(root, &mut out);
    for call in functions.finish() {
        out.write(|recorder| recorder.call(&call));
    }
    let n_oom_kills = session.n_oom_kills(ending);
    out.write(|recorder| recorder.finish(unix_seconds(), ending, n_oom_kills));
    // Waits only now: the recording is over, but the program may run for hours.
    let ending = match (&mut watched, ending) {
        (Watched::Program(program), Ending::StillRunning) => {
            program.wait_until(None).unwrap_or(Ending::Exit(0))
        }
        _ => ending,
    };
    Ok(Finished {
        ending,
        n_oom_kills,
        peak_bytes: session.peak_bytes,
        first_process_peak_bytes: session.first_process_peak_bytes,
        n_resident_only: match session.header.backend {
            Backend::Rss => 0,
            Backend::Pss | Backend::Uss => session.tree.map_or(0, |tree| tree.n_of_other_users),
        },
        write_error: out.error,
    })
}

enum Watched {
    Program(Program),
    Process(Attached),
}

impl Watched {
    fn wait_until(&mut self, deadline: Instant) -> Option<Ending> {
        match self {
            Watched::Program(program) => program.wait_until(Some(deadline)),
            Watched::Process(attached) => attached
                .wait_until(deadline)
                .then_some(Ending::StillRunning),
        }
    }
}

struct Session {
    tree: Option<Tree>,
    group: Option<Cgroup>,
    limit: Option<u64>,
    n_kills_before: u64,
    peak_bytes: u64,
    first_process_peak_bytes: u64,
    n_ticks: u64,
    slow: Option<Instant>,
    header: Header,
}

impl Session {
    fn tick(&mut self, now: Instant, out: &mut Writing, functions: &mut Functions) {
        let is_slow = self
            .slow
            .is_none_or(|last| now.duration_since(last) >= SLOW_INTERVAL);
        if is_slow {
            self.slow = Some(now);
            self.limit = self.group.as_ref().and_then(Cgroup::limit);
            for call in functions.take() {
                out.write(|recorder| recorder.call(&call));
            }
        }
        let Some(tree) = &mut self.tree else { return };
        let changes = tree.sample(now);
        let time_s = unix_seconds();
        for number in changes.ended {
            out.write(|recorder| recorder.ended(time_s, number));
        }
        for number in changes.named {
            let Some(member) = tree.members.iter().find(|member| member.number == number) else {
                continue;
            };
            let appeared = NewProcess {
                number,
                pid: member.pid,
                parent: member.parent,
                name: &member.name,
                command: &member.command,
                start: &procfs::start_text(member.start),
            };
            out.write(|recorder| recorder.appeared(time_s, &appeared));
        }
        if tree.members.is_empty() {
            return;
        }
        let processes: Vec<_> = tree
            .members
            .iter()
            .map(|member| (member.number, member.pid, member.memory))
            .collect();
        let sizes = processes
            .iter()
            .map(|(.., memory)| memory.by(self.header.backend));
        self.peak_bytes = self.peak_bytes.max(sizes.sum());
        let first = processes.iter().find(|(number, ..)| *number == 0);
        let first = first.map_or(0, |(.., memory)| memory.by(self.header.backend));
        self.first_process_peak_bytes = self.first_process_peak_bytes.max(first);
        let tick = Tick {
            time_s,
            processes,
            group: self.group.as_ref().and_then(Cgroup::usage),
            limit: self.limit,
        };
        self.n_ticks += 1;
        out.write(|recorder| recorder.tick(&tick));
    }

    /// Adds a sample of 0 bytes for a program that ended before the first sample.
    fn add_missing_sample(&self, root: u32, out: &mut Writing) {
        if self.n_ticks > 0 {
            return;
        }
        let time_s = unix_seconds();
        let appeared = NewProcess {
            number: 0,
            pid: root,
            parent: std::process::id(),
            name: "",
            command: &self.header.command,
            start: "",
        };
        out.write(|recorder| recorder.appeared(time_s, &appeared));
        let tick = Tick {
            time_s,
            processes: vec![(0, root, Memory::default())],
            group: self.group.as_ref().and_then(Cgroup::usage),
            limit: self.group.as_ref().and_then(Cgroup::limit),
        };
        out.write(|recorder| recorder.tick(&tick));
    }

    /// Returns whether the process has disappeared. A process that is not a child has no exit status.
    fn is_over(&self, watched: &Watched) -> bool {
        let exists = self.tree.as_ref().is_some_and(Tree::has_root);
        matches!(watched, Watched::Process(_)) && !exists
    }

    /// Counts out-of-memory kills in the run's control group; if none and SIGKILL ended the program, on the machine.
    fn n_oom_kills(&self, ending: Ending) -> u64 {
        let in_group = self.group.as_ref().map_or(0, Cgroup::n_kills);
        if in_group == 0 && ending == Ending::Signal(libc::SIGKILL) {
            return procfs::oom_kills()
                .unwrap_or(0)
                .saturating_sub(self.n_kills_before);
        }
        in_group
    }
}

/// The file, until writing to it fails.
struct Writing {
    recorder: Option<Recorder<File>>,
    error: Option<io::Error>,
}

impl Writing {
    fn write(&mut self, write: impl FnOnce(&mut Recorder<File>) -> io::Result<()>) {
        if let Some(Err(error)) = self.recorder.as_mut().map(write) {
            self.error = Some(error);
            self.recorder = None;
        }
    }
}

fn unix_seconds() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}
