//! Decides whether a job leaks, from the bytes that each of its runs left.
//!
//! After a job that leaks nothing, memory returns to the same level. A job that fills a cache reaches a new level, and a
//! job that leaks rises for ever. So the series is the running sum of the bytes that the runs of one process left. Only
//! its second half is tested, because caches are filled by then:
//!
//! - The slope is the median of the slopes between all pairs of points (Theil–Sen). One run that left much hardly
//!   changes it. The allocator takes memory in large steps, which do not hide it.
//! - The confidence that the series rises comes from the Mann–Kendall test, which counts rising and falling pairs. It
//!   needs no assumption about the size of the steps.
//!
//! One step in the middle of the second half would pass both tests. So the growth must not come from two runs alone. A
//! process whose jobs need different amounts of memory keeps the largest amount so far, and that maximum rises rarely.
//!
//! Pairs lie within one process, and the counts of all processes are added, as the seasonal Kendall test adds the
//! counts of months. Therefore a large number of workers with few runs each also counts.

/// A process with fewer runs is left out.
pub const MIN_RUNS: usize = 8;
/// The minimum confidence at which growth is a leak.
pub const MIN_CONFIDENCE: f64 = 0.95;
/// The minimum share of the growth that must remain without its two largest steps.
const MIN_SPREAD: f64 = 0.25;
/// Longer series are thinned out evenly: the number of pairs is quadratic.
const MAX_POINTS: usize = 256;
const MAX_PAIRS: usize = 2_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Memory keeps rising, in every run or in steps.
    Leaks,
    /// The first half of the runs left memory, and the second half left less.
    WarmsUp,
    Clean,
    /// No process ran it often enough, nothing was measured, few runs left all of the growth, or other work may be its
    /// reason.
    Unknown,
}

impl Verdict {
    /// The name in reports and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Leaks => "leaks",
            Verdict::WarmsUp => "warms up",
            Verdict::Clean => "clean",
            Verdict::Unknown => "unknown",
        }
    }
}

/// The growth of a job over its runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    pub verdict: Verdict,
    /// Bytes per run in the second half of the runs.
    pub slope: f64,
    /// The probability, from 0 to 1, that chance alone would not make the second half rise this consistently.
    pub confidence: f64,
}

/// Returns the trend of a job. `processes` has, for each process, the bytes that each run left, in the order of time;
/// growth below `min_bytes` over half of the runs counts as none. `None` if no process has enough runs.
pub fn trend(processes: &[Vec<i64>], min_bytes: f64) -> Option<Trend> {
    let long: Vec<&Vec<i64>> = processes
        .iter()
        .filter(|left| left.len() >= MIN_RUNS)
        .collect();
    if long.is_empty() {
        return None;
    }
    let n_pairs = MAX_PAIRS / long.len();
    let n_points = ((2.0 * n_pairs as f64).sqrt() as usize).clamp(MIN_RUNS, MAX_POINTS);
    let mut kendall = Kendall::default();
    let mut slopes = Vec::new();
    // The bytes that an average process left in the first and in the second half of its runs.
    let (mut early, mut late) = (0.0, 0.0);
    let (mut risen, mut spread) = (0.0, 0.0);
    for left in &long {
        let sums: Vec<f64> = left
            .iter()
            .scan(0.0, |sum, &bytes| {
                *sum += bytes as f64;
                Some(*sum)
            })
            .collect();
        // The point in the middle is the level at which the second half starts.
        let middle = sums.len() / 2 - 1;
        early += sums[middle] / long.len() as f64;
        late += (sums[sums.len() - 1] - sums[middle]) / long.len() as f64;
        let steps = rises(&sums[middle..]);
        risen += steps.iter().sum::<f64>();
        spread += steps.iter().skip(2).sum::<f64>();
        let points = thinned(&sums, middle, n_points);
        kendall.add(&points);
        pair_slopes(&points, &mut slopes);
    }
    let slope = median(&mut slopes);
    let confidence = kendall.confidence();
    let verdict = if confidence >= MIN_CONFIDENCE && slope > 0.0 && late >= min_bytes {
        match spread >= MIN_SPREAD * risen {
            true => Verdict::Leaks,
            false => Verdict::Unknown,
        }
    } else if early >= min_bytes && early > late {
        Verdict::WarmsUp
    } else {
        Verdict::Clean
    };
    Some(Trend {
        verdict,
        slope,
        confidence,
    })
}

