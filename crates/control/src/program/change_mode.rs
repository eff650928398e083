//! Changes the mode of the running recording, in this process and in its siblings.

use serde_json::Value;

use super::{Program, StateChange};
use crate::recorder::ModeOptions;
use heaptide_capture::Mode;

/// The effect of a change, and warnings; `None` if no process is being recorded.
type Changed = Option<(StateChange, Vec<String>)>;

impl Program {
    /// Returns the mode of this process's recording.
    pub(crate) fn mode(&self) -> Option<Mode> {
        self.recorder.mode()
    }

    /// Changes the mode of this process.
    pub(crate) fn change_mode_here(&self, wanted: &ModeOptions) -> Result<Changed, String> {
        if self.recorder.recording().is_none() {
            return Ok(None);
        }
        let (recorder, wanted) = (self.recorder.clone(), *wanted);
        let change = match self.wait_for(move || recorder.change_mode(&wanted))? {
            None => StateChange::Pending,
            Some(Ok(true)) => StateChange::Done,
            Some(Ok(false)) => StateChange::Already,
            Some(Err(reason)) => return Err(reason),
        };
        Ok(Some((change, Vec::new())))
    }

    /// Changes the mode of all recorded processes of the program. `body` is the request.
    pub(crate) fn change_mode(
        &self,
        wanted: &ModeOptions,
        body: &Value,
    ) -> Result<Changed, String> {
        let _lock = self.lock()?;
        let mut changed = self.change_mode_here(wanted)?;
        let siblings = self.siblings();
        for sibling in siblings.iter().filter(|sibling| sibling.session.is_some()) {
            let (change, warnings) = changed.get_or_insert((StateChange::Already, Vec::new()));
            match self.forward(sibling.pid, "mode", body) {
                Ok(()) if *change == StateChange::Already => *change = StateChange::Done,
                Ok(()) => {}
                Err(problem) => warnings.push(format!("process {}: {problem}", sibling.pid)),
            }
        }
        if let Some((_, warnings)) = &mut changed {
            if let Err(error) = self.want_mode(wanted) {
                warnings.push(format!("later processes join in the old mode: {error}"));
            }
        }
        Ok(changed)
    }
}
