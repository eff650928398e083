//! Jobs of this machine that have control, found by their sockets.

use std::path::PathBuf;
use std::time::Duration;

use heaptide_control::json::Json;
use heaptide_control::routes::BASE;
use heaptide_control::{Address, group};
use heaptide_procfs as procfs;

const PATIENCE: Duration = Duration::from_secs(5);

/// A job: one process, or several that act together.
pub struct RunningProgram {
    pub name: String,
    pub command: String,
    pub state: String,
    pub pids: Vec<u32>,
    pub addresses: Vec<Address>,
}

/// All that answer. What does not is left out; sockets of processes that have gone are removed on the way.
pub fn list() -> Vec<RunningProgram> {
    let groups = folders().into_iter().flat_map(|folder| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path())
    });
    let mut jobs: Vec<RunningProgram> = groups.filter_map(|group| job(&group)).collect();
    jobs.sort_by(|one, other| one.pids.cmp(&other.pids));
    jobs
}

fn job(group: &std::path::Path) -> Option<RunningProgram> {
    let target = format!("{BASE}/status?scope=process");
    let mut job: Option<RunningProgram> = None;
    for (pid, address) in group::members(group) {
        let Some(Ok((200, status))) = group::ask(&address, "GET", &target, &Json::Null, PATIENCE)
        else {
            continue;
        };
        let text = |key: &str| {
            status
                .get(key)
                .and_then(Json::as_text)
                .unwrap_or_default()
                .to_owned()
        };
        let job = job.get_or_insert_with(|| RunningProgram {
            name: text("name"),
            command: text("command"),
            state: text("state"),
            pids: Vec::new(),
            addresses: Vec::new(),
        });
        if text("state") == "recording" {
            job.state = text("state");
        }
        job.pids.push(pid);
        job.addresses.push(address);
    }
    job
}

/// Whose a process is, if it is neither ours nor ours to ask.
pub fn other_user(pid: u32) -> Option<u32> {
    let user = group::user();
    let owner = procfs::owner(pid)?;
    (user != 0 && owner != user).then_some(owner)
}

/// Where jobs keep their sockets; root sees those of all users.
fn folders() -> Vec<PathBuf> {
    if let Some(chosen) =
        std::env::var_os("HEAPTIDE_RUNTIME_DIR").filter(|chosen| !chosen.is_empty())
    {
        return vec![chosen.into()];
    }
    let user = group::user();
    if user != 0 {
        return vec![format!("/tmp/heaptide-{user}/run").into()];
    }
    let entries = std::fs::read_dir("/tmp").into_iter().flatten().flatten();
    let of_jobs =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("heaptide-"));
    of_jobs.map(|entry| entry.path().join("run")).collect()
}
