//! `heaptide transform`: writes captures in the formats of other tools.

use clap::{Arg, ArgMatches, Command};
use heaptide_analysis::{JobView, Measure, Request};
use heaptide_report::text::notes;
use heaptide_report::transform::{self, Format};

use crate::exit::Failure;
use crate::input;
use crate::input::replayed_capture;
use crate::messages::message;
use crate::options::filters;
use crate::options::metrics;
use crate::output::destination::{self, Destination};
use crate::output::{memray_capture, packed_events};

pub(crate) fn arguments() -> Command {
    Command::new("transform")
        .about("Convert captures to the format of another tool")
        .after_help(formats())
        .arg(
            Arg::new("format")
                .value_name("FORMAT")
                .required(true)
                .help("output format"),
        )
        .args(metrics::arguments())
        .args(destination::arguments(
            "heaptide-FORMAT-CAPTURE.EXTENSION beside the capture",
        ))
        .args(filters::arguments())
        .arg(filters::by_job())
        .arg(input::argument())
}

fn formats() -> String {
    let formats = Format::ALL.map(|format| (format.name(), format.describe()));
    let list = (replayed_capture::LIST, replayed_capture::LIST_DESCRIPTION);
    let memray = memray_capture::RELEASES.map(|(name, _, description)| (name, description));
    let of_one_process = [list].into_iter().chain(memray);
    let lines = formats.into_iter().chain(of_one_process);
    let lines = lines.map(|(name, description)| format!("\n  {name:12}{description}"));
    format!("Formats:{}", lines.collect::<String>())
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let name = matches
        .get_one::<String>("format")
        .map_or("", String::as_str);
    let measure = metrics::measure(matches);
    let memray = memray_capture::format_named(name);
    if memray.is_some() || [replayed_capture::LIST, packed_events::NAME].contains(&name) {
        if measure != Measure::Peak {
            return Err(Failure::Usage(format!(
                "{name} holds all blocks: omit --leaks, --total and --temporary-allocations"
            )));
        }
        return match memray {
            Some(format) => memray_capture::write(matches, name, format),
            None if name == packed_events::NAME => packed_events::write(matches),
            None => replayed_capture::write_list(matches),
        };
    }
    let format = format_named(name)?;
    let refusal = match format {
        Format::Json => Some("json contains every measure"),
        Format::Chrome => Some("chrome shows sizes over time, for no measure"),
        _ => None,
    };
    if let Some(reason) = refusal.filter(|_| measure != Measure::Peak) {
        let option = match measure {
            Measure::Leaked => "--leaks",
            Measure::Total => "--total",
            _ => "--temporary-allocations",
        };
        return Err(Failure::Usage(format!("{reason}: omit {option}")));
    }
    let destination = Destination::choose(
        matches,
        input::first(matches)?,
        format.name(),
        format.extension(),
    )?;
    let request = Request {
        // Growth is computed from the lifetimes of blocks.
        lives: format == Format::Json,
        jobs: filters::job_view(matches, JobView::Named),
        ..filters::request(matches)
    };
    let session = input::session_with(matches, request)?;
    let model = heaptide_analysis::stacks(&session);
    // Not every format has room for notes.
    for note in notes::incomplete(&model.quality) {
        message!("{note}");
    }
    let mut output = destination.open()?;
    if format == Format::Pprof && output.is_terminal() {
        return Err(Failure::Usage(
            "pprof is a binary format: write it to a file or a pipe".into(),
        ));
    }
    output.write(|out| transform::write(format, &model, measure, out))?;
    output.finish()
}

fn format_named(name: &str) -> Result<Format, Failure> {
    Format::from_name(name).ok_or_else(|| {
        let names = Format::ALL.map(Format::name).join(", ");
        let memray = memray_capture::RELEASES.map(|release| release.0).join(", ");
        let names = format!("{names}, {}, {memray}", replayed_capture::LIST);
        Failure::Usage(format!("unknown format \"{name}\": choose one of {names}"))
    })
}
