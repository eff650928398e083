//! The summary at exit of `heaptide run`: the peak, the lines that are responsible for it, the files, and the next command.
//!
//! `attach`, `detach` and the live view end with the same lines.

use std::path::{Path, PathBuf};

use heaptide_analysis::findings::still_alive;
use heaptide_analysis::model::{Finding, ProcessSummary, Stats};
use heaptide_analysis::{Filter, JobView, Measure, Request, load_with, stats};
use heaptide_capture::Capture;
use heaptide_report::text::findings::sentence;
use heaptide_report::text::notes;
use heaptide_report::{shell, units};

use crate::input::folders;
use crate::messages::message;

/// Larger captures are not read, because it would delay the exit.
const MAX_EVENTS: u64 = 30_000_000;
/// A line of code that holds a smaller share of the peak at the end is not reported as still alive.
const MIN_ALIVE_SHARE: f64 = 0.05;
/// The maximum number of children whose captures are named.
const MAX_NAMED: usize = 4;

/// Returns the lines without a prefix; none if the capture cannot be read. Paths are shown as seen from `folder`.
pub fn run_summary(path: &Path, folder: &Path) -> Vec<String> {
    let children = folders::children_of(path);
    let paths = std::iter::once(path).chain(children.iter().map(PathBuf::as_path));
    let captures: Vec<Capture> = paths.filter_map(|path| Capture::open(path).ok()).collect();
    if captures.first().is_none_or(|first| first.path != path) {
        return Vec::new();
    }
    let shown = |path: &Path| {
        path.strip_prefix(folder)
            .unwrap_or(path)
            .display()
            .to_string()
    };
    let is_sampled = captures.iter().any(|capture| {
        let mut modes = capture.registry.modes(capture.header.mode);
        modes.any(|mode| mode.sample_bytes != 0)
    });
    let with_objects = command_with_objects(&captures[0]);
    let mut lines = Vec::new();
    let mut next = "heaptide flamegraph";
    let mut is_mostly_arenas = false;
    let n_events = captures.iter().map(Capture::n_events);
    if n_events.fold(0, u64::saturating_add) <= MAX_EVENTS {
        let request = Request {
            filter: Filter {
                // Reading the symbols of libraries takes long, and only Python lines are named.
                hide_native: true,
                ..Filter::default()
            },
            temporary: None,
            lives: true,
            jobs: JobView::Hidden,
        };
        let Ok(session) = load_with(captures, request, &mut |_| {}) else {
            return Vec::new();
        };
        let stats = stats(&session, 1);
        lines.extend(notes::incomplete(&stats.quality));
        lines.push(peak(&stats, is_sampled));
        let alive = still_alive(&session, MIN_ALIVE_SHARE);
        let (responsible, has_leaks) = responsible(&stats, alive);
        lines.extend(responsible);
        if has_leaks {
            next = "heaptide flamegraph --leaks";
        }
        lines.extend(notes::arenas_of(&stats.quality, Measure::Peak));
        is_mostly_arenas = stats.quality.arenas.peak_bytes > stats.peak_bytes / 2;
        lines.extend(recorded_children(&stats.quality.processes, shown));
    } else {
        let resident = captures
            .iter()
            .filter_map(|capture| heaptide_analysis::findings::resident_peak(&capture.registry));
        if let Some(bytes) = resident.max() {
            lines.push(format!("peak memory: {} resident", units::size(bytes)));
        }
    }
    let file = shown(path);
    let mut named = shell::quote(&file);
    if !children.is_empty() {
        named.push('*');
    }
    lines.push(format!("recorded into {file}"));
    // A flame graph of arenas shows the lines that happened to need a new arena, so the command with objects comes
    // first.
    lines.push(match with_objects.filter(|_| is_mostly_arenas) {
        Some(command) => format!("next: {command}, or {next} {named}"),
        None => format!("next: {next} {named}, or heaptide stats {named}"),
    });
    lines
}

/// The command that records the program again with its objects, if it was started by `heaptide run` with a script or module.
fn command_with_objects(capture: &Capture) -> Option<String> {
    let [first, rest @ ..] = capture.header.command.as_slice() else {
        return None;
    };
    let is_known = first == "-m" && !rest.is_empty() || !first.starts_with('-');
    if !is_known || capture.header.joined_late {
        return None;
    }
    let words = capture.header.command.iter().map(|word| shell::quote(word));
    Some(format!(
        "heaptide run --objects {}",
        words.collect::<Vec<String>>().join(" ")
    ))
}

/// Prints the summary on standard error, with paths as seen from the current folder.
pub(crate) fn print_run_summary(path: &Path) {
    let folder = std::env::current_dir().unwrap_or_default();
    for line in run_summary(path, &folder) {
        message!("{line}");
    }
}

