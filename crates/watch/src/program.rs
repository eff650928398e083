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
    pause: Pause,
}

/// Ctrl-Z: the terminal tells us and the program, and we stop when the program has. Either news may come first. A program that
/// takes no notice goes on, and so do we; a stop that an operator sent to the program alone is its own.
#[derive(Debug, Default)]
struct Pause {
    is_asked: bool,
    has_program_stopped: bool,
}

impl Pause {
    fn hear(&mut self, signal: i32) {
        match signal {
            libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => self.is_asked = true,
            libc::SIGCONT => self.is_asked = false,
            _ => {}
        }
    }

    /// Whether it is time for us to stop as well. Says so once.
    fn is_due(&mut self) -> bool {
        let is_due = self.is_asked && self.has_program_stopped;
        if is_due {
            *self = Pause::default();
        }
        is_due
    }
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
            pause: Pause::default(),
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
        while let Some(change) = sys::change_of(self.pid) {
            match change {
                Change::Exited(code) => return Some(Ending::Exit(code)),
                Change::Killed(signal) => return Some(Ending::Signal(signal)),
                // Nobody can tell any more how it ended; it did not tell us of a failure.
                Change::Gone => return Some(Ending::Exit(0)),
                Change::Stopped => self.pause.has_program_stopped = true,
                Change::Continued => self.pause.has_program_stopped = false,
            }
        }
        if self.pause.is_due() {
            sys::stop_self();
            sys::send(self.pid, libc::SIGCONT);
        }
        None
    }

    fn pass_on(&mut self, arrived: sys::Arrived) {
        self.pause.hear(arrived.signal);
        // What a terminal sends, it sends to the program as well.
        if arrived.is_from_process && arrived.signal != libc::SIGCHLD {
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
    let mut pause = Pause::default();
    loop {
        for (pid, ending) in running.iter_mut().filter(|(_, ending)| ending.is_none()) {
            *ending = match sys::change_of(*pid) {
                Some(Change::Exited(code)) => Some(Ending::Exit(code)),
                Some(Change::Killed(signal)) => Some(Ending::Signal(signal)),
                Some(Change::Gone) => Some(Ending::Unknown),
                Some(change @ (Change::Stopped | Change::Continued)) => {
                    pause.has_program_stopped = change == Change::Stopped;
                    None
                }
                None => None,
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
        if pause.is_due() {
            sys::stop_self();
            for &pid in &left {
                sys::send(pid, libc::SIGCONT);
            }
        }
        let Some(arrived) = signals.wait(LONG) else {
            continue;
        };
        pause.hear(arrived.signal);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_stops_us_whether_we_hear_of_it_before_or_after_the_program_has_stopped() {
        let mut pause = Pause::default();
        pause.hear(libc::SIGTSTP);
        assert!(!pause.is_due());
        pause.has_program_stopped = true;
        assert!(pause.is_due() && !pause.is_due());
        pause.has_program_stopped = true;
        assert!(!pause.is_due(), "its own stop");
        pause.hear(libc::SIGTSTP);
        assert!(pause.is_due());
        pause.hear(libc::SIGTSTP);
        pause.hear(libc::SIGCONT);
        pause.has_program_stopped = true;
        assert!(!pause.is_due());
    }
}
