//! The profiled program: starts and stops the recording of this process and of its siblings, takes snapshots, finds sessions.
//!
//! A start or stop holds the group's lock, so that concurrent requests make one session. Calls that wait for the interpreter
//! run on their own thread; a request that waits too long is answered with "pending", or "busy" for a heap snapshot.

mod change_mode;
mod joining;
mod session_details;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, SystemTime};

use heaptide_capture::{Identity, labels};
use heaptide_files::{Existing, NewFile};
use heaptide_procfs as procfs;
use serde_json::{Map, Value};

use crate::calendar::unix_ms;
use crate::config::Config;
use crate::group;
use crate::recorder::{HeapOptions, Options, Recorder};
use crate::render::Renderer;
use crate::routes::BASE;
use crate::sessions::{CURRENT, Session, Sessions};
use crate::wanted;
use joining::unused_path;
pub(crate) use session_details::MAX_BYTES_FOR_QUICK_STATS;
use session_details::options_of;

/// How long a sibling may take to report its status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct Program {
    pub config: Config,
    pub sessions: Sessions,
    pub renderer: Renderer,
    recorder: Arc<dyn Recorder>,
}

/// The effect of a request to start, to stop, or to change the mode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum StateChange {
    Done,
    /// Nothing to do: already started, already stopped, or already in this mode.
    Already,
    /// The interpreter is busy; the change follows as soon as possible.
    Pending,
}

pub(crate) struct Started {
    pub change: StateChange,
    pub session: String,
    pub output: PathBuf,
    pub warnings: Vec<String>,
}

/// The state of one process of the group.
pub(crate) struct Member {
    pub pid: u32,
    /// The identity of the process, as JSON.
    pub identity: Value,
    pub labels: Value,
    /// The name of the process in lists: its role, or its program.
    pub title: String,
    pub session: Option<String>,
    pub output: Option<String>,
    /// Its recording has failed and was not stopped since.
    pub has_failed: bool,
    pub problem: Option<String>,
}

impl Program {
    pub(crate) fn new(config: Config, recorder: Arc<dyn Recorder>) -> Program {
        let sessions = Sessions::new(
            config.directory.clone(),
            config.keep_sessions,
            config.keep_bytes,
            config.group.parent(),
        );
        let renderer = Renderer::new(config.render.clone(), &config.directory);
        Program {
            config,
            sessions,
            renderer,
            recorder,
        }
    }

    /// Returns the state of this process. Never waits for the interpreter.
    pub(crate) fn own_state(&self) -> Member {
        let output = self.recorder.recording();
        let labels = self.recorder.labels();
        Member {
            pid: std::process::id(),
            identity: session_details::to_json(&own_identity()),
            labels: session_details::labels_to_json(&labels),
            title: labels::title(&labels, std::slice::from_ref(&self.config.name)),
            session: output.as_deref().map(|path| self.session_of(path)),
            output: output.map(|path| path.display().to_string()),
            has_failed: self.recorder.has_failed(),
            problem: None,
        }
    }

    fn session_of(&self, path: &Path) -> String {
        let folder = path
            .parent()
            .filter(|folder| folder.parent() == Some(self.sessions.directory()));
        let name = folder
            .and_then(Path::file_name)
            .and_then(|name| name.to_str());
        name.unwrap_or(CURRENT).to_owned()
    }

    /// Returns the states of the other processes of the program.
    pub(crate) fn siblings(&self) -> Vec<Member> {
        let others = group::members(&self.config.group).into_iter();
        let others = others.filter(|member| member.0 != std::process::id());
        let target = format!("{BASE}/status?scope=process");
        others
            .filter_map(|(pid, address)| {
                let answer = group::ask(&address, "GET", &target, &Value::Null, STATUS_TIMEOUT)?;
                let (state, problem) = match answer {
                    Ok((_, state)) => (state, None),
                    Err(problem) => (Value::Null, Some(problem)),
                };
                let text = |key: &str| state.get(key).and_then(Value::as_str).map(str::to_owned);
                Some(Member {
                    pid,
                    identity: state.get("identity").cloned().unwrap_or_default(),
                    labels: state.get("labels").cloned().unwrap_or_default(),
                    title: text("title").unwrap_or_default(),
                    session: text("session"),
                    output: text("output"),
                    has_failed: state.get("failed").and_then(Value::as_bool) == Some(true),
                    problem,
                })
            })
            .collect()
    }

