//! A line whose memory grows steadily. A line that holds much memory without growth is not reported here.
//!
//! Programs load data when they begin and free it when they end, so the first quarter of the run and the last reading
//! do not count. The readings in between must follow a straight line and rise most of the time. A single step is not
//! growth, even if it is high.

use super::MAX_PER_CHECK;
use super::site_groups::{SiteGroup, SiteGroups};
use crate::load::Session;
use crate::model::finding::Number::{Real, Unsigned};
use crate::model::finding::SentenceValue::{Bytes, Count, Nanoseconds, Percent};
use crate::model::{Finding, Measure, Sentence};

/// The share of the readings that counts as warming up.
const WARM_UP_SHARE: f64 = 0.25;
/// The minimum number of readings for a conclusion.
const MIN_READINGS: usize = 16;
/// The readings are divided into [`N_PARTS`] parts, and at least [`MIN_RISING_PARTS`] of them must rise.
const N_PARTS: usize = 8;
const MIN_RISING_PARTS: usize = 6;
/// The straight line must explain at least this share of the variance.
const MIN_CONFIDENCE: f64 = 0.8;
/// The growth must be at least this share of the peak.
const MIN_PEAK_SHARE: f64 = 0.02;
const MIN_NS_FOR_AN_HOUR: u64 = 60_000_000_000;
const ADVICE: &str = "find what keeps it alive: an unbounded cache, a growing list, a callback that is never removed";

#[derive(Clone, Debug, PartialEq)]
struct Growth {
    from_ns: u64,
    to_ns: u64,
    /// Bytes held at `from_ns` and `to_ns`.
    from_bytes: u64,
    to_bytes: u64,
    /// The mean rate from `from_ns` to `to_ns`, so that readers can compute it from the sentence.
    bytes_per_second: f64,
    /// The share of the variance that the best-fitting straight line explains, from 0 to 1.
    confidence: f64,
    /// The number of readings that were lower than the one before, and the sum of these differences. Falls are evidence
    /// against a leak, their absence is evidence for one.
    n_falls: u64,
    fallen_bytes: u64,
    n_readings: u64,
    /// Bytes freed between `from_ns` and `to_ns`. They are no evidence against a leak: a line that leaks may also
    /// allocate temporary memory.
    released_bytes: u64,
}

pub fn find(session: &Session, groups: &SiteGroups) -> Vec<Finding> {
    let peak_bytes = groups
        .all()
        .map(|group| group.peak.bytes)
        .fold(0, u64::saturating_add);
    let mut growing: Vec<(&SiteGroup, Growth)> = groups
        .all()
        .filter_map(|group| {
            let growth = growth(&group.curve, &group.released, groups.edges_ns(), peak_bytes)?;
            Some((group, growth))
        })
        .collect();
    growing.sort_by(|(_, one), (_, other)| other.bytes_per_second.total_cmp(&one.bytes_per_second));
    growing.truncate(MAX_PER_CHECK);
    growing
        .into_iter()
        .map(|(group, growth)| finding(session, group, &growth))
        .collect()
}

/// The rate per hour is given only if the readings cover a minute: a short program does not run for an hour.
fn rate(growth: &Growth) -> Sentence {
    let from = Bytes(growth.from_bytes);
    let to = Bytes(growth.to_bytes);
    let [from_time, to_time] = [growth.from_ns, growth.to_ns].map(Nanoseconds);
    let per_second = Bytes(growth.bytes_per_second.round() as u64);
    if growth.to_ns.saturating_sub(growth.from_ns) < MIN_NS_FOR_AN_HOUR {
        return Sentence::new(
            "from {} after {} to {} after {}: about {} per second",
            [from, from_time, to, to_time, per_second],
        );
    }
    let per_hour = Bytes((growth.bytes_per_second * 3600.0).round() as u64);
    Sentence::new(
        "from {} after {} to {} after {}: about {} per second, {} per hour",
        [from, from_time, to, to_time, per_second, per_hour],
    )
}

fn finding(session: &Session, group: &SiteGroup, growth: &Growth) -> Finding {
    let mut finding = Finding {
        name: "grows",
        evidence: vec![
            rate(growth),
            Sentence::new(
                "a straight line explains {} of the change",
                [Percent(growth.confidence, 1.0)],
            ),
            if growth.n_falls > 0 {
                Sentence::new(
                    "against a leak: {} of {} samples were lower than the one before, by {} in all",
                    [
                        Count(growth.n_falls),
                        Count(growth.n_readings),
                        Bytes(growth.fallen_bytes),
                    ],
                )
            } else {
                Sentence::new(
                    "for a leak: none of {} samples was lower than the one before",
                    [Count(growth.n_readings)],
                )
            },
        ],
        advice: match group.is_arena {
            true => "record with --objects to see which lines allocate these objects",
            false => ADVICE,
        },
        numbers: vec![
            ("from_ns", Unsigned(growth.from_ns)),
            ("to_ns", Unsigned(growth.to_ns)),
            ("from_bytes", Unsigned(growth.from_bytes)),
            ("to_bytes", Unsigned(growth.to_bytes)),
            ("bytes_per_second", Real(growth.bytes_per_second)),
            ("confidence", Real(growth.confidence)),
            ("num_falls", Unsigned(growth.n_falls)),
            ("fallen_bytes", Unsigned(growth.fallen_bytes)),
            ("num_readings", Unsigned(growth.n_readings)),
            ("released_bytes", Unsigned(growth.released_bytes)),
        ],
        measure: Some(Measure::Leaked),
        ..group.finding(
            session,
            "memory of {} grows steadily",
            "memory of {} grows steadily, allocated by {}",
        )
    };
    if group.is_arena {
        finding.headline = Sentence::new("the memory of Python objects grows steadily", []);
    }
    finding
}

