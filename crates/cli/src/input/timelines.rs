//! Finds and reads the timelines that commands name.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches};
use heaptide_timeline::Timeline;
use heaptide_watch::local_stamp;

use crate::exit::Failure;
use crate::input::folders;
use crate::input::newest::{self, DatedFile};
use crate::messages::{answer, message};

pub(crate) fn argument() -> Arg {
    Arg::new("profiles")
        .value_name("FILE")
        .num_args(0..)
        .allow_negative_numbers(true)
        .help("timelines, by name or by number in heaptide list; -1 is the newest [default: the newest]")
}

/// A timeline of this folder and its start in local time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    pub path: PathBuf,
    /// `YYYYmmddHHMMSS`.
    pub stamp: String,
}

/// Returns the timelines of this folder, oldest first: mprof's by their names, Heaptide's by their extension.
pub(crate) fn profiles() -> Vec<Profile> {
    let entries = fs::read_dir(".").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut profiles: Vec<Profile> = names.filter_map(profile).collect();
    profiles.sort_by(|a, b| (&a.stamp, &a.path).cmp(&(&b.stamp, &b.path)));
    profiles
}

fn profile(name: String) -> Option<Profile> {
    if let Some(stamp) = name
        .strip_prefix("mprofile_")
        .and_then(|name| name.strip_suffix(".dat"))
    {
        return (stamp.chars().count() == 14).then(|| Profile {
            stamp: stamp.to_owned(),
            path: name.clone().into(),
        });
    }
    if !(name.starts_with("heaptide-") && name.ends_with(".timeline")) {
        return None;
    }
    // The third line has the start time; files of older releases have it in the second.
    let mut head = [0; 128];
    let len = fs::File::open(&name)
        .and_then(|mut file| file.read(&mut head))
        .ok()?;
    let text = String::from_utf8_lossy(&head[..len]).into_owned();
    let mut lines = text.lines();
    let started = lines.find_map(|line| line.strip_prefix("started "))?;
    let started: f64 = started.parse().ok()?;
    Some(Profile {
        path: name.into(),
        stamp: local_stamp(started as u64),
    })
}

/// Whether the file has the name of a timeline, or begins like one of Heaptide's. A pipe is not opened, because opening it
/// may block for ever.
pub(crate) fn is_timeline(path: &Path) -> bool {
    const FIRST: &[u8] = b"heaptide timeline ";
    if !path.is_file() {
        return false;
    }
    if folders::is_timeline_name(path) {
        return true;
    }
    let mut first = [0; FIRST.len()];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && first == FIRST
}

/// Returns the timelines of this folder that [`profiles`] leaves out, because `record -o` gave them other names. Oldest
/// first.
pub(crate) fn named_otherwise() -> Vec<DatedFile> {
    let numbered = profiles();
    newest::files_here(|path| {
        is_timeline(path) && numbered.iter().all(|profile| profile.path != path)
    })
}

/// Returns the timeline with a number, counted from the oldest; negative numbers count from the newest.
pub(crate) fn numbered(profiles: &[Profile], number: i64) -> Option<&Profile> {
    let at = if number < 0 {
        profiles.len() as i64 + number
    } else {
        number
    };
    profiles.get(usize::try_from(at).ok()?)
}

/// Returns the timelines that the arguments name, without duplicates; the newest by default.
pub(crate) fn chosen(matches: &ArgMatches) -> Result<Vec<PathBuf>, Failure> {
    let words: Vec<&String> = matches
        .get_many::<String>("profiles")
        .into_iter()
        .flatten()
        .collect();
    if words.is_empty() {
        let newest = profiles().pop().ok_or_else(|| {
            Failure::failed(
                "there is no timeline in this folder: name one, or record one with heaptide record",
            )
        })?;
        answer!("Using last profile data.");
        return Ok(vec![newest.path]);
    }
    let mut paths = Vec::new();
    for word in words {
        for path in folders::timelines([resolve(word)?].iter())? {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    Ok(paths)
}

/// Resolves a file name or a number in the list.
pub(crate) fn resolve(word: &str) -> Result<PathBuf, Failure> {
    let path = Path::new(word);
    if path.exists() {
        return Ok(path.to_owned());
    }
    let Ok(number) = word.parse::<i64>() else {
        return Err(Failure::failed(format!(
            "{word} does not exist: check the name, or see heaptide list"
        )));
    };
    let profiles = profiles();
    let profile = numbered(&profiles, number).ok_or_else(|| {
        Failure::failed(format!(
            "there is no timeline number {word}: heaptide list shows {} of them",
            profiles.len()
        ))
    })?;
    Ok(profile.path.clone())
}

/// Reads a timeline, and reports damage on standard error.
pub(crate) fn read(path: &Path) -> Result<Timeline, Failure> {
    let timeline = heaptide_timeline::read_file(path).map_err(Failure::failed)?;
    for note in &timeline.damage {
        message!("{}: {note}", path.display());
    }
    Ok(timeline)
}

/// Returns the paths and, for each, the `_ts` file that old versions of mprof wrote next to it.
pub(crate) fn with_companions(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let companion = |path: &PathBuf| {
        let stem = path.file_stem()?.to_str()?;
        let ending = path.extension()?.to_str()?;
        let path = path.with_file_name(format!("{stem}_ts.{ending}"));
        path.is_file().then_some(path)
    };
    let more: Vec<PathBuf> = paths.iter().rev().filter_map(companion).collect();
    let mut all = paths;
    for path in more {
        if !all.contains(&path) {
            all.push(path);
        }
    }
    all
}