    /// Returns the session that reports use by default: the running one, or the last one.
    pub(crate) fn latest(&self) -> Option<Session> {
        if let Some(path) = self.recorder.recording() {
            let id = self.session_of(&path);
            return self.sessions.find(&id).or_else(|| Session::current(&path));
        }
        let mut sessions = self.sessions.list();
        sessions.retain(|session| session.category() == "session" && !session.captures.is_empty());
        // Another program may keep its sessions in the same folder. Without a session of this group, take the newest: it may
        // be from an earlier run of this program.
        let own = sessions
            .iter()
            .position(|session| session.is_of(self.config.group_name()));
        (!sessions.is_empty()).then(|| sessions.swap_remove(own.unwrap_or(0)))
    }

    pub(crate) fn find(&self, id: &str) -> Option<Session> {
        match id {
            "latest" => self.latest(),
            CURRENT => self.latest().filter(|session| session.id == CURRENT),
            id => self.sessions.find(id),
        }
    }

    /// Starts recording this process as part of an existing session.
    pub(crate) fn start_here(
        &self,
        session: &Session,
        options: &Options,
    ) -> Result<Started, String> {
        let folder = session
            .folder
            .as_ref()
            .ok_or("no process can join this session")?;
        let path = unused_path(folder);
        if self.recorder.recording().is_some() {
            return Ok(self.already());
        }
        let (recorder, target, chosen) = (self.recorder.clone(), path.clone(), options.clone());
        let result = self.wait_for(move || recorder.start(&target, &chosen))?;
        let change = match &result {
            None => StateChange::Pending,
            Some(Ok(_)) => StateChange::Done,
            // Another recording started first, for example a tracker in the program.
            Some(Err(_)) if self.recorder.recording().is_some() => return Ok(self.already()),
            Some(Err(reason)) => return Err(reason.clone()),
        };
        Ok(Started {
            change,
            session: session.id.clone(),
            output: path,
            warnings: result.and_then(Result::ok).flatten().into_iter().collect(),
        })
    }

    fn already(&self) -> Started {
        let path = self.recorder.recording().unwrap_or_default();
        Started {
            change: StateChange::Already,
            session: self.session_of(&path),
            output: path,
            warnings: Vec::new(),
        }
    }

    /// Starts recording all processes of the program.
    pub(crate) fn start(&self, options: &Options) -> Result<Started, String> {
        let _lock = self.lock()?;
        let own = self.own_state();
        if own.session.as_deref() == Some(CURRENT) {
            return Ok(self.already());
        }
        let siblings = self.siblings();
        let running = own.session.clone().or_else(|| {
            let mut sessions = siblings.iter().filter_map(|member| member.session.clone());
            sessions.find(|session| session != CURRENT)
        });
        let found = running.as_deref().and_then(|id| self.sessions.find(id));
        let was_running = found.is_some();
        let session = match found {
            Some(session) => session,
            None => self.new_session("session", options, [])?,
        };
        let stored = self.want(&session, options, was_running);
        let mut started = match self.start_here(&session, options) {
            Ok(started) => started,
            Err(reason) => {
                if !was_running {
                    wanted::clear(&self.config.run_folder);
                    let _ = self.sessions.delete(&session);
                }
                return Err(reason);
            }
        };
        started.warnings.extend(stored.err());
        let mut body = options.to_json();
        body["session"] = session.id.as_str().into();
        // List the processes again: one that started before the wanted session was stored has not read it, but its socket
        // is now in the group's folder.
        let is_recorded = |pid: u32| {
            let mut recorded = siblings.iter().filter(|sibling| sibling.session.is_some());
            recorded.any(|sibling| sibling.pid == pid)
        };
        for (pid, _) in group::members(&self.config.group) {
            if pid == std::process::id() || is_recorded(pid) {
                continue;
            }
            if let Err(problem) = self.forward(pid, "start", &body) {
                started.warnings.push(format!("process {pid}: {problem}"));
            }
        }
        if was_running && started.change == StateChange::Done {
            started.change = StateChange::Already;
        }
        self.sessions.prune(&session.id);
        Ok(started)
    }

