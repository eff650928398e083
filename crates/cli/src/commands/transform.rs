//! `heaptide transform`: captures in the formats of other tools.

use clap::{Arg, ArgMatches, Command};
use heaptide_analysis::{Measure, Request};
use heaptide_report::transform::{self, Format};

use crate::destination::{self, Destination};
use crate::exit::Failure;
use crate::filters;
use crate::input;
use crate::metrics;

pub(crate) fn arguments() -> Command {
    Command::new("transform")
        .about("Write what was recorded in the format of another tool")
        .after_help(formats())
        .arg(
            Arg::new("format")
                .value_name("FORMAT")
                .required(true)
                .help("one of the formats below"),
        )
        .args(metrics::arguments())
        .args(destination::arguments(
            "heaptide-FORMAT-CAPTURE, with the format's ending, beside the capture",
        ))
        .args(filters::arguments())
        .arg(input::argument())
}

fn formats() -> String {
    let lines = Format::ALL.map(|format| format!("\n  {:12}{}", format.name(), format.describe()));
    format!("Formats:{}", lines.concat())
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let name = matches.get_one::<String>("format");
    let format = format_named(name.map_or("", String::as_str))?;
    let measure = metrics::measure(matches);
    let refusal = match format {
        Format::Json => Some("json holds what leaked beside the peak"),
        Format::Chrome => Some("chrome shows sizes over time, which have no leaks"),
        _ => None,
    };
    if let Some(reason) = refusal.filter(|_| measure != Measure::Peak) {
        let option = match measure {
            Measure::Leaked => "--leaks",
            Measure::Total => "--total",
            _ => "--temporary-allocations",
        };
        return Err(Failure::Usage(format!("{reason}: leave out {option}")));
    }
    let destination = Destination::choose(
        matches,
        input::first(matches),
        format.name(),
        format.extension(),
    )?;
    let request = Request {
        // What grows is told by when blocks were born and died.
        lives: format == Format::Json,
        ..filters::request(matches)
    };
    let session = input::session_with(matches, request)?;
    let model = heaptide_analysis::stacks(&session);
    let mut output = destination.open()?;
    if format == Format::Pprof && output.is_terminal() {
        return Err(Failure::Usage(
            "pprof is not text: send it into a file or a pipe, not to a terminal".into(),
        ));
    }
    output.write(|out| transform::write(format, &model, measure, out))?;
    output.finish()
}

fn format_named(name: &str) -> Result<Format, Failure> {
    Format::from_name(name).ok_or_else(|| {
        let names = Format::ALL.map(Format::name).join(", ");
        Failure::Usage(format!(
            "there is no format \"{name}\": choose one of {names}"
        ))
    })
}
