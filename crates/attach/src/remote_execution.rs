//! Remote execution (PEP 768) of Python 3.14 and later. The path of a script is written into the state of the main
//! thread, which runs the script at its next safe point. No thread is stopped.
//!
//! The interpreter publishes the offsets at the start of `_PyRuntime`. The layout of that table is known for 3.14 and 3.15
//! and fixed within a minor version. Other versions are entered by the injector.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use heaptide_procfs as procfs;

use crate::memory::{Memory, word_at};
use crate::preflight::Target;
use crate::refusal::Refusal;

/// The bit in a thread's eval breaker that requests a remote script.
const PLEASE_STOP: u8 = 1 << 5;
/// A main thread that runs or waits for the GIL runs the script within this time, even among many threads.
const START_TIMEOUT: Duration = Duration::from_millis(250);

/// Positions of the published offsets, in words.
struct Layout {
    minor: u8,
    n_words: usize,
    debugger_support: usize,
}

const INTERPRETERS_HEAD: usize = 5;
const MAIN_THREAD: usize = 10;
const LAYOUTS: [Layout; 2] = [
    Layout {
        minor: 14,
        n_words: 95,
        debugger_support: 89,
    },
    Layout {
        minor: 15,
        n_words: 111,
        debugger_support: 105,
    },
];
/// No thread or interpreter state is larger.
const MAX_OFFSET: u64 = 1 << 24;

/// A process that supports remote execution.
pub struct RemoteExecution {
    pid: u32,
    memory: Memory,
    /// Addresses in the state of the main thread.
    breaker: u64,
    pending: u64,
    script: u64,
    script_len: usize,
}

impl RemoteExecution {
    /// Returns `None` if the interpreter has no supported remote execution, or no main thread.
    pub fn find(target: &Target) -> Result<Option<RemoteExecution>, Refusal> {
        let (3, minor) = target.interpreter.version else {
            return Ok(None);
        };
        let layout = LAYOUTS.iter().find(|layout| layout.minor == minor);
        let (Some(layout), Some(runtime)) = (layout, target.interpreter.runtime) else {
            return Ok(None);
        };
        let memory = Memory::of(target.pid);
        let reading = |error: io::Error| Refusal::failed(target.pid, "reading its state", &error);
        let published = memory
            .read(runtime.address, layout.n_words * 8)
            .map_err(reading)?;
        let is_known = published.starts_with(b"xdebugpy")
            && word_at(&published, 8)
                .is_some_and(|version| version >> 16 == 0x300 + u64::from(minor));
        if !is_known {
            return Ok(None);
        }
        let offset = |at: usize| word_at(&published, at * 8).filter(|&offset| offset < MAX_OFFSET);
        let support = |at: usize| offset(layout.debugger_support + at);
        let (Some(interpreters), Some(main)) = (offset(INTERPRETERS_HEAD), offset(MAIN_THREAD))
        else {
            return Ok(None);
        };
        let (Some(breaker), Some(base), Some(enabled), Some(pending), Some(script), Some(len)) = (
            support(0),
            support(1),
            support(2),
            support(3),
            support(4),
            support(5),
        ) else {
            return Ok(None);
        };
        let interpreter = memory
            .word(runtime.address + interpreters)
            .map_err(reading)?;
        if interpreter == 0 {
            return Ok(None);
        }
        let is_enabled = memory.read(interpreter + enabled, 4).map_err(reading)?;
        if is_enabled == [0; 4] {
            return Err(Refusal::RemoteExecutionOff(target.pid));
        }
        let thread = memory.word(interpreter + main).map_err(reading)?;
        if thread == 0 {
            return Ok(None);
        }
        Ok(Some(RemoteExecution {
            pid: target.pid,
            memory,
            breaker: thread + breaker,
            pending: thread + base + pending,
            script: thread + base + script,
            script_len: len as usize,
        }))
    }

    /// Returns the time to wait: zero if the main thread is blocked and the injector is available.
    pub fn timeout(&self) -> Duration {
        let call = procfs::system_call(self.pid, self.pid);
        let number = call.split(' ').next().and_then(|word| word.parse().ok());
        // A thread in a futex usually waits for the GIL, which another thread holds; that wait is short.
        let is_blocked = number.is_some_and(|number: libc::c_long| number != libc::SYS_futex);
        match (is_blocked, cfg!(target_arch = "x86_64")) {
            (true, true) => Duration::ZERO,
            (false, true) => START_TIMEOUT,
            (_, false) => Duration::from_secs(30),
        }
    }

    /// Requests a script, by its path in the process. Returns false if the path is too long.
    pub fn request(&self, script: &Path) -> Result<bool, Refusal> {
        let mut path = script.as_os_str().as_bytes().to_vec();
        path.push(0);
        if path.len() > self.script_len {
            return Ok(false);
        }
        let write = || {
            self.memory.write(self.script, &path)?;
            self.memory.write(self.pending, &1i32.to_ne_bytes())?;
            // Writes only the byte with the flag, because the process changes the other bytes at any time.
            let flags = self.memory.read(self.breaker, 1)?;
            self.memory.write(self.breaker, &[flags[0] | PLEASE_STOP])
        };
        write().map(|()| true).map_err(|error: io::Error| {
            Refusal::failed(self.pid, "asking it to run a script", &error)
        })
    }

    /// Withdraws the request. Returns false if that is too late: the main thread will run the script.
    pub fn withdraw(&self) -> Result<bool, Refusal> {
        let withdrawn = || {
            let is_pending = || -> io::Result<bool> {
                let pending = self.memory.read(self.pending, 4)?;
                Ok(pending != [0; 4])
            };
            if !is_pending()? {
                return Ok(false);
            }
            // A thread that checks between these two writes finds an empty path and runs nothing.
            self.memory.write(self.script, &[0])?;
            let is_withdrawn = is_pending()?;
            self.memory.write(self.pending, &0i32.to_ne_bytes())?;
            Ok(is_withdrawn)
        };
        withdrawn().map_err(|error: io::Error| {
            Refusal::failed(self.pid, "asking it to run a script", &error)
        })
    }
}
