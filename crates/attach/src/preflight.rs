//! Checks whether a process can be entered (made to run Heaptide's code), before Heaptide changes anything in it.

use std::io;

use heaptide_procfs::{self as procfs, Mapping, Status};

use crate::image::Image;
use crate::interpreter::{CLibrary, Interpreter};
use crate::memory::Memory;
use crate::refusal::{Forbidding, Refusal};

/// The capability to enter processes of other users.
const CAP_SYS_PTRACE: u32 = 19;

/// A process that may be entered.
#[derive(Clone, Debug)]
pub struct Target {
    pub pid: u32,
    pub status: Status,
    pub interpreter: Interpreter,
    pub libc: CLibrary,
    /// Address of `heaptide_leave_out_thread`, if the process has already loaded the extension module that exports it.
    pub leave_out_thread: Option<u64>,
}

impl Target {
    pub fn find(pid: u32) -> Result<Target, Refusal> {
        let status = Status::of(pid).map_err(|_| Refusal::NoSuchProcess(pid))?;
        judge(pid, &status, own_user(), has_capability())?;
        let mappings = procfs::mappings(pid).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => forbidden(pid, Forbidding::Undumpable),
            _ => Refusal::EndedMeanwhile(pid),
        })?;
        probe(pid, &mappings)?;
        let interpreter = Interpreter::find(pid, &mappings)?;
        let libc = CLibrary::find(pid, &mappings)?;
        Ok(Target {
            pid,
            status,
            interpreter,
            libc,
            leave_out_thread: own_function(pid, &mappings, "heaptide_leave_out_thread"),
        })
    }
}

fn own_function(pid: u32, mappings: &[Mapping], name: &str) -> Option<u64> {
    let memory = Memory::of(pid);
    let extensions = mappings
        .iter()
        .filter(|mapping| mapping.path.ends_with("/_native.abi3.so"));
    let mut images = extensions.filter_map(|mapping| Image::read(&memory, mapping).ok());
    images.find_map(|image| Some(image.symbol(name)?.address))
}

/// Returns a refusal if the status alone forbids entering.
fn judge(pid: u32, status: &Status, user: u32, may_all: bool) -> Result<(), Refusal> {
    if pid == std::process::id() {
        return Err(Refusal::Itself(pid));
    }
    if status.has_ended() {
        return Err(Refusal::Ended(pid));
    }
    let [real, effective, saved, _] = status.users;
    if !may_all && [real, effective, saved] != [user; 3] {
        let owner = if effective == user { real } else { effective };
        return Err(Refusal::OtherUser { pid, owner });
    }
    if status.tracer != 0 {
        return Err(Refusal::Traced {
            pid,
            tracer: status.tracer,
        });
    }
    if matches!(status.state, b'T' | b't') {
        return Err(Refusal::Stopped(pid));
    }
    Ok(())
}

/// Reads one word of the process's memory, which needs the same permission as all later steps.
fn probe(pid: u32, mappings: &[Mapping]) -> Result<(), Refusal> {
    let Some(first) = mappings.iter().find(|mapping| mapping.is_readable) else {
        // A process without readable memory is a kernel thread.
        let program = procfs::program_name(pid);
        return Err(Refusal::NotPython { pid, program });
    };
    match Memory::of(pid).read(first.start, 8) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(forbidden(pid, Forbidding::Capability))
        }
        Err(error) => Err(Refusal::failed(pid, "reading its memory", &error)),
        Ok(_) => Ok(()),
    }
}

/// Returns a refusal that names the rule of the kernel: Yama's if it applies, else `otherwise`.
pub fn forbidden(pid: u32, otherwise: Forbidding) -> Refusal {
    let scope = procfs::ptrace_scope().unwrap_or(0);
    let because = forbidding(scope, has_capability(), otherwise);
    Refusal::Forbidden { pid, because }
}

fn forbidding(scope: u8, has_capability: bool, otherwise: Forbidding) -> Forbidding {
    match scope {
        3.. => Forbidding::Yama(3),
        1..=2 if !has_capability => Forbidding::Yama(scope),
        _ => otherwise,
    }
}

fn own_user() -> u32 {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() }
}

fn has_capability() -> bool {
    Status::of("self").is_ok_and(|status| status.capabilities >> CAP_SYS_PTRACE & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> Status {
        Status {
            state: b'R',
            users: [1000; 4],
            ..Status::default()
        }
    }

    #[test]
    fn each_obstacle_has_its_own_refusal() {
        let judged = |status: Status| judge(1, &status, 1000, false);
        assert_eq!(judged(running()), Ok(()));
        let ended = Status {
            state: b'Z',
            ..running()
        };
        assert_eq!(judged(ended), Err(Refusal::Ended(1)));
        let stopped = Status {
            state: b'T',
            ..running()
        };
        assert_eq!(judged(stopped), Err(Refusal::Stopped(1)));
        let traced = Status {
            tracer: 9,
            ..running()
        };
        assert_eq!(judged(traced), Err(Refusal::Traced { pid: 1, tracer: 9 }));
        let other = Status {
            users: [1001; 4],
            ..running()
        };
        let refused = Err(Refusal::OtherUser {
            pid: 1,
            owner: 1001,
        });
        assert_eq!(judged(other.clone()), refused);
        assert_eq!(judge(1, &other, 1000, true), Ok(()));
        let privileged = Status {
            users: [1000, 0, 0, 0],
            ..running()
        };
        assert_eq!(
            judged(privileged),
            Err(Refusal::OtherUser { pid: 1, owner: 0 })
        );
        let own = std::process::id();
        let itself = judge(own, &running(), 1000, false);
        assert_eq!(itself, Err(Refusal::Itself(own)));
    }

    #[test]
    fn yama_is_named_only_where_it_decides() {
        let undumpable = Forbidding::Undumpable;
        assert_eq!(forbidding(0, false, undumpable), undumpable);
        assert_eq!(forbidding(1, false, undumpable), Forbidding::Yama(1));
        assert_eq!(forbidding(2, true, undumpable), undumpable);
        assert_eq!(forbidding(3, true, undumpable), Forbidding::Yama(3));
    }

    #[test]
    fn missing_process_is_refused() {
        // Pids end at 4 194 304.
        let found = Target::find(4_200_000).map(|target| target.pid);
        assert_eq!(found, Err(Refusal::NoSuchProcess(4_200_000)));
    }
}
