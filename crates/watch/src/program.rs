//! The watched program: it starts as it would without Heaptide, which forwards the signals listed in `sys` to it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use heaptide_timeline::Ending;

use crate::sys::{self, Change, HeldSignals};

/// The longest wait when there is nothing else to do. Bounded, because the SIGCHLD of a child's end may be delivered to
/// another thread of this process.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The program could not be started.
#[derive(Debug)]
pub struct StartError {
    pub program: String,
    pub error: io::Error,
}

impl StartError {
    /// Returns the exit code that shells use for this failure.
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

/// Handles Ctrl-Z: the terminal signals this process and the program, and this process stops once the program has
/// stopped. The two events come in any order. If the program ignores the signal, both continue. A stop sent only to the
/// program is ignored.
#[derive(Debug, Default)]
struct Pause {
    is_requested: bool,
    has_program_stopped: bool,
}

impl Pause {
    fn note_signal(&mut self, signal: i32) {
        match signal {
            libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => self.is_requested = true,
            libc::SIGCONT => self.is_requested = false,
            _ => {}
        }
    }

    /// Returns whether this process must also stop; true only once.
    fn is_due(&mut self) -> bool {
        let is_due = self.is_requested && self.has_program_stopped;
        if is_due {
            *self = Pause::default();
        }
        is_due
    }
}

impl Program {
    /// The program inherits standard streams, directory and environment.
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

    /// Waits and forwards signals. Returns early if the program ends.
    pub fn wait_until(&mut self, deadline: Option<Instant>) -> Option<Ending> {
        loop {
            if let Some(ending) = self.changed() {
                return Some(ending);
            }
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => MAX_WAIT,
            };
            let arrived = self.signals.wait(left);
            match arrived {
                Some(arrived) => self.forward(arrived),
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
                // The exit status is unavailable, so assume that the program succeeded.
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

    fn forward(&mut self, arrived: sys::Arrived) {
        self.pause.note_signal(arrived.signal);
        // The terminal also sends its signals to the program.
        if arrived.is_from_process && arrived.signal != libc::SIGCHLD {
            sys::send(self.pid, arrived.signal);
        }
    }
}

/// A command and its additional environment variables.
pub struct Start {
    pub words: Vec<OsString>,
    pub variables: Vec<(&'static str, OsString)>,
}

/// Runs several programs to their ends and forwards signals to all. If one cannot be started, those already started are
/// terminated.
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
        let Some(arrived) = signals.wait(MAX_WAIT) else {
            continue;
        };
        pause.note_signal(arrived.signal);
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

/// Signals while an existing process is watched: requests to end (SIGINT, SIGTERM, SIGHUP, SIGQUIT) end the recording.
pub struct Attached(HeldSignals);

impl Attached {
    pub fn begin() -> Attached {
        Attached(HeldSignals::hold())
    }

    /// Returns whether a signal ends the recording before the deadline.
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
    fn ctrl_z_stops_this_process_whichever_of_the_two_events_comes_first() {
        let mut pause = Pause::default();
        pause.note_signal(libc::SIGTSTP);
        assert!(!pause.is_due());
        pause.has_program_stopped = true;
        assert!(pause.is_due() && !pause.is_due());
        pause.has_program_stopped = true;
        assert!(!pause.is_due(), "a stop of the program alone");
        pause.note_signal(libc::SIGTSTP);
        assert!(pause.is_due());
        pause.note_signal(libc::SIGTSTP);
        pause.note_signal(libc::SIGCONT);
        pause.has_program_stopped = true;
        assert!(!pause.is_due());
    }
}
