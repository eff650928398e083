//! Processes that appear while a recording is wanted join it; see [`crate::wanted`].

use std::path::{Path, PathBuf};

use super::Program;
use super::session_details::options_of;
use crate::recorder::{ModeOptions, Options};
use crate::sessions::{CURRENT, Session};
use crate::wanted::{self, Wanted};

impl Program {
    /// Stores the session that processes join if they start later.
    pub(super) fn want(
        &self,
        session: &Session,
        options: &Options,
        was_running: bool,
    ) -> Result<(), String> {
        let chosen = match was_running {
            true => Options::from_json(&options_of(session)).unwrap_or_else(|_| options.clone()),
            false => options.clone(),
        };
        if !chosen.mode.follow_fork {
            return Ok(());
        }
        let wanted = Wanted {
            session: session.id.clone(),
            options: chosen,
        };
        let folder = &self.config.run_folder;
        wanted.write(folder).map_err(|error| {
            let folder = folder.display();
            format!("processes that start later will not join: cannot write to {folder} ({error})")
        })
    }

    /// Stores the mode for processes that join later, if the run wants a recording.
    pub(super) fn want_mode(&self, mode: &ModeOptions) -> Result<(), String> {
        let folder = &self.config.run_folder;
        let Some(wanted) = Wanted::read(folder) else {
            return Ok(());
        };
        let wanted = Wanted {
            options: wanted.options.in_mode(mode),
            ..wanted
        };
        let written = wanted.write(folder);
        written.map_err(|error| format!("cannot write to {} ({error})", folder.display()))
    }

    /// Returns the session that the run wants, with its options, if there is one.
    pub(crate) fn wanted(&self) -> Option<(Session, Options)> {
        let folder = &self.config.run_folder;
        let wanted = Wanted::read(folder)?;
        let session = self.sessions.find(&wanted.session);
        if session.is_none() {
            // The session was deleted, or retention removed it.
            wanted::clear(folder);
        }
        session.map(|session| (session, wanted.options))
    }

    /// Joins the recording that the run wants, if this process is not recorded. Called when the process starts, by a thread
    /// that may wait for the interpreter. Returns a warning.
    ///
    /// A forked child continues the recording of its parent. If it had no socket yet when `stop` was called, `stop` did
    /// not reach it. The run then no longer wants the recording, so the child ends it here.
    pub(crate) fn join_wanted(&self, is_forked: bool) -> Result<Option<String>, String> {
        let wanted = self.wanted();
        if let (Some(path), true) = (self.recorder.recording(), is_forked) {
            let session = self.session_of(&path);
            let is_wanted = wanted.is_some_and(|(wanted, _)| wanted.id == session);
            if session != CURRENT && !is_wanted {
                self.recorder.stop()?;
            }
            return Ok(None);
        }
        let Some((session, options)) = wanted else {
            return Ok(None);
        };
        let Some(folder) = &session.folder else {
            return Ok(None);
        };
        if self.recorder.recording().is_some() {
            return Ok(None);
        }
        let path = unused_path(folder);
        let warning = self.recorder.start(&path, &options)?;
        // A request to stop may have reached this process before it was recorded.
        let is_other = |(now, _): (Session, Options)| now.id != session.id;
        if self.wanted().is_none_or(is_other) {
            self.recorder.stop()?;
        }
        Ok(warning)
    }
}

/// Returns an unused name for a capture of this process. The first name is taken if this process has executed another
/// program, or if an ended process had the same ID.
pub(super) fn unused_path(folder: &Path) -> PathBuf {
    let pid = std::process::id();
    let mut path = folder.join(format!("{pid}.tide"));
    let mut number = 1;
    while path.symlink_metadata().is_ok() {
        number += 1;
        path = folder.join(format!("{pid}-{number}.tide"));
    }
    path
}
