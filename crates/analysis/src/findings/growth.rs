//! Does what a place holds grow steadily, or did it just become large?
//!
//! Programs load things when they begin and let go of them when they end, so the first quarter of the run and its last reading
//! do not count. What is left has to follow a straight line, and to rise in most parts of the time: a single step is no
//! growth, however high it is.

use crate::model::findings::Grows;

/// Of the readings, the first so many are warming up.
const WARM_UP_SHARE: f64 = 0.25;
/// Fewer say nothing.
const MIN_READINGS: usize = 16;
/// The time is divided into so many parts, and in so many of them there has to be growth.
const N_PARTS: usize = 8;
const MIN_RISING_PARTS: usize = 6;
/// Of the change, as much as the line has to explain.
const MIN_CONFIDENCE: f64 = 0.8;
/// Of the peak, as much as the growth has to be.
const MIN_PEAK_SHARE: f64 = 0.02;

/// `curve` and `released` have a value for each edge: what was held there, and what was released since the edge before.
pub fn find(curve: &[i64], released: &[i64], edges_ns: &[u64], peak_bytes: u64) -> Option<Grows> {
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
    let (bytes_per_second, confidence) = line(times, held);
    let least = growth as f64 / N_PARTS as f64 / 2.0;
    let at = |part: usize| held[(held.len() - 1) * part / N_PARTS];
    let is_rising = |part: &usize| (at(part + 1) - at(*part)) as f64 >= least;
    let n_rising = (0..N_PARTS).filter(is_rising).count();
    if confidence < MIN_CONFIDENCE || n_rising < MIN_RISING_PARTS {
        return None;
    }
    let falls = held.windows(2).filter(|pair| pair[1] < pair[0]);
    let released = released.get(first + 1..n_readings).unwrap_or_default();
    Some(Grows {
        from_ns: times[0],
        to_ns: times[times.len() - 1],
        from_bytes: held[0].max(0) as u64,
        to_bytes: held[held.len() - 1].max(0) as u64,
        bytes_per_second,
        confidence,
        n_falls: falls.count() as u64,
        n_readings: held.len() as u64,
        released_bytes: released.iter().sum::<i64>().max(0) as u64,
    })
}

/// The slope of the straight line that fits best, in bytes a second, and how much of the variance it explains.
fn line(times_ns: &[u64], held: &[i64]) -> (f64, f64) {
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
        return (0.0, 0.0);
    }
    (across / of_times, across * across / (of_times * of_held))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;

    /// 100 readings, one a second.
    fn grows(held: impl Fn(i64) -> i64) -> Option<Grows> {
        let curve: Vec<i64> = (0..=100).map(held).collect();
        let edges: Vec<u64> = (0..=100).map(|n| n * 1_000_000_000).collect();
        let peak = curve.iter().copied().max().unwrap_or(0);
        find(&curve, &[0; 101], &edges, peak as u64)
    }

    #[test]
    fn steady_growth_is_found_with_its_slope() {
        let found = grows(|n| 10 * MIB + n * MIB).expect("growth");
        assert!((found.bytes_per_second / MIB as f64 - 1.0).abs() < 1e-6);
        assert!(found.confidence > 0.999);
        assert_eq!((found.n_falls, found.n_readings), (0, 75));
        assert_eq!(found.from_bytes, 35 * MIB as u64);
        // What is let go at the end does not hide it.
        assert!(grows(|n| if n == 100 { 0 } else { n * MIB }).is_some());
    }

    #[test]
    fn growth_with_falls_says_so() {
        let found = grows(|n| n * MIB - if n % 10 == 0 { 8 * MIB } else { 0 }).expect("growth");
        assert!(found.n_falls >= 7, "{}", found.n_falls);
        assert!(found.confidence < 0.999);
    }

    #[test]
    fn what_only_became_large_does_not_grow() {
        assert_eq!(grows(|_| 100 * MIB), None);
        assert_eq!(
            grows(|n| if n < 60 { 0 } else { 100 * MIB }),
            None,
            "a step"
        );
        assert_eq!(grows(|n| n.min(10) * MIB), None, "warming up");
        assert_eq!(grows(|n| (n % 20) * MIB), None, "a saw");
        assert_eq!(grows(|n| (100 - n) * MIB), None, "shrinking");
        assert_eq!(grows(|n| 1000 * MIB + n), None, "far too little");
    }
}
