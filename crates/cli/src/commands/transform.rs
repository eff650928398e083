//! `heaptide transform`: writes captures in the formats of other tools.

use clap::{Arg, ArgMatches, Command};
use heaptide_analysis::{Measure, Request};
use heaptide_report::text::notes;
use heaptide_report::transform::{self, Format};

use crate::destination::{self, Destination};
use crate::exit::Failure;
use crate::filters;
use crate::input;
use crate::metrics;

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
        Format::Json => Some("json contains the leaked memory besides the peak"),
        Format::Chrome => Some("chrome shows sizes over time, not leaks"),
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
        input::first(matches),
        format.name(),
        format.extension(),
    )?;
    let request = Request {
        // Growth is computed from the lifetimes of blocks.
        lives: format == Format::Json,
        ..filters::request(matches)
    };
    let session = input::session_with(matches, request)?;
    let model = heaptide_analysis::stacks(&session);
    // Not every format has room for notes.
    for note in notes::incomplete(&model.quality) {
        eprintln!("heaptide: {note}");
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
        Failure::Usage(format!("unknown format \"{name}\": choose one of {names}"))
    })
}