    /// Stops the recording of this process.
    pub(crate) fn stop_here(&self) -> Result<StateChange, String> {
        // A failed recording keeps its file open until it is stopped.
        if self.recorder.recording().is_none() && !self.recorder.has_failed() {
            return Ok(StateChange::Already);
        }
        let recorder = self.recorder.clone();
        match self.wait_for(move || recorder.stop())? {
            None => Ok(StateChange::Pending),
            Some(result) => result.map(|()| StateChange::Done),
        }
    }

    /// Stops the recording of all processes of the program. Returns the effect, the stopped session, and warnings. If
    /// no process was recorded, the session is the latest one.
    pub(crate) fn stop(&self) -> Result<(StateChange, Option<Session>, Vec<String>), String> {
        let _lock = self.lock()?;
        wanted::clear(&self.config.run_folder);
        let siblings = self.siblings();
        let sessions = siblings.iter().filter_map(|member| member.session.clone());
        let session = self.own_state().session.into_iter().chain(sessions).next();
        let recorded = session.as_deref().and_then(|id| self.find(id));
        let mut change = self.stop_here()?;
        let mut warnings = Vec::new();
        let is_open = |sibling: &&Member| sibling.session.is_some() || sibling.has_failed;
        for sibling in siblings.iter().filter(is_open) {
            match self.forward(sibling.pid, "stop", &Value::Null) {
                Ok(()) if change == StateChange::Already => change = StateChange::Done,
                Ok(()) => {}
                Err(problem) => warnings.push(format!("process {}: {problem}", sibling.pid)),
            }
        }
        // Read the session again, because its captures are complete now.
        let session = session.and_then(|id| self.sessions.find(&id)).or(recorded);
        Ok((change, session.or_else(|| self.latest()), warnings))
    }

    /// Sends `start`, `stop` or `mode` to one sibling.
    fn forward(&self, pid: u32, action: &str, body: &Value) -> Result<(), String> {
        let socket = group::socket_of(&self.config.group, pid);
        let address = crate::Address::Unix(socket);
        let target = format!("{BASE}/{action}?scope=process");
        let timeout = self.config.interpreter_timeout + STATUS_TIMEOUT;
        match group::ask(&address, "POST", &target, body, timeout) {
            // The process has ended.
            None => Ok(()),
            Some(Ok((200, _))) => Ok(()),
            Some(Ok((202, _))) => {
                Err("its interpreter is busy; the change follows as soon as possible".to_owned())
            }
            Some(Ok((_, answer))) => {
                let reason = answer.get("error").and_then(Value::as_str);
                Err(reason.unwrap_or("it refused").to_owned())
            }
            Some(Err(reason)) => Err(reason),
        }
    }

    /// Copies the captures of the running session into a new session.
    pub(crate) fn snapshot(&self) -> Result<Option<Session>, String> {
        // Another program may keep its sessions in the same folder.
        let is_own =
            |session: &Session| session.id == CURRENT || session.is_of(self.config.group_name());
        let running = self.latest().filter(Session::is_running).filter(is_own);
        let Some(running) = running else {
            return Ok(None);
        };
        let _lock = self.lock()?;
        let options = Options::from_json(&options_of(&running)).unwrap_or_default();
        let recorded_ms = running
            .started_unix_ms()
            .map(|started| unix_ms(SystemTime::now()).saturating_sub(started));
        let more = [
            ("of", running.id.as_str().into()),
            ("recorded_ms", recorded_ms.into()),
        ];
        let session = self.new_session("snapshot", &options, more)?;
        let folder = session.folder.clone().unwrap_or_default();
        let copied = running.captures.iter().try_for_each(|capture| {
            // A recording that the control API did not start can have any name. Its capture is the only one.
            let name = match running.folder.is_some() {
                true => capture.path.file_name().map(ToOwned::to_owned),
                false => None,
            };
            let name = name.unwrap_or_else(|| format!("{}.tide", capture.pid).into());
            let copy = NewFile::create(&folder.join(name), Existing::Refuse)?;
            std::io::copy(&mut capture.open()?, &mut copy.file())?;
            copy.publish().map(drop)
        });
        if let Err(error) = copied {
            let _ = self.sessions.delete(&session);
            return Err(format!(
                "cannot write the snapshot ({error}): check the disk space"
            ));
        }
        self.sessions.prune(&session.id);
        Ok(self.sessions.find(&session.id))
    }

