//! Peaks, lines, forecasts and sums of curves. A value applies until the next sample.

use heaptide_timeline::{Point, Timeline};

/// The first of the largest points.
pub fn peak(curve: &[Point]) -> Option<Point> {
    let mut best: Option<Point> = None;
    for &point in curve {
        if best.is_none_or(|best| point.bytes > best.bytes) {
            best = Some(point);
        }
    }
    best
}

/// The peak of the whole run during calls of a function; `None` if no sample was taken during a call. If no function has
/// exactly this name, it matches the last parts of dotted names, as charts show them.
pub fn peak_within(timeline: &Timeline, function: &str) -> Option<Point> {
    let is_end = |name: &str| {
        let rest = name.strip_suffix(function);
        rest.is_some_and(|rest| rest.ends_with('.'))
    };
    let mut calls: Vec<_> = timeline.calls.iter().collect();
    if calls.iter().any(|call| call.function == function) {
        calls.retain(|call| call.function == function);
    } else {
        calls.retain(|call| is_end(&call.function));
    }
    let is_within = |point: &Point| {
        let during = calls
            .iter()
            .filter(|call| call.begin.time_s <= point.time_s);
        during
            .into_iter()
            .any(|call| point.time_s <= call.end.time_s)
    };
    let within: Vec<Point> = timeline.total.iter().copied().filter(is_within).collect();
    peak(&within)
}

/// A straight line through a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    pub bytes_per_s: f64,
    /// The value at `from_s`.
    pub bytes: f64,
    pub from_s: f64,
}

impl Line {
    pub fn at(&self, time_s: f64) -> f64 {
        self.bytes + (time_s - self.from_s) * self.bytes_per_s
    }
}

/// The least-squares line; `None` if the curve has no duration.
pub fn line_of(curve: &[Point]) -> Option<Line> {
    let from_s = curve.first()?.time_s;
    let n = curve.len() as f64;
    let x = |point: &Point| point.time_s - from_s;
    let mean_x = curve.iter().map(x).sum::<f64>() / n;
    let mean_y = curve.iter().map(|point| point.bytes as f64).sum::<f64>() / n;
    let spread: f64 = curve.iter().map(|point| (x(point) - mean_x).powi(2)).sum();
    if spread <= 0.0 {
        return None;
    }
    let product = |point: &Point| (x(point) - mean_x) * (point.bytes as f64 - mean_y);
    let bytes_per_s = curve.iter().map(product).sum::<f64>() / spread;
    Some(Line {
        bytes_per_s,
        bytes: mean_y - bytes_per_s * mean_x,
        from_s,
    })
}

/// Seconds from the end of the curve until it reaches the limit, if it continues like its second half. `None` if it does
/// not grow, or no faster than noise.
pub fn forecast(curve: &[Point], limit: u64) -> Option<f64> {
    /// The first half is left out: imports at the start do not predict the rest.
    const BEGIN: usize = 2;
    const MIN_POINTS: usize = 8;
    let recent = &curve[curve.len() / BEGIN..];
    let last = recent.last()?;
    if recent.len() < MIN_POINTS || last.bytes >= limit {
        return None;
    }
    let line = line_of(recent)?;
    let grown = line.bytes_per_s * (last.time_s - line.from_s);
    // The line must rise by more than twice the standard deviation of the points from it.
    let deviation = recent
        .iter()
        .map(|point| (point.bytes as f64 - line.at(point.time_s)).powi(2))
        .sum::<f64>();
    let deviation = (deviation / recent.len() as f64).sqrt();
    if grown <= 2.0 * deviation || grown < 1_000_000.0_f64.min(limit as f64 / 1000.0) {
        return None;
    }
    Some((limit - last.bytes) as f64 / line.bytes_per_s)
}

/// The sum of all curves whenever one of them has a sample. A curve counts from its first sample until one mean
/// interval after its last, so that the sum does not drop between two samples.
pub fn sum_of(curves: &[&[Point]]) -> Vec<Point> {
    let mut moments: Vec<(f64, usize, u64)> = Vec::new();
    for (number, curve) in curves.iter().enumerate() {
        moments.extend(
            curve
                .iter()
                .map(|point| (point.time_s, number, point.bytes)),
        );
        if let (Some(last), true) = (curve.last(), curve.len() > 1) {
            let mean_interval = (last.time_s - curve[0].time_s) / (curve.len() - 1) as f64;
            moments.push((last.time_s + mean_interval, number, 0));
        }
    }
    moments.sort_by(|a, b| a.0.total_cmp(&b.0));
    let end = curves
        .iter()
        .filter_map(|curve| curve.last())
        .map(|point| point.time_s);
    let end = end.fold(f64::NEG_INFINITY, f64::max);
    let mut now = vec![0u64; curves.len()];
    let mut sums: Vec<Point> = Vec::new();
    for (time_s, number, bytes) in moments {
        now[number] = bytes;
        if time_s > end {
            break;
        }
        let bytes = now
            .iter()
            .fold(0u64, |sum, &bytes| sum.saturating_add(bytes));
        match sums.last_mut() {
            Some(last) if last.time_s == time_s => last.bytes = bytes,
            _ => sums.push(Point { time_s, bytes }),
        }
    }
    sums
}