/// Returns the steps by which the maximum so far rises, the largest first.
fn rises(levels: &[f64]) -> Vec<f64> {
    let mut highest = levels[0];
    let mut steps = Vec::new();
    for &level in levels {
        if level > highest {
            steps.push(level - highest);
            highest = level;
        }
    }
    steps.sort_unstable_by(|one, other| other.total_cmp(one));
    steps
}

/// Returns at most `n_points` points of the series from `first` on, with their indices, evenly spaced. The last is kept.
fn thinned(sums: &[f64], first: usize, n_points: usize) -> Vec<(f64, f64)> {
    let last = sums.len() - 1;
    let n = (last - first + 1).min(n_points);
    let at = |i: usize| first + i * (last - first) / (n - 1);
    (0..n).map(|i| (at(i) as f64, sums[at(i)])).collect()
}

fn pair_slopes(points: &[(f64, f64)], slopes: &mut Vec<f64>) {
    for (i, one) in points.iter().enumerate() {
        slopes.extend(
            points[i + 1..]
                .iter()
                .map(|other| (other.1 - one.1) / (other.0 - one.0)),
        );
    }
}

fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    let is_even = values.len() % 2 == 0;
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let lower = below.iter().copied().max_by(f64::total_cmp);
    match lower.filter(|_| is_even) {
        Some(lower) => (lower + *upper) / 2.0,
        None => *upper,
    }
}

/// The sums of the Mann–Kendall test over several series.
#[derive(Clone, Copy, Default)]
pub(super) struct Kendall {
    /// Pairs that rise minus pairs that fall.
    score: f64,
    variance: f64,
}

impl Kendall {
    pub(super) fn add(&mut self, points: &[(f64, f64)]) {
        for (i, one) in points.iter().enumerate() {
            for other in &points[i + 1..] {
                self.score += match other.1.total_cmp(&one.1) {
                    std::cmp::Ordering::Less => -1.0,
                    std::cmp::Ordering::Equal => 0.0,
                    std::cmp::Ordering::Greater => 1.0,
                };
            }
        }
        let term = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0);
        let mut values: Vec<f64> = points.iter().map(|point| point.1).collect();
        values.sort_unstable_by(f64::total_cmp);
        let equal = values.chunk_by(|one, other| one == other);
        let ties: f64 = equal.map(|group| term(group.len() as f64)).sum();
        self.variance += (term(points.len() as f64) - ties) / 18.0;
    }

    pub(super) fn merge(&mut self, other: &Kendall) {
        self.score += other.score;
        self.variance += other.variance;
    }

    /// The probability that independent values would rise less.
    pub(super) fn confidence(&self) -> f64 {
        if self.variance <= 0.0 {
            return 0.0;
        }
        // Continuity correction: the score changes in steps of two.
        let z = (self.score - self.score.signum()) / self.variance.sqrt();
        normal(z)
    }
}

