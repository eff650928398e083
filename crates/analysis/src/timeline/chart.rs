//! Charts of one timeline or several.
//!
//! Runs that overlap in time are parts of one larger run: they share a clock, and their sum is the first curve. Runs
//! that do not overlap are compared, so each begins at zero.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use heaptide_capture::identity::{self, Identity};
use heaptide_timeline::{Ending, Point, Process, Timeline};

use super::names::short_names;
use super::numbers::{forecast, line_of, peak, sum_of, thinned};
use super::titles::title;
use crate::aggregate::clock_difference;
use crate::model::chart::{Bracket, Chart, ChartNote, Series, SeriesRole, Trend};

/// The maximum number of curves of children; more could not be distinguished.
const MAX_CHILDREN: usize = 10;
/// A limit this many times above the peak is not drawn: it would flatten the curves.
const MAX_LIMIT_FACTOR: u64 = 4;
/// Nodes of one run may start this far apart, and their clocks may differ.
const MAX_START_DIFFERENCE_S: f64 = 10.0;

/// The user's options.
#[derive(Clone, Debug, Default)]
pub struct ChartOptions {
    pub title: Option<String>,
    /// In seconds from the chart's zero.
    pub window: Option<(f64, f64)>,
    pub has_slope: bool,
    pub has_no_functions: bool,
    pub is_flame: bool,
    /// Curves are thinned out to about this many points; peaks stay.
    pub max_points: usize,
    /// As [`crate::load::Session::clock_offsets`].
    pub clock_offsets: BTreeMap<String, i64>,
}

/// A timeline with its name and its start in local time.
pub struct Named<'a> {
    pub name: String,
    pub started: String,
    pub timeline: &'a Timeline,
}

/// Returns the chart of all runs; it is empty if there are none.
pub fn chart(runs: &[Named<'_>], options: &ChartOptions) -> Chart {
    let is_one_clock = runs.len() == 1 || overlap(runs);
    let zero_of = |run: &Named<'_>| run.timeline.span().map_or(0.0, |span| span.0);
    let shared_zero = runs.iter().map(zero_of).fold(f64::INFINITY, f64::min);
    let zero = |run: &Named<'_>| {
        if is_one_clock {
            shared_zero
        } else {
            zero_of(run)
        }
    };

    let mut builder = Builder {
        chart: Chart {
            title: title_of_chart(runs, options),
            is_flame: options.is_flame,
            backend: runs
                .first()
                .map_or("rss", |run| run.timeline.header.backend.name())
                .into(),
            ..Chart::default()
        },
        options,
    };
    if is_one_clock && runs.len() > 1 {
        let curves: Vec<&[Point]> = runs
            .iter()
            .map(|run| run.timeline.total.as_slice())
            .collect();
        let role = SeriesRole::Sum { n_runs: runs.len() };
        builder.add(role, &sum_of(&curves), shared_zero);
    }
    for run in runs {
        let role = SeriesRole::Total {
            name: run.name.clone(),
            started: run.started.clone(),
        };
        builder.add(role, &run.timeline.total, zero(run));
    }
    if let [run] = runs {
        builder.single(run.timeline, shared_zero);
    } else {
        for run in runs {
            builder.ending(run.timeline);
        }
        if is_one_clock {
            builder.hosts(runs);
        } else {
            builder.chart.notes.push(ChartNote::NotAligned);
        }
    }
    builder.finish()
}

fn identity(timeline: &Timeline, process: &Process) -> Identity {
    let header = &timeline.header;
    let mut facts = header.facts.clone();
    let start = process.start.clone();
    facts.extend(start.map(|start| (identity::START.to_owned(), start)));
    Identity::new(process.pid, header.host.as_deref().unwrap_or(""), &facts)
}

