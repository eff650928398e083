//! Exports: the same numbers in the formats of other tools, one file for each format.
//!
//! [`formats`] lists them. `merged` sums the stacks of one measure, in depth-first order as flame graphs expect them.
//! `lines` writes JSON that is long but flat. `docs/reference/exports.md` describes the content of each format.

mod chrome;
mod collapsed;
mod csv;
pub mod events;
mod formats;
mod gprof2dot;
mod lines;
mod merged;
mod model;
mod pprof;
mod protobuf;
mod speedscope;

use std::io::{self, Write};

use heaptide_analysis::Measure;
use heaptide_analysis::model::StackModel;

pub use formats::Format;

/// The frame name for stacks without a Python frame, in formats that need a frame.
const NO_FRAMES: &str = "<stack trace unavailable>";

/// Writes the export. Formats with one measure contain `measure`. pprof and speedscope contain all measures and open
/// with it; JSON and Chrome's format ignore it.
pub fn write(
    format: Format,
    model: &StackModel,
    measure: Measure,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Pprof => pprof::write(model, measure, out),
        Format::Speedscope => speedscope::write(model, measure, out),
        Format::Collapsed => collapsed::write(model, measure, out),
        Format::Csv => csv::write(model, measure, out),
        Format::Gprof2dot => gprof2dot::write(model, measure, out),
        Format::Json => model::write(model, out),
        Format::Chrome => chrome::write(model, out),
    }
}