/// `curve` and `released` have a value for each edge: the bytes held there, and the bytes freed since the edge before.
fn growth(curve: &[i64], released: &[i64], edges_ns: &[u64], peak_bytes: u64) -> Option<Growth> {
    let n_readings = curve.len().min(edges_ns.len()).checked_sub(1)?;
    let first = (n_readings as f64 * WARM_UP_SHARE).ceil() as usize;
    let held = curve.get(first..n_readings)?;
    let times = edges_ns.get(first..n_readings)?;
    if held.len() < MIN_READINGS {
        return None;
    }
    let growth = held[held.len() - 1] - held[0];
    if growth <= 0 || (growth as f64) < peak_bytes as f64 * MIN_PEAK_SHARE {
        return None;
    }
    let seconds = (times[times.len() - 1] - times[0]) as f64 / 1e9;
    let confidence = share_on_a_line(times, held);
    let least = growth as f64 / N_PARTS as f64 / 2.0;
    let at = |part: usize| held[(held.len() - 1) * part / N_PARTS];
    let is_rising = |part: &usize| (at(part + 1) - at(*part)) as f64 >= least;
    let n_rising = (0..N_PARTS).filter(is_rising).count();
    if confidence < MIN_CONFIDENCE || n_rising < MIN_RISING_PARTS {
        return None;
    }
    let falls = held.windows(2).filter(|pair| pair[1] < pair[0]);
    let fallen = falls.clone().map(|pair| pair[0].abs_diff(pair[1]));
    let released = released.get(first + 1..n_readings).unwrap_or_default();
    Some(Growth {
        from_ns: times[0],
        to_ns: times[times.len() - 1],
        from_bytes: held[0].max(0) as u64,
        to_bytes: held[held.len() - 1].max(0) as u64,
        bytes_per_second: growth as f64 / seconds,
        confidence,
        n_falls: falls.count() as u64,
        fallen_bytes: fallen.fold(0, u64::saturating_add),
        n_readings: held.len() as u64,
        released_bytes: released.iter().copied().fold(0, i64::saturating_add).max(0) as u64,
    })
}

/// The share of the variance that the best-fitting straight line explains.
fn share_on_a_line(times_ns: &[u64], held: &[i64]) -> f64 {
    let n = held.len() as f64;
    let seconds = |ns: u64| (ns - times_ns[0]) as f64 / 1e9;
    let mean_time = times_ns.iter().map(|&ns| seconds(ns)).sum::<f64>() / n;
    let mean_held = held.iter().map(|&bytes| bytes as f64).sum::<f64>() / n;
    let (mut across, mut of_times, mut of_held) = (0.0, 0.0, 0.0);
    for (&ns, &bytes) in times_ns.iter().zip(held) {
        let (time, held) = (seconds(ns) - mean_time, bytes as f64 - mean_held);
        across += time * held;
        of_times += time * time;
        of_held += held * held;
    }
    if of_times == 0.0 || of_held == 0.0 {
        return 0.0;
    }
    across * across / (of_times * of_held)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;

    /// 101 readings, one per second. The last one does not count.
    fn grows(held: impl Fn(i64) -> i64) -> Option<Growth> {
        let curve: Vec<i64> = (0..=100).map(held).collect();
        let edges: Vec<u64> = (0..=100).map(|n| n * 1_000_000_000).collect();
        let peak = curve.iter().copied().max().unwrap_or(0);
        growth(&curve, &[0; 101], &edges, peak as u64)
    }

    #[test]
    fn steady_growth_is_found_with_its_rate() {
        let growth = grows(|n| 10 * MIB + n * MIB).expect("growth");
        assert!((growth.bytes_per_second / MIB as f64 - 1.0).abs() < 1e-6);
        assert!(growth.confidence > 0.999);
        assert_eq!((growth.n_falls, growth.n_readings), (0, 75));
        assert_eq!(growth.from_bytes, 35 * MIB as u64);
        // Memory that is freed at the end does not hide the growth.
        assert!(grows(|n| if n == 100 { 0 } else { n * MIB }).is_some());
    }

    #[test]
    fn falls_are_counted_as_evidence_against_a_leak() {
        let growth = grows(|n| n * MIB - if n % 10 == 0 { 8 * MIB } else { 0 }).expect("growth");
        assert!(growth.n_falls >= 7, "{}", growth.n_falls);
        assert_eq!(growth.fallen_bytes, growth.n_falls * 7 * MIB as u64);
        assert!(growth.confidence < 0.999);
    }

    #[test]
    fn rate_is_the_growth_divided_by_its_time() {
        // The line that fits best is steeper than the rise from the first to the last reading.
        let growth = grows(|n| n * MIB + if n > 60 { 20 * MIB } else { 0 }).expect("growth");
        let seconds = (growth.to_ns - growth.from_ns) as f64 / 1e9;
        let risen = (growth.to_bytes - growth.from_bytes) as f64;
        assert!((growth.bytes_per_second * seconds - risen).abs() < 1.0);
    }

    #[test]
    fn steps_sawtooths_and_warm_up_are_not_growth() {
        assert_eq!(grows(|_| 100 * MIB), None);
        assert_eq!(
            grows(|n| if n < 60 { 0 } else { 100 * MIB }),
            None,
            "a step"
        );
        assert_eq!(grows(|n| n.min(10) * MIB), None, "warm-up");
        assert_eq!(grows(|n| (n % 20) * MIB), None, "a saw");
        assert_eq!(grows(|n| (100 - n) * MIB), None, "shrinking");
        assert_eq!(grows(|n| 1000 * MIB + n), None, "far too little");
    }
}
