//! `heaptide stats`: totals, peak, sizes, and the largest allocation sites.

use clap::{Arg, ArgMatches, Command};
use heaptide_analysis::aggregate::{ProcessGrouping, process_groups};
use heaptide_analysis::{JobView, Request};
use heaptide_report::{json, text};

use crate::exit::Failure;
use crate::input;
use crate::options::arguments::{self, n_largest, num_largest};
use crate::options::filters;
use crate::options::metrics;
use crate::output::{self, Output};

pub(crate) fn arguments() -> Command {
    Command::new("stats")
        .about("Show totals, peak, sizes, and the largest sites and modules")
        .arg(num_largest("5", "number of sites and modules"))
        .arg(metrics::leaks())
        .arg(
            Arg::new("by")
                .long("by")
                .value_name("GROUP")
                .value_parser(group)
                .help_heading("Filters")
                .help("list jobs or processes, or group processes: job, process, host, label:KEY"),
        )
        .arg(arguments::json())
        .args(output::arguments())
        .args(filters::arguments())
        .arg(input::argument())
}

/// The additional lists of the report.
#[derive(Clone)]
enum Group {
    Jobs,
    Processes(ProcessGrouping),
}

fn group(text: &str) -> Result<Group, String> {
    match text {
        "job" => Ok(Group::Jobs),
        text => ProcessGrouping::parse(text)
            .map(Group::Processes)
            .ok_or_else(|| {
                "must be job, process, host, or label:KEY, such as label:role".to_owned()
            }),
    }
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let n_largest = n_largest(matches);
    Output::check(matches)?;
    let request = Request {
        lives: true,
        jobs: JobView::Hidden,
        ..filters::request(matches)
    };
    // Jobs are read before the session, so that memory does not hold the data of both replays at once.
    let by = matches.get_one::<Group>("by");
    let jobs = match matches!(by, Some(Group::Jobs)) || filters::chooses_jobs(matches) {
        true => input::job_groups(matches)?,
        false => Vec::new(),
    };
    let session = input::session_with(matches, request)?;
    let mut stats = heaptide_analysis::stats_of(&session, n_largest, metrics::measure(matches));
    stats.jobs = jobs;
    if let Some(Group::Processes(grouping)) = by {
        stats.process_groups = process_groups(&session, grouping);
    }
    let mut output = Output::open(matches)?;
    let style = output.style();
    let (columns, _) = output.size();
    output.write(|out| {
        if matches.get_flag("json") {
            json::write(out, &json::stats(&stats))
        } else {
            text::stats::stats(out, &stats, n_largest, style, columns)
        }
    })?;
    output.finish()
}