/// Whether every run begins before the last of the earlier ones ends. Runs of different nodes may begin up to
/// [`MAX_START_DIFFERENCE_S`] later. On one host, a run that immediately follows another does not overlap: it is
/// compared with the first, not added to it.
fn overlap(runs: &[Named<'_>]) -> bool {
    let nodes: HashSet<_> = runs
        .iter()
        .map(|run| {
            let header = &run.timeline.header;
            (&header.host, &header.facts, header.rank)
        })
        .collect();
    let apart_s = if nodes.len() == runs.len() {
        MAX_START_DIFFERENCE_S
    } else {
        0.0
    };
    let mut spans: Vec<(f64, f64)> = runs.iter().filter_map(|run| run.timeline.span()).collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut end = f64::INFINITY;
    for span in spans {
        if span.0 > end + apart_s {
            return false;
        }
        end = if end.is_infinite() {
            span.1
        } else {
            end.max(span.1)
        };
    }
    true
}

fn title_of_chart(runs: &[Named<'_>], options: &ChartOptions) -> String {
    match (&options.title, runs) {
        (Some(title), _) => title.clone(),
        (None, [run]) => run.timeline.header.command.clone(),
        (None, runs) => format!("{} runs", runs.len()),
    }
}

struct Builder<'a> {
    chart: Chart,
    options: &'a ChartOptions,
}

impl Builder<'_> {
    fn add(&mut self, role: SeriesRole, curve: &[Point], zero: f64) {
        let is_inside = |time_s: f64| {
            let x = time_s - zero;
            self.options
                .window
                .is_none_or(|(from, to)| (from..=to).contains(&x))
        };
        let curve: Vec<Point> = curve
            .iter()
            .copied()
            .filter(|point| is_inside(point.time_s))
            .collect();
        if curve.is_empty() {
            return;
        }
        let trend = self
            .options
            .has_slope
            .then(|| line_of(&curve))
            .flatten()
            .map(|line| {
                let end = |point: &Point| (point.time_s - zero, line.at(point.time_s));
                Trend {
                    bytes_per_s: line.bytes_per_s,
                    from: end(&curve[0]),
                    to: end(&curve[curve.len() - 1]),
                }
            });
        let xy = |point: Point| (point.time_s - zero, point.bytes);
        self.chart.series.push(Series {
            role,
            peak: peak(&curve).map(xy),
            points: thinned(&curve, self.options.max_points)
                .into_iter()
                .map(xy)
                .collect(),
            trend,
        });
    }

    /// Notes how far the clocks of several hosts differ.
    fn hosts(&mut self, runs: &[Named<'_>]) {
        let hosts: BTreeSet<&str> = runs
            .iter()
            .filter_map(|run| run.timeline.header.host.as_deref())
            .collect();
        if hosts.len() > 1 {
            let note = ChartNote::SeveralHosts {
                n_hosts: hosts.len(),
                clock_difference_ns: clock_difference(&self.options.clock_offsets, hosts),
            };
            self.chart.notes.push(note);
        }
    }

    /// Adds the parts that only the chart of one run has.
    fn single(&mut self, timeline: &Timeline, zero: f64) {
        let mut children: Vec<&Process> = timeline.children().iter().collect();
        let identities: Vec<Identity> = timeline
            .processes
            .iter()
            .map(|process| identity(timeline, process))
            .collect();
        let name_of = |process: &Process| identity(timeline, process).name_among(&identities);
        if let (Some(root), true) = (
            timeline.processes.first(),
            timeline.has_root && !children.is_empty(),
        ) {
            let role = SeriesRole::Program {
                process: name_of(root),
                name: title(root),
            };
            self.add(role, &root.curve(timeline.header.backend), zero);
        }
        let largest =
            |process: &Process| process.samples.iter().map(|sample| sample.1.resident).max();
        children.sort_by_key(|process| std::cmp::Reverse(largest(process)));
        let n_left_out = children.len().saturating_sub(MAX_CHILDREN);
        children.truncate(MAX_CHILDREN);
        for process in children {
            let role = SeriesRole::Child {
                process: name_of(process),
                name: title(process),
            };
            self.add(role, &process.curve(timeline.header.backend), zero);
        }
        if timeline.limit().is_some() {
            self.add(SeriesRole::Group, &timeline.group, zero);
        }
        if !self.options.has_no_functions {
            self.brackets(timeline, zero);
        }
        self.ending(timeline);
        self.limit(timeline);
        self.swap(timeline);
        if n_left_out > 0 {
            let n_processes = n_left_out;
            self.chart.notes.push(ChartNote::NotDrawn { n_processes });
        }
    }

    fn brackets(&mut self, timeline: &Timeline, zero: f64) {
        let short = short_names(timeline.calls.iter().map(|call| call.function.as_str()));
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        for call in &timeline.calls {
            let next = numbers.len();
            let number = *numbers.entry(&call.function).or_insert(next);
            let xy = |point: Point| (point.time_s - zero, point.bytes);
            let (begin, end) = (xy(call.begin), xy(call.end));
            let is_outside = self
                .options
                .window
                .is_some_and(|(from, to)| end.0 < from || begin.0 > to);
            if is_outside {
                continue;
            }
            self.chart.brackets.push(Bracket {
                function: short[call.function.as_str()].to_owned(),
                number,
                begin,
                end,
                level: call.level.unwrap_or(0),
            });
        }
    }

    fn ending(&mut self, timeline: &Timeline) {
        if timeline.n_oom_kills > 0 {
            let n_kills = timeline.n_oom_kills;
            self.chart.notes.push(ChartNote::OutOfMemory { n_kills });
        }
        if let Some(Ending::Signal(signal)) = timeline.ending {
            self.chart.notes.push(ChartNote::Killed { signal });
        }
    }

    fn limit(&mut self, timeline: &Timeline) {
        let Some(limit) = timeline.limit() else {
            return;
        };
        // The limit applies to the whole control group. If the size of the group is unknown, use that of the program.
        let curve = if timeline.group.is_empty() {
            &timeline.total
        } else {
            &timeline.group
        };
        let Some(peak) = peak(curve) else { return };
        if limit / MAX_LIMIT_FACTOR > peak.bytes {
            let peak = peak.bytes;
            self.chart
                .notes
                .push(ChartNote::LimitFarAway { limit, peak });
        } else {
            self.chart.limit = Some(limit);
        }
        // After an out-of-memory kill there is nothing to forecast.
        let forecast = forecast(curve, limit).filter(|_| timeline.n_oom_kills == 0);
        if let Some(seconds) = forecast {
            let has_ended = !matches!(timeline.ending, None | Some(Ending::StillRunning));
            self.chart.notes.push(ChartNote::LimitIn {
                seconds,
                limit,
                has_ended,
            });
        }
    }

    fn swap(&mut self, timeline: &Timeline) {
        let highest = |process: &Process| {
            process
                .samples
                .iter()
                .filter_map(|sample| sample.1.swap)
                .max()
        };
        let bytes: u64 = timeline
            .processes
            .iter()
            .filter_map(highest)
            .fold(0, u64::saturating_add);
        if bytes > 0 {
            self.chart.notes.push(ChartNote::LargestSwap { bytes });
        }
    }

    fn finish(mut self) -> Chart {
        let chart = &mut self.chart;
        chart.peak = chart.series.first().and_then(|first| first.peak);
        if !chart
            .series
            .iter()
            .any(|series| matches!(series.role, SeriesRole::Sum { .. }))
        {
            let peaks = chart
                .series
                .iter()
                .filter(|series| matches!(series.role, SeriesRole::Total { .. }));
            chart.peak = peaks
                .filter_map(|series| series.peak)
                .max_by_key(|peak| peak.1);
        }
        let tops = chart
            .series
            .iter()
            .filter_map(|series| Some(series.peak?.1));
        let functions = chart
            .brackets
            .iter()
            .map(|bracket| bracket.begin.1.max(bracket.end.1));
        chart.top_bytes = tops.chain(functions).chain(chart.limit).max().unwrap_or(0);
        let ends = |series: &Series| Some((series.points.first()?.0, series.points.last()?.0));
        let ends: Vec<(f64, f64)> = chart.series.iter().filter_map(ends).collect();
        let calls = chart.brackets.iter().map(|bracket| bracket.end.0);
        (chart.from_s, chart.to_s) = self.options.window.unwrap_or((
            ends.iter().map(|end| end.0).fold(f64::INFINITY, f64::min),
            ends.iter()
                .map(|end| end.1)
                .chain(calls)
                .fold(f64::NEG_INFINITY, f64::max),
        ));
        // A run with at most one sample still needs an axis.
        if !(chart.from_s.is_finite() && chart.to_s > chart.from_s) {
            chart.from_s = if chart.from_s.is_finite() {
                chart.from_s
            } else {
                0.0
            };
            chart.to_s = chart.from_s + 1.0;
        }
        self.chart
    }
}

#[cfg(test)]
mod tests {
    use heaptide_timeline::Memory;

    use super::*;

    fn run(from_s: u32, sizes: &[u64]) -> Timeline {
        let point = |(n, &bytes): (usize, &u64)| Point {
            time_s: f64::from(from_s) + n as f64,
            bytes,
        };
        Timeline {
            total: sizes.iter().enumerate().map(point).collect(),
            ..Timeline::default()
        }
    }

    fn charted(timelines: &[Timeline], options: &ChartOptions) -> Chart {
        let named = |timeline| Named {
            name: "x".into(),
            started: String::new(),
            timeline,
        };
        let runs: Vec<Named<'_>> = timelines.iter().map(named).collect();
        chart(&runs, options)
    }

    #[test]
    fn runs_at_the_same_time_share_a_clock_and_have_a_sum() {
        let chart = charted(
            &[run(100, &[5, 5, 5]), run(101, &[7, 7, 7])],
            &ChartOptions::default(),
        );
        assert!(matches!(
            chart.series[0].role,
            SeriesRole::Sum { n_runs: 2 }
        ));
        assert_eq!(chart.peak, Some((1.0, 12)));
        assert_eq!(chart.series[2].points[0].0, 1.0);
        assert_eq!((chart.from_s, chart.to_s), (0.0, 3.0));
    }

    #[test]
    fn consecutive_runs_overlap_only_if_they_are_of_different_nodes() {
        let mut timelines = [run(100, &[5, 6]), run(104, &[7, 3])];
        let has_sum = |timelines: &[Timeline]| {
            let chart = charted(timelines, &ChartOptions::default());
            matches!(chart.series[0].role, SeriesRole::Sum { .. })
        };
        assert!(!has_sum(&timelines));
        timelines[0].header.host = Some("one".into());
        timelines[1].header.host = Some("two".into());
        assert!(has_sum(&timelines));
    }

    #[test]
    fn runs_of_different_days_each_begin_at_zero_and_have_no_sum() {
        let chart = charted(
            &[run(100, &[5, 6]), run(90_000, &[7, 3])],
            &ChartOptions::default(),
        );
        assert_eq!(chart.series.len(), 2);
        assert_eq!(chart.series[1].points[0].0, 0.0);
        assert_eq!(chart.peak, Some((0.0, 7)));
        assert_eq!(chart.notes, [ChartNote::NotAligned]);
    }

    #[test]
    fn window_cuts_curves_and_their_peaks() {
        let options = ChartOptions {
            window: Some((1.0, 2.0)),
            ..ChartOptions::default()
        };
        let chart = charted(&[run(0, &[9, 1, 2, 9])], &options);
        assert_eq!(chart.series[0].points, [(1.0, 1), (2.0, 2)]);
        assert_eq!(
            (chart.peak, chart.from_s, chart.to_s),
            (Some((2.0, 2)), 1.0, 2.0)
        );
    }

    #[test]
    fn limit_far_above_the_peak_is_a_note_instead_of_a_line() {
        let mut timeline = run(0, &[10, 20]);
        timeline.limits = vec![(0.0, Some(1_000))];
        let chart = charted(&[timeline.clone()], &ChartOptions::default());
        assert_eq!((chart.limit, chart.notes.len()), (None, 1));
        timeline.limits = vec![(0.0, Some(30))];
        let chart = charted(&[timeline], &ChartOptions::default());
        assert_eq!((chart.limit, chart.top_bytes), (Some(30), 30));
    }

    #[test]
    fn children_with_a_reused_process_id_have_different_names() {
        let mut timeline = run(0, &[1, 2, 3]);
        timeline.processes = ["8.00s", "9.00s"]
            .map(|start| Process {
                pid: 7,
                start: Some(start.into()),
                samples: vec![(0.0, Memory::default()), (1.0, Memory::default())],
                ..Process::default()
            })
            .into();
        let chart = charted(&[timeline], &ChartOptions::default());
        let named = chart.series.iter().filter_map(|series| match &series.role {
            SeriesRole::Child { process, .. } => Some(process.as_str()),
            _ => None,
        });
        assert_eq!(named.collect::<Vec<_>>(), ["7@8.00s", "7@9.00s"]);
    }
}
