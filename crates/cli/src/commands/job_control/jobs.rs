//! `heaptide jobs`: a table of jobs from job records and captures, as text, JSON or a page. With `--fail-above` it exits with 1
//! if a peak is too high, so that a CI pipeline fails.

use std::path::PathBuf;

use clap::{Arg, ArgGroup, ArgMatches, Command, value_parser};
use heaptide_analysis::job_runs::{Grouping, JobRuns, JobTable, PeakKind, job_table};
use heaptide_report::{html, json, text, units};

use crate::exit::Failure;
use crate::input::job_records;
use crate::input::newest::newest_session;
use crate::messages::message;
use crate::options::arguments::{self, n_largest, num_largest};
use crate::options::sizes;
use crate::output;
use crate::output::destination::Destination;

pub(crate) fn arguments() -> Command {
    Command::new("jobs")
        .about("Show runs, peaks, leaks and memory limits of jobs")
        .long_about(
            "Show runs, peaks, leaks and memory limits of jobs.\n\n\
             Reads the job records that a program writes with HEAPTIDE_JOBS=FOLDER, and captures of programs that mark jobs, of any \
             number of processes and hosts. \
             A row has all runs of one job name: outcomes, median time, peaks, the bytes that a run leaves, a verdict on leaks, and \
             a suggested memory limit. A job whose process died while it ran counts as killed.",
        )
        .after_help(
            "Exit codes: 0 success; 1 a peak above --fail-above, or no report possible (see standard error); 2 invalid \
             arguments; 3 no job matches; 4 --fail-above cannot judge, because no run has a peak.\n\n\
             Examples:\n  \
             heaptide jobs jobs/\n  \
             heaptide jobs --by worker jobs/\n  \
             heaptide jobs --html -o jobs.html web-1/jobs web-2/jobs\n  \
             heaptide jobs --job 'send_*' --fail-above 200MB jobs/",
        )
        .arg(
            Arg::new("files")
                .value_name("FILE|FOLDER")
                .num_args(1..)
                .value_parser(value_parser!(PathBuf))
                .help("files of job records, captures, or folders with them [default: the newest capture]"),
        )
        .arg(
            Arg::new("job")
                .long("job")
                .value_name("PATTERN")
                .num_args(1)
                .action(clap::ArgAction::Append)
                .help("only jobs whose name matches, for example 'send_*'"),
        )
        .arg(
            Arg::new("by")
                .long("by")
                .value_name("GROUP")
                .value_parser(group)
                .default_value("name")
                .help("one row per job name, or per name and worker, host or label:KEY"),
        )
        .arg(num_largest("50", "number of rows in text"))
        .arg(
            Arg::new("fail_above")
                .long("fail-above")
                .value_name("SIZE")
                .value_parser(sizes::parse)
                .help("exit with 1 if the peak of a run was higher, for example 200MB"),
        )
        .arg(arguments::json())
        .arg(
            arguments::html("make a page [default file: heaptide-jobs-FILE.html]")
                .require_equals(true),
        )
        .group(ArgGroup::new("format").args(["json", "html"]))
        .args(output::arguments())
}

/// The grouping of rows, and the key of its label.
#[derive(Clone, Default)]
struct Group {
    grouping: Grouping,
    label: Option<String>,
}

fn group(text: &str) -> Result<Group, String> {
    let (grouping, label) = match text.split_once(':') {
        None if text == "name" => (Grouping::Name, None),
        None if text == "worker" => (Grouping::Worker, None),
        None if text == "host" => (Grouping::Host, None),
        Some(("label", key)) if !key.is_empty() => (Grouping::Label, Some(key.to_owned())),
        _ => {
            return Err("must be name, worker, host, or label:KEY, such as label:queue".to_owned());
        }
    };
    Ok(Group { grouping, label })
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let paths = paths(matches)?;
    let input = paths.first().filter(|_| arguments::asks_for_page(matches));
    let destination = Destination::choose(matches, input.copied(), "jobs", "html")?;
    let group = matches.get_one::<Group>("by").cloned().unwrap_or_default();
    let mut runs = job_records::read(&paths, group.label)?;
    let patterns: Vec<&String> = matches.get_many("job").into_iter().flatten().collect();
    if !patterns.is_empty() {
        job_records::keep_matching(&mut runs, &patterns)?;
    }
    let table = job_table(&runs, group.grouping);
    write(matches, &destination, &title(&paths), &runs, &table)?;
    match matches.get_one::<u64>("fail_above") {
        Some(&limit) => judge(&table, limit),
        None => Ok(()),
    }
}

fn write(
    matches: &ArgMatches,
    destination: &Destination,
    title: &str,
    runs: &JobRuns,
    table: &JobTable,
) -> Result<(), Failure> {
    let workers = runs.worker_names();
    let worker = |at: u32| workers[at as usize].clone();
    let mut output = if arguments::asks_for_page(matches) {
        destination.open()?
    } else {
        destination.open_text()?
    };
    let options = text::jobs::Options {
        max_rows: n_largest(matches),
        max_width: output.size().0,
        style: output.style(),
        worker: &worker,
    };
    let captures = if arguments::asks_for_page(matches) {
        job_records::capture_links(runs, destination.folder())
    } else {
        Vec::new()
    };
    let incomplete = text::notes::incomplete_jobs(runs, &worker);
    if matches.get_flag("json") {
        // This format has no room for notes.
        for note in &incomplete {
            message!("{note}");
        }
    }
    output.write(|out| {
        if matches.get_flag("json") {
            json::write(out, &json::jobs(runs, table))
        } else if arguments::asks_for_page(matches) {
            html::jobs::jobs_page(out, runs, table, title, &captures, &worker)
        } else {
            for note in &incomplete {
                writeln!(out, "{}", options.style.bold(note))?;
            }
            text::jobs::jobs(out, table, &options)
        }
    })?;
    output.finish()
}

/// Returns the named files and folders; by default the newest capture of the current folder and those of its child
/// processes.
fn paths(matches: &ArgMatches) -> Result<Vec<&PathBuf>, Failure> {
    match matches.get_many("files") {
        Some(paths) => Ok(paths.collect()),
        None => Ok(newest_session()?.iter().collect()),
    }
}

/// The title of the page: the first path, and the number of the others.
fn title(paths: &[&PathBuf]) -> String {
    let first = paths[0].display();
    match paths.len() {
        1 => first.to_string(),
        n => format!("{first} and {} more", n - 1),
    }
}

fn judge(table: &JobTable, limit: u64) -> Result<(), Failure> {
    let peaks = table.rows.iter();
    let highest = peaks
        .filter_map(|row| Some((row, row.peak?.max)))
        .max_by_key(|(_, peak)| *peak);
    let Some((row, peak)) = highest else {
        return Err(Failure::NotComparable(
            "--fail-above cannot judge, because no run has a peak: record jobs that end".into(),
        ));
    };
    if peak <= limit {
        return Ok(());
    }
    let what = match row.peak_kind {
        PeakKind::Job => "its own peak",
        PeakKind::Resident => "the resident size of its process",
    };
    Err(Failure::failed(format!(
        "job {} reached {} ({what}), more than the {} of --fail-above: see its sites, or raise the limit",
        row.name,
        units::size(peak),
        units::size(limit),
    )))
}