    /// Takes a heap snapshot of this process. Returns an unlinked file, its length, and the pause of the program in
    /// milliseconds; `None` if the interpreter was busy for too long.
    pub(crate) fn heap(
        &self,
        options: &HeapOptions,
    ) -> Result<Option<(fs::File, u64, f64)>, String> {
        let folder = self.sessions.directory();
        let writing_failed = |error: std::io::Error| {
            let folder = folder.display();
            format!("cannot write a heap snapshot in {folder} ({error}): choose another directory")
        };
        let path = heaptide_files::trusted_folder(folder)
            .and_then(|()| heaptide_files::temporary_path(folder))
            .map_err(writing_failed)?;
        let (recorder, options) = (self.recorder.clone(), options.clone());
        let taken = self.wait_for(move || {
            let taken = recorder.heap(&path, &options);
            let file = heaptide_files::open_own(&path);
            let _ = fs::remove_file(&path);
            let file = file.and_then(|file| Ok((file.metadata()?.len(), file)));
            taken.map(|pause_ms| (file, pause_ms))
        })?;
        match taken {
            None => Ok(None),
            Some(Err(reason)) => Err(reason),
            Some(Ok((file, pause_ms))) => {
                let (length, file) = file.map_err(writing_failed)?;
                Ok(Some((file, length, pause_ms)))
            }
        }
    }

    fn new_session<const N: usize>(
        &self,
        category: &str,
        options: &Options,
        more: [(&str, Value); N],
    ) -> Result<Session, String> {
        let mut meta = Map::new();
        meta.insert("kind".into(), category.into());
        meta.insert("name".into(), self.config.name.as_str().into());
        meta.insert("group".into(), self.config.group_name().into());
        meta.insert("run".into(), self.config.run.as_str().into());
        meta.insert("options".into(), options.to_json());
        meta.extend(more.map(|(key, value)| (key.to_owned(), value)));
        heaptide_files::trusted_folder(self.sessions.directory())
            .and_then(|()| self.sessions.create(meta))
            .map_err(|error| {
                let folder = self.sessions.directory().display();
                format!("cannot create a session in {folder} ({error}): choose another directory")
            })
    }

    /// Returns an error message if this process changed its user and can no longer write to `folder`.
    pub(crate) fn changed_user(&self, folder: &Path) -> Option<String> {
        let is_foreign = group::owner(folder).is_some_and(|owner| owner != heaptide_files::user());
        (is_foreign && !group::may_write(folder)).then(|| {
            let folder = folder.display();
            format!(
                "this process changed its user after the control API was opened and can no longer use {folder}: \
                 open the control API after changing the user"
            )
        })
    }

    fn lock(&self) -> Result<fs::File, String> {
        group::lock(&self.config.group).map_err(|error| {
            let folder = self.config.group.display();
            if let Some(reason) = self.changed_user(&self.config.group) {
                return reason;
            }
            format!("cannot use the folder {folder} of this program's processes ({error})")
        })
    }

    /// Runs `work` on another thread and waits for it up to the interpreter timeout. Returns `None` if it takes longer.
    fn wait_for<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>, String> {
        let (sender, receiver) = sync_channel(1);
        let work = move || {
            // The receiver is gone if the request timed out.
            let _ = sender.send(work());
        };
        let begun = self.recorder.spawn(Box::new(work));
        begun.map_err(|error| format!("cannot start a thread ({error})"))?;
        Ok(receiver.recv_timeout(self.config.interpreter_timeout).ok())
    }
}

/// Returns the identity of this process.
fn own_identity() -> Identity {
    let facts = procfs::process_facts();
    Identity::new(std::process::id(), &procfs::host_name(), &facts)
}
