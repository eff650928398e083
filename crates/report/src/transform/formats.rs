//! The export formats and their names.

/// To add a format, add a line to each of these functions, a file in this folder and a section in
/// `docs/reference/exports.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Pprof,
    Speedscope,
    Collapsed,
    Csv,
    Gprof2dot,
    Json,
    Chrome,
}

impl Format {
    /// In the order of the help text.
    pub const ALL: [Format; 7] = [
        Format::Pprof,
        Format::Speedscope,
        Format::Collapsed,
        Format::Csv,
        Format::Gprof2dot,
        Format::Json,
        Format::Chrome,
    ];

    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Format::Pprof => "pprof",
            Format::Speedscope => "speedscope",
            Format::Collapsed => "collapsed",
            Format::Csv => "csv",
            Format::Gprof2dot => "gprof2dot",
            Format::Json => "json",
            Format::Chrome => "chrome",
        }
    }

    /// The file suffix without its first dot.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Pprof => "pb.gz",
            Format::Speedscope => "speedscope.json",
            Format::Collapsed => "txt",
            Format::Csv => "csv",
            Format::Gprof2dot | Format::Json => "json",
            Format::Chrome => "trace.json",
        }
    }

    pub fn describe(self) -> &'static str {
        match self {
            Format::Pprof => "profile for pprof: peak, leaked, allocations, temporary",
            Format::Speedscope => {
                "flame graphs for speedscope: peak, leaked, allocations, temporary"
            }
            Format::Collapsed => "a line for each stack, for flame graph scripts",
            Format::Csv => "a row for each stack, thread and allocator",
            Format::Gprof2dot => "call graph for gprof2dot",
            Format::Json => "everything that is known, by a published schema",
            Format::Chrome => "heap and resident size over time, for Perfetto",
        }
    }
}
