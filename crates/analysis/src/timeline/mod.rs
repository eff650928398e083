//! Peaks, slopes and forecasts of timelines, and charts of one or several.

mod chart;
mod names;
mod numbers;
mod titles;

pub use chart::{ChartOptions, Named, chart};
pub use names::short_names;
pub use numbers::{Line, forecast, line_of, peak, peak_within, sum_of};
