//! Texts of charts: legends, peaks, calls and notes, the same in all formats.

use heaptide_analysis::model::chart::{Bracket, Chart, ChartNote, Series, SeriesRole};

use crate::text::findings::seconds;
use crate::units::{Layout, chart_size, duration, is_layout};

/// A line of the legend.
pub fn label(series: &Series) -> String {
    let name = name(series);
    match &series.trend {
        // As in mprof: MiB per second with five decimals.
        Some(trend) if is_layout(Layout::Mprof) => {
            format!("{name} slope {:.5}", trend.bytes_per_s / 1_048_576.0)
        }
        Some(trend) => {
            let sign = if trend.bytes_per_s < 0.0 { "-" } else { "+" };
            let slope = chart_size(trend.bytes_per_s.abs().round() as u64);
            format!("{name} slope {sign}{slope}/s")
        }
        None => name,
    }
}

/// The name of a curve.
pub fn name(series: &Series) -> String {
    match &series.role {
        SeriesRole::Total { name, started } if started.is_empty() => name.clone(),
        SeriesRole::Total { name, started } => format!("{name}, start at {started}"),
        SeriesRole::Program { process, name } => format!("program {process} {name}"),
        SeriesRole::Child { process, name } if name.is_empty() => format!("child {process}"),
        SeriesRole::Child { process, name } => format!("child {process} {name}"),
        SeriesRole::Sum { n_runs } => format!("sum of {n_runs}"),
        SeriesRole::Group => "control group".to_owned(),
    }
}

pub fn peak((at_s, bytes): (f64, u64)) -> String {
    format!("peak {} at {}", chart_size(bytes), duration(at_s))
}

pub fn limit(bytes: u64) -> String {
    format!("limit {}", chart_size(bytes))
}

pub fn call(bracket: &Bracket) -> String {
    let seconds = bracket.end.0 - bracket.begin.0;
    let time = match is_layout(Layout::Mprof) {
        true => format!("{seconds:.3}s"),
        false => duration(seconds),
    };
    format!("{} {time}", bracket.function)
}

pub fn backend(chart: &Chart) -> &'static str {
    match chart.backend.as_str() {
        "pss" => "proportional size",
        "uss" => "unique size",
        _ => "resident size",
    }
}

pub fn note(note: &ChartNote) -> String {
    match *note {
        ChartNote::OutOfMemory { n_kills: 1 } => {
            "the kernel killed a process of this run because memory ran out".into()
        }
        ChartNote::OutOfMemory { n_kills } => {
            format!("the kernel killed {n_kills} processes of this run because memory ran out")
        }
        ChartNote::Killed { signal } => format!("the program was ended by {}", signal_name(signal)),
        ChartNote::LimitIn {
            seconds,
            limit,
            has_ended,
        } => {
            let (limit, time) = (chart_size(limit), estimate(seconds));
            if has_ended {
                format!(
                    "at this rate the program would have reached the limit of {limit} {time} later"
                )
            } else {
                format!("at this rate the program reaches the limit of {limit} in {time}")
            }
        }
        ChartNote::LimitFarAway { limit, peak } => format!(
            "the limit of {} is {:.0} times the peak and is not drawn",
            chart_size(limit),
            limit as f64 / peak.max(1) as f64
        ),
        ChartNote::NotDrawn { n_processes: 1 } => {
            "one smaller process has no curve, but is in the total".into()
        }
        ChartNote::NotDrawn { n_processes } => {
            format!("{n_processes} smaller processes have no curve, but are in the total")
        }
        ChartNote::NotAligned => "the runs do not overlap in time, so each begins at zero".into(),
        ChartNote::SeveralHosts {
            n_hosts,
            clock_difference_ns: Some(ns),
        } => format!(
            "{n_hosts} hosts are aligned by their clocks, which differ by up to {}",
            seconds(ns)
        ),
        ChartNote::SeveralHosts { n_hosts, .. } => format!(
            "{n_hosts} hosts are aligned by their clocks; the difference of the clocks is unknown"
        ),
        ChartNote::LargestSwap { bytes } => {
            format!("up to {} more were in swap", chart_size(bytes))
        }
    }
}

/// A time that is only known roughly.
fn estimate(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => duration(seconds),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.0} h", seconds / 3600.0),
        seconds => format!("{:.0} days", seconds / 86_400.0),
    }
}

fn signal_name(signal: i32) -> String {
    const NAMES: [(i32, &str); 10] = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (15, "SIGTERM"),
    ];
    let name = NAMES.iter().find(|(number, _)| *number == signal);
    name.map_or(format!("signal {signal}"), |(_, name)| (*name).to_owned())
}
