//! `heaptide list`: the captures, heap snapshots and timelines of this folder. Only timelines with default names have
//! numbers, which plot, peak and rm accept.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{ArgMatches, Command};
use heaptide_report::text::controls::escape_line;
use heaptide_report::units;
use heaptide_watch::local_stamp;

use crate::exit::Failure;
use crate::input::newest::{self, DatedFile};
use crate::input::timelines::{named_otherwise, profiles};
use crate::output::Output;

pub(crate) fn arguments() -> Command {
    Command::new("list").about("List the captures, heap snapshots and timelines in this folder")
}

pub(crate) fn run(_matches: &ArgMatches) -> Result<(), Failure> {
    let (captures, snapshots, timelines) = (newest::captures(), newest::snapshots(), profiles());
    let named = named_otherwise();
    let is_empty = captures.is_empty() && snapshots.is_empty() && timelines.is_empty();
    let mut output = Output::standard();
    output.write(|out| {
        if is_empty && named.is_empty() {
            return writeln!(
                out,
                "no captures, heap snapshots or timelines in this folder"
            );
        }
        files(out, "Captures", &captures)?;
        files(out, "Heap snapshots", &snapshots)?;
        files(out, "Timelines that plot and peak accept by name", &named)?;
        if !timelines.is_empty() {
            writeln!(out, "Timelines, with their numbers for plot, peak and rm")?;
        }
        for (number, timeline) in timelines.iter().enumerate() {
            let name = timeline.path.to_string_lossy();
            let started = date(&timeline.stamp);
            writeln!(out, "{number:>3}  {started}  {}", escape_line(&name))?;
        }
        Ok(())
    })?;
    output.finish()
}

fn files(out: &mut dyn Write, heading: &str, files: &[DatedFile]) -> io::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    writeln!(out, "{heading}")?;
    for file in files {
        let name = file.path.to_string_lossy();
        let size = units::size(file.bytes);
        let changed = date(&local_stamp(seconds(file.changed)));
        writeln!(out, "     {changed}  {size:>9}  {}", escape_line(&name))?;
    }
    writeln!(out)
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Formats `20261118033000` as `2026-11-18 03:30:00`.
pub(crate) fn date(stamp: &str) -> String {
    let part = |from: usize, to: usize| stamp.get(from..to).unwrap_or("");
    format!(
        "{}-{}-{} {}:{}:{}",
        part(0, 4),
        part(4, 6),
        part(6, 8),
        part(8, 10),
        part(10, 12),
        part(12, 14)
    )
}
