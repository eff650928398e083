//! The recording that a run wants. Every process of the run that appears later reads it and joins.
//!
//! ```text
//! SESSIONS/nightly-42/wanted.json     the session and its options; exists from `start` to `stop`
//! ```
//! A request writes the file before it lists the processes of the run, and a new process opens its socket before it reads
//! the file. So one of the two sees the other, without a lock. Only processes of the same host and PID namespace join:
//! names of captures contain the process ID, and `stop` reaches no process of another host or container.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use heaptide_files::{Existing, NewFile, OwnFolder};
use serde_json::{Value, json};

use crate::group;
use crate::recorder::Options;

/// `heaptide.recording.runs` uses the same file name.
const FILE: &str = "wanted.json";
/// The maximum length of the file. Real ones are much shorter.
const MAX_BYTES: u64 = 1 << 16;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    pub session: String,
    pub options: Options,
}

impl Wanted {
    /// Returns the recording that the run in `folder` wants; `None` if there is none.
    pub(crate) fn read(folder: &Path) -> Option<Wanted> {
        let own = OwnFolder::open(folder).ok()?;
        let wanted: Value = serde_json::from_slice(&own.read(FILE, MAX_BYTES).ok()?).ok()?;
        let space = wanted.get("pid_space").and_then(Value::as_str);
        if space != group::pid_space().as_deref() {
            return None;
        }
        Some(Wanted {
            session: wanted.get("session")?.as_str()?.to_owned(),
            options: Options::from_json(wanted.get("options")?).ok()?,
        })
    }

    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        heaptide_files::private_folder(folder)?;
        let content = json!({
            "session": self.session,
            "options": self.options.to_json(),
            "pid_space": group::pid_space(),
        });
        let new = NewFile::create(&folder.join(FILE), Existing::Replace)?;
        new.file().write_all(content.to_string().as_bytes())?;
        new.publish().map(drop)
    }
}

/// Prevents further processes from joining. Removes the folder of the run if it is empty.
pub(crate) fn clear(folder: &Path) {
    let _ = fs::remove_file(folder.join(FILE));
    let _ = fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_recording_is_read_until_it_is_cleared() {
        let name = format!("heaptide-wanted-{}", std::process::id());
        let folder = std::env::temp_dir().join(name).join("run");
        assert_eq!(Wanted::read(&folder), None);
        let wanted = Wanted {
            session: "20261115-233012-345-4711".to_owned(),
            options: Options::default(),
        };
        wanted.write(&folder).unwrap();
        assert_eq!(Wanted::read(&folder), Some(wanted));
        let elsewhere = r#"{"session":"x","options":{},"pid_space":"another host"}"#;
        fs::write(folder.join(FILE), elsewhere).unwrap();
        assert_eq!(Wanted::read(&folder), None);
        clear(&folder);
        assert!(!folder.exists());
        fs::remove_dir(folder.parent().unwrap()).unwrap();
    }
}
