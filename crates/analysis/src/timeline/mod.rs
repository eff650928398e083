//! Numbers of timelines: peaks, slopes, forecasts, and what a chart of one or many shows.

mod chart;
mod names;
mod numbers;

pub use chart::{ChartOptions, Named, chart};
pub use names::short_names;
pub use numbers::{Line, forecast, line_of, peak, peak_within, sum_of};
