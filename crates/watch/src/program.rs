//! The program that is watched: started as it would have been without us, and told of every signal that we get.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use heaptide_timeline::Ending;

use crate::sys::{self, Change, HeldSignals};

/// How long to wait at a time when there is nothing else to do. Not for ever: where this process has other threads, the news
/// of a child's end may go to one of them.
const LONG: Duration = Duration::from_secs(1);

/// The program could not be started.
#[derive(Debug)]
pub struct StartError {
    pub program: String,
    pub error: io::Error,
}

impl StartError {
    /// What shells return for it.
    pub fn exit_code(&self) -> i32 {
        if self.error.kind() == io::ErrorKind::NotFound {
            127
        } else {
            126
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StartError { program, error } = self;
        write!(
            f,
            "{program} cannot be started ({error}): check its name and whether it may be executed"
        )
    }
}

impl std::error::Error for StartError {}

pub struct Program {
    pub pid: u32,
    signals: HeldSignals,
    /// We were told to stop, and do so as soon as the program has.
    is_to_stop: bool,
}

impl Program {
    /// Standard streams, directory and environment are ours.
    pub fn start(
        words: &[OsString],
        variable: (&'static str, &OsStr),
    ) -> Result<Program, StartError> {
        let signals = HeldSignals::hold();
        let start = Start {
            words: words.to_vec(),
            variables: vec![(variable.0, variable.1.to_owned())],
        };
        let pid = start_one(&signals, &start)?;
        Ok(Program {
            pid,
            signals,
            is_to_stop: false,
        })
    }

    /// Waits, and passes signals on. Returns early if the program ends.
    pub fn wait_until(&mut self, deadline: Option<Instant>) -> Option<Ending> {
        loop {
            if let Some(ending) = self.changed() {
                return Some(ending);
            }
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => LONG,
            };
            let arrived = self.signals.wait(left);
            match arrived {
                Some(arrived) => self.pass_on(arrived),
                None if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                    return self.changed();
                }
                None => {}
            }
        }
    }

    fn changed(&mut self) -> Option<Ending> {
        match sys::change_of(self.pid)? {
            Change::Exited(code) => Some(Ending::Exit(code)),
            Change::Killed(signal) => Some(Ending::Signal(signal)),
            // Nobody can tell any more how it ended; it did not tell us of a failure.
            Change::Gone => Some(Ending::Exit(0)),
            Change::Stopped => {
                // Only if the stop was meant for us, too: one that an operator sent to the program alone is its own.
                if std::mem::take(&mut self.is_to_stop) {
                    sys::stop_self();
                    sys::send(self.pid, libc::SIGCONT);
                }
                None
            }
        }
    }

    fn pass_on(&mut self, arrived: sys::Arrived) {
        match arrived.signal {
            libc::SIGCHLD => return,
            libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => self.is_to_stop = true,
            libc::SIGCONT => self.is_to_stop = false,
            _ => {}
        }
        // What a terminal sends, it sends to the program as well.
        if arrived.is_from_process {
            sys::send(self.pid, arrived.signal);
        }
    }
}

/// A command with what it finds in its environment besides ours.
pub struct Start {
    pub words: Vec<OsString>,
    pub variables: Vec<(&'static str, OsString)>,
}

/// Runs programs side by side to their ends; all are told of signals that we get. If one cannot be started, those before
/// it are ended again.
pub fn run_all(starts: &[Start]) -> Result<Vec<Ending>, StartError> {
    let signals = HeldSignals::hold();
    let mut running: Vec<(u32, Option<Ending>)> = Vec::new();
    for start in starts {
        match start_one(&signals, start) {
            Ok(pid) => running.push((pid, None)),
            Err(error) => {
                for (pid, _) in running {
                    sys::send(pid, libc::SIGTERM);
                }
                return Err(error);
            }
        }
    }
    loop {
        for (pid, ending) in running.iter_mut().filter(|(_, ending)| ending.is_none()) {
            *ending = match sys::change_of(*pid) {
                Some(Change::Exited(code)) => Some(Ending::Exit(code)),
                Some(Change::Killed(signal)) => Some(Ending::Signal(signal)),
                Some(Change::Gone) => Some(Ending::Unknown),
                Some(Change::Stopped) | None => None,
            };
        }
        let left = running.iter().filter(|(_, ending)| ending.is_none());
        let left: Vec<u32> = left.map(|(pid, _)| *pid).collect();
        if left.is_empty() {
            return Ok(running
                .into_iter()
                .filter_map(|(_, ending)| ending)
                .collect());
        }
        let Some(arrived) = signals.wait(LONG) else {
            continue;
        };
        if arrived.is_from_process && arrived.signal != libc::SIGCHLD {
            for pid in left {
                sys::send(pid, arrived.signal);
            }
        }
    }
}

fn start_one(signals: &HeldSignals, start: &Start) -> Result<u32, StartError> {
    let (name, arguments) = start.words.split_first().ok_or_else(|| StartError {
        program: String::new(),
        error: io::ErrorKind::NotFound.into(),
    })?;
    let mut command = Command::new(name);
    command
        .args(arguments)
        .envs(start.variables.iter().map(|(name, value)| (name, value)));
    signals.restore_in(&mut command);
    let child = command.spawn().map_err(|error| StartError {
        program: name.to_string_lossy().into_owned(),
        error,
    })?;
    Ok(child.id())
}

/// Signals while somebody else's program is watched: those that ask us to end do.
pub struct Attached(HeldSignals);

impl Attached {
    pub fn begin() -> Attached {
        Attached(HeldSignals::hold())
    }

    /// Whether we are asked to end before the deadline.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.0.wait(left).map(|arrived| arrived.signal) {
                Some(libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) => return true,
                Some(libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) => sys::stop_self(),
                None if Instant::now() >= deadline => return false,
                _ => {}
            }
        }
    }
}