fn peak(stats: &Stats, is_sampled: bool) -> String {
    let about = if is_sampled { "about " } else { "" };
    let heap = units::size(stats.peak_bytes);
    let mut text = format!("peak memory: {about}{heap} on the heap");
    if is_sampled {
        text += " (sampled)";
    }
    match stats.quality.processes.as_slice() {
        [one] => match one.resident_peak_bytes {
            Some(bytes) => text + &format!(", {} resident", units::size(bytes)),
            None => text,
        },
        _ => match notes::peak_heading(&stats.quality) {
            Some(moment) => text + &format!(" of {moment}"),
            None => text,
        },
    }
}

/// Returns a line of text for each responsible line of code: the one that holds most at the peak, the one that grows
/// fastest, and the one that holds most at the end. Also returns whether memory of one of them was not freed.
fn responsible(stats: &Stats, alive: Option<Finding>) -> (Vec<String>, bool) {
    let named = |name: &str| stats.findings.iter().find(|finding| finding.name == name);
    let is_same_line = |one: &Finding, other: &Finding| {
        (&one.location, &one.user) == (&other.location, &other.user)
    };
    let (largest, grows) = (named("holds_most"), named("grows"));
    let alive = alive.filter(|alive| {
        let mut known = [largest, grows].into_iter().flatten();
        !known.any(|known| is_same_line(known, alive))
    });
    // The second sentence about the largest line has the bytes that were not freed.
    let mut lines: Vec<String> = largest.iter().map(|it| finding_line(it, 2)).collect();
    match (largest, grows) {
        (Some(largest), Some(grows)) if is_same_line(largest, grows) => {
            lines[0] += &format!("; grows steadily {}", evidence(grows, 1));
        }
        _ => lines.extend(grows.map(|grows| finding_line(grows, 1))),
    }
    lines.extend(alive.iter().map(|alive| finding_line(alive, 1)));
    (lines, grows.is_some() || alive.is_some())
}

/// A finding in one line, with its first sentences. The first has the numbers.
fn finding_line(finding: &Finding, n_sentences: usize) -> String {
    let headline = sentence(&finding.headline);
    format!("{headline}: {}", evidence(finding, n_sentences))
}

fn evidence(finding: &Finding, n_sentences: usize) -> String {
    let sentences = finding.evidence.iter().take(n_sentences).map(sentence);
    sentences.collect::<Vec<String>>().join("; ")
}

fn recorded_children(
    processes: &[ProcessSummary],
    shown: impl Fn(&Path) -> String,
) -> Option<String> {
    let children = processes.get(1..).unwrap_or_default();
    let named = children.iter().take(MAX_NAMED).map(|process| {
        let title = match process.title.as_str() {
            "" => String::new(),
            title => format!(" ({title})"),
        };
        shown(&process.path) + &title
    });
    let mut named = named.collect::<Vec<String>>().join(", ");
    if children.len() > MAX_NAMED {
        named += &format!(" and {} more", children.len() - MAX_NAMED);
    }
    match children.len() {
        0 => None,
        1 => Some(format!("one child recorded into {named}")),
        n => Some(format!("{n} children recorded into {named}")),
    }
}

#[cfg(test)]
mod tests {
    use heaptide_testkit::{capture_bytes, header};

    use super::*;

    /// The lines about findings in the summary of a capture.
    fn findings_of(name: &str, script: &str) -> Vec<String> {
        let folder = format!("heaptide-summary-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let path = folder.join(name);
        std::fs::write(&path, capture_bytes(&header(), script)).expect("a capture");
        let mut lines = run_summary(&path, &folder);
        let _ = std::fs::remove_dir_all(&folder);
        assert!(lines[0].starts_with("peak memory: "), "{lines:?}");
        assert!(
            lines[lines.len() - 2].starts_with("recorded into "),
            "{lines:?}"
        );
        lines.drain(1..lines.len() - 2).collect()
    }

    /// A cache that grows by 1000 bytes every 10 milliseconds, after a table of this size was loaded.
    fn growing_beside(table_bytes: u64) -> String {
        let grows =
            (0..200).map(|n| format!("time {}; alloc c{n} 1000 at remember:5; ", n * 10_000));
        format!(
            "alloc table {table_bytes} at load:9; {}end 2000000",
            grows.collect::<String>()
        )
    }

    #[test]
    fn line_that_holds_most_and_grows_appears_once_with_the_numbers_of_both() {
        let lines = findings_of("one.tide", &growing_beside(10));
        let [line] = &lines[..] else {
            panic!("{lines:?}")
        };
        let start = "remember (job.py:5) holds most at the peak: 200 kB in 200 blocks, 100% of the heap at the peak; \
                     200 kB were still alive at the end; grows steadily from ";
        assert!(line.starts_with(start), "{line}");
        assert!(line.ends_with(": about 100 kB per second"), "{line}");
    }

    #[test]
    fn line_that_grows_beside_the_largest_one_has_a_line_of_its_own() {
        let lines = findings_of("two.tide", &growing_beside(900_000));
        let starts = [
            "load (job.py:9) holds most at the peak: 900 kB in one block, ",
            "memory of remember (job.py:5) grows steadily: from ",
        ];
        assert_eq!(lines.len(), 2, "{lines:?}");
        for (line, start) in lines.iter().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
        assert!(!lines[1].contains("at the peak"), "{lines:?}");
    }
}