/// The distribution function of the normal distribution, with an error below 1e-7 (Abramowitz and Stegun, 26.2.17).
pub(super) fn normal(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let factors = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let tail = factors
        .iter()
        .rev()
        .fold(0.0, |sum, factor| (sum + factor) * t);
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let upper = density * tail;
    if z >= 0.0 { 1.0 - upper } else { upper }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(left: &[i64]) -> Trend {
        trend(&[left.to_vec()], 64.0).expect("enough runs")
    }

    #[test]
    fn constant_loss_is_a_leak_of_exactly_that_size() {
        let trend = of(&[300_171; 20]);
        assert_eq!((trend.verdict, trend.slope), (Verdict::Leaks, 300_171.0));
        assert!(trend.confidence > 0.99, "{trend:?}");
    }

    #[test]
    fn eight_runs_are_enough_and_seven_are_not() {
        assert_eq!(of(&[1000; 8]).verdict, Verdict::Leaks);
        assert_eq!(trend(&[vec![1000; 7], vec![1000; 7]], 64.0), None);
    }

    #[test]
    fn a_cache_that_fills_warms_up() {
        let left: Vec<i64> = (0..30)
            .map(|run| if run < 6 { 50_000 } else { 0 })
            .collect();
        let trend = of(&left);
        assert_eq!((trend.verdict, trend.slope), (Verdict::WarmsUp, 0.0));
    }

    #[test]
    fn nothing_left_and_noise_around_a_level_are_clean() {
        assert_eq!(of(&[0; 20]).verdict, Verdict::Clean);
        let swing: Vec<i64> = (0..40)
            .map(|run| if run % 2 == 0 { 900 } else { -900 })
            .collect();
        assert_eq!(of(&swing).verdict, Verdict::Clean);
    }

    #[test]
    fn growth_in_rare_steps_is_a_leak() {
        let left: Vec<i64> = (0..100)
            .map(|run| if run % 10 == 9 { 1_000_000 } else { 0 })
            .collect();
        let trend = of(&left);
        assert_eq!(trend.verdict, Verdict::Leaks);
        assert!((90_000.0..110_000.0).contains(&trend.slope), "{trend:?}");
    }

    #[test]
    fn one_huge_run_does_not_make_a_leak() {
        for run in 20..40 {
            let mut left = vec![0; 40];
            left[run] = 10_000_000;
            let verdict = of(&left).verdict;
            assert!(
                matches!(verdict, Verdict::Clean | Verdict::Unknown),
                "{verdict:?} after run {run}"
            );
        }
    }

    #[test]
    fn largest_size_so_far_of_random_jobs_is_rarely_a_leak() {
        let mut state = 1u64;
        let mut noise = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as i64 % 20_000_000
        };
        let n_leaks = (0..400)
            .filter(|_| {
                let mut highest = 0;
                let left: Vec<i64> = (0..60)
                    .map(|_| {
                        let before = highest;
                        highest = highest.max(noise());
                        highest - before
                    })
                    .collect();
                of(&left).verdict == Verdict::Leaks
            })
            .count();
        // One in twenty by design.
        assert!(n_leaks <= 20, "{n_leaks} of 400");
    }

    #[test]
    fn processes_are_counted_together() {
        let workers = vec![vec![500; 8]; 5];
        let together = trend(&workers, 64.0).unwrap();
        assert!(together.confidence > of(&[500; 8]).confidence);
        assert_eq!(together.slope, 500.0);
    }

    #[test]
    fn long_series_are_thinned_out_and_give_the_same_slope() {
        let trend = of(&vec![7; 100_000]);
        assert_eq!((trend.verdict, trend.slope), (Verdict::Leaks, 7.0));
    }

    #[test]
    fn normal_distribution_has_its_known_values() {
        for (z, expected) in [
            (0.0, 0.5),
            (1.644_854, 0.95),
            (-1.959_964, 0.025),
            (3.0, 0.998_650),
        ] {
            assert!((normal(z) - expected).abs() < 1e-6, "{z}");
        }
    }

    #[test]
    fn stationary_noise_is_rarely_a_leak() {
        let mut state = 1u64;
        let mut noise = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as i64 % 1_000_000
        };
        let n_leaks = (0..400)
            .filter(|_| {
                let levels: Vec<i64> = (0..41).map(|_| noise()).collect();
                let left: Vec<i64> = levels.windows(2).map(|pair| pair[1] - pair[0]).collect();
                of(&left).verdict == Verdict::Leaks
            })
            .count();
        // The expected rate of false alarms is one in twenty, which is 20 of 400.
        assert!(n_leaks <= 40, "{n_leaks} of 400");
    }
}
