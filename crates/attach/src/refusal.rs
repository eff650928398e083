//! Reasons why a process cannot be entered, with messages that name the remedy. A refusal leaves the process unchanged.

use std::fmt;
use std::io;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    NoSuchProcess(u32),
    /// The process is this process itself.
    Itself(u32),
    /// The process is a zombie.
    Ended(u32),
    /// A signal stopped the process.
    Stopped(u32),
    OtherUser {
        pid: u32,
        owner: u32,
    },
    /// The kernel allows one tracer at a time.
    Traced {
        pid: u32,
        tracer: u32,
    },
    Forbidden {
        pid: u32,
        because: Forbidding,
    },
    NotPython {
        pid: u32,
        program: String,
    },
    OtherMachine {
        pid: u32,
        program: String,
    },
    /// A Python without the required functions.
    NoSymbols {
        pid: u32,
        program: String,
    },
    UnsupportedVersion {
        pid: u32,
        version: (u8, u8),
    },
    Musl(u32),
    /// Linked statically, or to an unsupported C library.
    NoLibc(u32),
    /// The interpreter was started with remote execution off.
    RemoteExecutionOff(u32),
    /// This version of Python has no remote execution, and the injector knows only x86-64.
    NoInjector {
        pid: u32,
        version: (u8, u8),
    },
    NoSafePoint(u32),
    NoAnswer(u32),
    EndedMeanwhile(u32),
    /// The process answered with this error message.
    Answered(String),
    /// A step failed unexpectedly.
    Failed {
        pid: u32,
        step: &'static str,
        error: String,
    },
}

/// The rule of the kernel that forbids entering a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forbidding {
    /// Yama's `ptrace_scope`, with its value.
    Yama(u8),
    /// The process is not dumpable, or has capabilities that this process lacks.
    Undumpable,
    /// The capability `CAP_SYS_PTRACE` is missing, as in most containers.
    Capability,
}

impl Refusal {
    pub fn failed(pid: u32, step: &'static str, error: &io::Error) -> Refusal {
        match error.raw_os_error() {
            Some(libc::ESRCH) => Refusal::EndedMeanwhile(pid),
            _ => Refusal::Failed {
                pid,
                step,
                error: error.to_string(),
            },
        }
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoSuchProcess(pid) => write!(
                out,
                "there is no process {pid}: check the process ID with ps"
            ),
            Refusal::Itself(pid) => write!(
                out,
                "process {pid} is this command itself: name the process to record"
            ),
            Refusal::Ended(pid) => write!(
                out,
                "process {pid} has ended and is a zombie: name a running process"
            ),
            Refusal::Stopped(pid) => write!(
                out,
                "process {pid} is stopped and cannot start recording: continue it with kill -CONT {pid} first"
            ),
            Refusal::OtherUser { pid, owner } => write!(
                out,
                "process {pid} belongs to another user (uid {owner}): attach as that user or as root"
            ),
            Refusal::Traced { pid, tracer } => write!(
                out,
                "process {pid} is traced by process {tracer}, such as a debugger or strace: detach that first"
            ),
            Refusal::Forbidden { pid, because } => because.explain(*pid, out),
            Refusal::NotPython { pid, program } => write!(
                out,
                "process {pid} ({program}) is not a CPython interpreter: name the process that runs Python"
            ),
            Refusal::OtherMachine { pid, program } => write!(
                out,
                "process {pid} ({program}) is a program for another processor architecture: attach with a heaptide built for it"
            ),
            Refusal::NoSymbols { pid, program } => write!(
                out,
                "process {pid} ({program}) is a statically linked Python without symbols, so its functions cannot be found: \
                 start it with heaptide run instead"
            ),
            Refusal::UnsupportedVersion {
                pid,
                version: (major, minor),
            } => write!(
                out,
                "process {pid} runs Python {major}.{minor}, and heaptide supports 3.10 and later: use a newer Python"
            ),
            Refusal::Musl(pid) => write!(
                out,
                "process {pid} runs on musl, and this heaptide is built for glibc: \
                 start it with heaptide run from a musl wheel instead"
            ),
            Refusal::NoLibc(pid) => write!(
                out,
                "process {pid} is linked statically, or to a C library other than glibc: \
                 start it with heaptide run instead"
            ),
            Refusal::RemoteExecutionOff(pid) => write!(
                out,
                "process {pid} was started with remote execution off: \
                 start it without PYTHON_DISABLE_REMOTE_DEBUG and -X disable-remote-debug"
            ),
            Refusal::NoInjector {
                pid,
                version: (major, minor),
            } => write!(
                out,
                "process {pid} runs Python {major}.{minor}, which can be entered on x86-64 only: \
                 use Python 3.14 or later, or gdb as docs/guide/attach.md shows"
            ),
            Refusal::NoSafePoint(pid) => write!(
                out,
                "process {pid} was never at a point where it could be entered safely: try again when it runs Python code"
            ),
            Refusal::NoAnswer(pid) => write!(
                out,
                "process {pid} did not answer, perhaps because a long call into C holds the GIL: try again later"
            ),
            Refusal::EndedMeanwhile(pid) => {
                write!(
                    out,
                    "process {pid} has ended meanwhile: name a running process"
                )
            }
            Refusal::Answered(sentence) => out.write_str(sentence),
            Refusal::Failed { pid, step, error } => write!(
                out,
                "process {pid} cannot be entered, {step} failed ({error}): use gdb as docs/guide/attach.md shows"
            ),
        }
    }
}

impl Forbidding {
    fn explain(self, pid: u32, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Forbidding::Yama(3) => write!(
                out,
                "process {pid} cannot be entered because kernel.yama.ptrace_scope is 3, which holds until the next boot: \
                 start it with heaptide run instead"
            ),
            Forbidding::Yama(scope) => write!(
                out,
                "process {pid} cannot be entered because kernel.yama.ptrace_scope is {scope}: \
                 run this command as root, or set it with sysctl kernel.yama.ptrace_scope=0"
            ),
            Forbidding::Undumpable => write!(
                out,
                "process {pid} forbids access (it is not dumpable, or has capabilities that this command lacks): \
                 run this command as root on the host, with all capabilities"
            ),
            Forbidding::Capability => write!(
                out,
                "process {pid} cannot be entered without the capability CAP_SYS_PTRACE: \
                 run this command on the host, or start the container with --cap-add SYS_PTRACE"
            ),
        }
    }
}