/// Thins a curve out to about `max_points`: from each interval it keeps the first, smallest, largest and last point.
pub fn thinned(curve: &[Point], max_points: usize) -> Vec<Point> {
    if max_points == 0 || curve.len() <= max_points {
        return curve.to_vec();
    }
    let interval = curve.len().div_ceil((max_points / 4).max(1));
    let mut kept = Vec::new();
    for part in curve.chunks(interval) {
        let extreme = |largest: bool| {
            let positions = 0..part.len();
            if largest {
                positions.max_by_key(|&at| part[at].bytes)
            } else {
                positions.min_by_key(|&at| part[at].bytes)
            }
        };
        let mut positions = [Some(0), extreme(false), extreme(true), Some(part.len() - 1)]
            .map(|at| at.unwrap_or(0));
        positions.sort_unstable();
        let mut last = None;
        for at in positions {
            if last != Some(at) {
                kept.push(part[at]);
            }
            last = Some(at);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use heaptide_timeline::Call;

    use super::*;

    fn curve(points: &[(f64, u64)]) -> Vec<Point> {
        points
            .iter()
            .map(|&(time_s, bytes)| Point { time_s, bytes })
            .collect()
    }

    #[test]
    fn peak_is_the_first_of_the_largest() {
        let points = curve(&[(0.0, 5), (1.0, 9), (2.0, 9), (3.0, 1)]);
        assert_eq!(
            peak(&points),
            Some(Point {
                time_s: 1.0,
                bytes: 9
            })
        );
        assert_eq!(peak(&[]), None);
    }

    #[test]
    fn function_is_matched_by_its_whole_name_or_its_last_parts() {
        let call = |name: &str, time_s| Call {
            function: name.into(),
            begin: Point { time_s, bytes: 0 },
            end: Point { time_s, bytes: 0 },
            level: None,
        };
        let timeline = Timeline {
            total: curve(&[(0.0, 5), (1.0, 9), (2.0, 7)]),
            calls: vec![
                call("load", 0.0),
                call("job.load", 1.0),
                call("job.parse", 2.0),
            ],
            ..Timeline::default()
        };
        let peak_of = |name| peak_within(&timeline, name).map(|point| point.bytes);
        assert_eq!(peak_of("load"), Some(5));
        assert_eq!(peak_of("parse"), Some(7));
        assert_eq!((peak_of("rse"), peak_of("job")), (None, None));
    }

    #[test]
    fn line_has_the_least_squares() {
        let line = line_of(&curve(&[(10.0, 1), (11.0, 3), (12.0, 5)])).expect("a line");
        assert!(
            (line.bytes_per_s - 2.0).abs() < 1e-9 && (line.bytes - 1.0).abs() < 1e-9,
            "{line:?}"
        );
        assert_eq!(line_of(&curve(&[(1.0, 1)])), None);
        assert_eq!(line_of(&curve(&[(1.0, 1), (1.0, 5)])), None);
    }

    #[test]
    fn forecast_of_steady_growth_is_right() {
        let points: Vec<Point> = (0..100)
            .map(|n| Point {
                time_s: f64::from(n),
                bytes: 10_000_000 * n as u64,
            })
            .collect();
        let left = forecast(&points, 2_000_000_000).expect("it grows");
        assert!((left - 101.0).abs() < 0.5, "{left}");
    }

    #[test]
    fn fluctuating_curve_has_no_forecast() {
        let points: Vec<Point> = (0..100)
            .map(|n| Point {
                time_s: f64::from(n),
                bytes: 50_000_000 + 5_000_000 * (n as u64 % 5),
            })
            .collect();
        assert_eq!(forecast(&points, 2_000_000_000), None);
        assert_eq!(forecast(&points[..4], 2_000_000_000), None);
    }

    #[test]
    fn sum_counts_each_curve_until_one_interval_after_its_last_sample() {
        let (a, b) = (
            curve(&[(0.0, 10), (1.0, 10), (2.0, 10)]),
            curve(&[(0.5, 1), (0.9, 2)]),
        );
        let sums = sum_of(&[&a, &b]);
        let at = |time_s: f64| {
            sums.iter()
                .rfind(|point| point.time_s <= time_s)
                .map(|point| point.bytes)
        };
        assert_eq!(
            (at(0.2), at(0.6), at(1.0), at(1.5)),
            (Some(10), Some(11), Some(12), Some(10))
        );
        assert_eq!(sums.last().map(|point| point.time_s), Some(2.0));
    }

    #[test]
    fn thinned_curves_keep_their_peaks() {
        let point = |n: u32| Point {
            time_s: f64::from(n),
            bytes: if n == 7_777 { 1_000 } else { n as u64 % 7 },
        };
        let curve: Vec<Point> = (0..10_000).map(point).collect();
        let kept = thinned(&curve, 400);
        assert!(kept.len() <= 400, "{}", kept.len());
        assert!(kept.contains(&curve[7_777]) && kept.contains(&curve[9_999]));
        assert!(kept.is_sorted_by(|a, b| a.time_s < b.time_s));
    }
}
