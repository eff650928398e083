//! Exports: the same numbers in the formats of other tools, one file for each format.
//!
//! `formats` is the list of them; `merged` gives the stacks of a view in the order in which flame graphs want them,
//! `lines` writes JSON that is long but flat. `docs/reference/exports.md` says what each format holds and what it cannot.

mod chrome;
mod collapsed;
mod csv;
mod formats;
mod gprof2dot;
mod lines;
mod merged;
mod model;
mod pprof;
mod protobuf;
mod speedscope;

use std::io::{self, Write};

use heaptide_analysis::View;
use heaptide_analysis::model::StackModel;

pub use formats::Format;

/// Where no Python frame was on the stack, in formats that need a frame.
const NO_FRAMES: &str = "<stack trace unavailable>";

/// Writes the export. The view is what formats that hold one view show, and what those that hold several show first.
pub fn write(
    format: Format,
    model: &StackModel,
    view: View,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Pprof => pprof::write(model, view, out),
        Format::Speedscope => speedscope::write(model, view, out),
        Format::Collapsed => collapsed::write(model, view, out),
        Format::Csv => csv::write(model, view, out),
        Format::Gprof2dot => gprof2dot::write(model, view, out),
        Format::Json => model::write(model, out),
        Format::Chrome => chrome::write(model, out),
    }
}
