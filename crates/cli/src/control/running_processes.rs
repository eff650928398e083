//! Running programs that have the control API, found by their sockets.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heaptide_capture::{LabelSelector, Labels, glob};
use heaptide_control::routes::BASE;
use heaptide_control::{Address, group, token};
use heaptide_procfs as procfs;
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(5);

/// A program: one process, or several that are controlled together.
pub(crate) struct RunningProgram {
    pub name: String,
    pub command: String,
    pub state: String,
    pub pids: Vec<u32>,
    pub run: String,
    /// The role or program of each process.
    pub titles: Vec<String>,
    /// The labels of each process.
    pub labels: Vec<Labels>,
    /// The private socket of each process.
    pub addresses: Vec<Address>,
    /// The TCP addresses at which its processes answer.
    listens_at: Vec<SocketAddr>,
    /// The folder of its sockets and its token.
    group: PathBuf,
}

impl fmt::Display for RunningProgram {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.pids.iter().zip(&self.titles);
        let pids: Vec<String> = named
            .map(|(pid, title)| match title.as_str() {
                "" => pid.to_string(),
                title if title == self.name => pid.to_string(),
                title => format!("{pid} ({title})"),
            })
            .collect();
        write!(
            formatter,
            "  {}  {}  pid {}  {}",
            self.name,
            self.state,
            pids.join(" "),
            self.command
        )
    }
}

/// Returns all programs that answer. Removes the sockets of processes that have ended.
pub(crate) fn list() -> Vec<RunningProgram> {
    let groups = folders().into_iter().flat_map(|folder| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path())
    });
    let mut programs: Vec<RunningProgram> = groups.filter_map(|group| query(&group)).collect();
    programs.sort_by(|one, other| one.pids.cmp(&other.pids));
    programs
}

/// Returns the program whose sockets are in the folder `group`, if one of its processes answers.
fn query(group: &Path) -> Option<RunningProgram> {
    let target = format!("{BASE}/status?scope=process");
    let mut program: Option<RunningProgram> = None;
    for (pid, address) in group::members(group) {
        let Some(Ok((200, status))) = group::ask(&address, "GET", &target, &Value::Null, TIMEOUT)
        else {
            continue;
        };
        let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
        let program = program.get_or_insert_with(|| RunningProgram {
            name: text("name"),
            command: text("command"),
            state: text("state"),
            pids: Vec::new(),
            run: text("run"),
            titles: Vec::new(),
            labels: Vec::new(),
            addresses: Vec::new(),
            listens_at: Vec::new(),
            group: group.to_owned(),
        });
        let listens_at = status["addresses"].as_array().into_iter().flatten();
        program.listens_at.extend(listens_at.filter_map(|address| {
            let address = address.as_str()?.strip_prefix("http://")?;
            address.parse::<SocketAddr>().ok()
        }));
        if text("state") == "recording" {
            program.state = text("state");
        }
        program.pids.push(pid);
        program.titles.push(text("title"));
        program.labels.push(labels_of(&status["labels"]));
        program.addresses.push(address);
    }
    program
}

fn labels_of(labels: &Value) -> Labels {
    let labels = labels.as_object().into_iter().flatten();
    labels
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// The user's choice of programs on this machine. An empty one chooses all.
#[derive(Debug, Default)]
pub(crate) struct ProgramFilter {
    /// Patterns of the program's name, of its run, or of the role of one of its processes.
    pub names: Vec<String>,
    /// Labels that one process of the program must have.
    pub labels: Vec<LabelSelector>,
}

impl ProgramFilter {
    pub(crate) fn wants(&self, program: &RunningProgram) -> bool {
        let names = [&program.name, &program.run].into_iter();
        let names: Vec<&String> = names.chain(&program.titles).collect();
        let is_named = |pattern: &String| names.iter().any(|name| glob::matches(pattern, name));
        let has_all = |labels: &Labels| self.labels.iter().all(|label| label.matches(labels));
        (self.names.is_empty() || self.names.iter().any(is_named))
            && (self.labels.is_empty() || program.labels.iter().any(has_all))
    }
}

/// Returns the exact address and the token of the running program that answers at a loopback address.
///
/// Only the private sockets identify that program: any other program that listens there must not receive the token.
pub(crate) fn find_token(host: &str, port: u16) -> Option<(SocketAddr, String)> {
    let asked: Vec<SocketAddr> = (host, port).to_socket_addrs().ok()?.collect();
    if !asked.iter().all(|address| address.ip().is_loopback()) {
        return None;
    }
    let is_at = |asked: &SocketAddr, bound: &SocketAddr| {
        let is_any = bound.ip().is_unspecified() && bound.is_ipv4() == asked.is_ipv4();
        bound.port() == port && (is_any || bound.ip() == asked.ip())
    };
    list().into_iter().find_map(|program| {
        let mut asked = asked.iter().copied();
        let address = asked.find(|asked| program.listens_at.iter().any(|at| is_at(asked, at)))?;
        Some((address, token::read(&program.group.join(token::FILE)).ok()?))
    })
}

/// Returns the owner of a process that this user may not query.
pub(crate) fn other_user(pid: u32) -> Option<u32> {
    let user = heaptide_files::user();
    let owner = procfs::owner(pid)?;
    (user != 0 && owner != user).then_some(owner)
}

/// Returns the folders that hold the sockets of programs: for root, those of all users. A folder that does not belong
/// to the user in its name is left out: its sockets would receive requests and tokens.
fn folders() -> Vec<PathBuf> {
    if let Some(chosen) = chosen_folder() {
        return vec![chosen];
    }
    let user = heaptide_files::user();
    let entries = std::fs::read_dir("/tmp").into_iter().flatten().flatten();
    let of_users = entries.filter(|entry| {
        let name = entry.file_name();
        let named = name
            .to_str()
            .and_then(|name| name.strip_prefix("heaptide-")?.parse().ok());
        named.is_some_and(|owner: u32| {
            let is_included = user == 0 || user == owner;
            is_included
                && entry
                    .metadata()
                    .is_ok_and(|found| found.is_dir() && found.uid() == owner)
        })
    });
    of_users.map(|entry| entry.path().join("run")).collect()
}

/// Returns the folder of this user's programs.
pub(crate) fn own_folder() -> PathBuf {
    chosen_folder()
        .unwrap_or_else(|| format!("/tmp/heaptide-{}/run", heaptide_files::user()).into())
}

fn chosen_folder() -> Option<PathBuf> {
    let chosen = std::env::var_os("HEAPTIDE_RUNTIME_DIR");
    chosen
        .filter(|chosen| !chosen.is_empty())
        .map(PathBuf::from)
}
