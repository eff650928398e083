//! Amounts of memory: bytes, a count, and the uncertainty of the bytes in a sampled capture.
//!
//! Every sum in a tally goes up and down by the same amounts, so all amounts are whole numbers: an added
//! amount can be subtracted again without a remainder. In sampled captures, fractions are fixed-point numbers.

use std::ops::{AddAssign, SubAssign};

/// Sums as a tally keeps them. In a sampled capture `count` and `variance` are fixed-point numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raw {
    pub bytes: u64,
    pub count: u64,
    pub variance: u64,
}

impl AddAssign for Raw {
    #[inline(always)]
    fn add_assign(&mut self, other: Raw) {
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.count = self.count.wrapping_add(other.count);
        self.variance = self.variance.wrapping_add(other.variance);
    }
}

impl SubAssign for Raw {
    #[inline(always)]
    fn sub_assign(&mut self, other: Raw) {
        self.bytes = self.bytes.wrapping_sub(other.bytes);
        self.count = self.count.wrapping_sub(other.count);
        self.variance = self.variance.wrapping_sub(other.variance);
    }
}

impl Raw {
    /// Makes the count of an exact amount a fixed-point number.
    pub fn make_fixed_point(&mut self) {
        self.count <<= COUNT_SHIFT;
    }
}

/// A finished sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount {
    pub bytes: u64,
    pub count: u64,
    /// Variance of `bytes`, in square bytes; 0 if every allocation was recorded.
    pub variance: f64,
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.count = self.count.saturating_add(other.count);
        self.variance += other.variance;
    }
}

impl Amount {
    /// Returns half the width of the 95 % interval around `bytes`.
    pub fn error_bytes(&self) -> f64 {
        1.96 * self.variance.sqrt()
    }
}

const COUNT_SHIFT: u32 = 16;
const VARIANCE_SHIFT: u32 = 24;

/// The amount that one recorded block represents.
///
/// In exact mode it represents itself. Sampled every `mean` bytes, a block of `size` is recorded with probability p = 1 −
/// e^(−size/mean), so it represents 1/p blocks. The bytes it adds to an unbiased estimate have the variance size² (1 − p) /
/// p².
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weigher {
    mean: u64,
    /// Variances are stored as multiples of the square of this number. 0 if nothing is sampled; then all counts are
    /// whole numbers.
    unit: u64,
}

impl Weigher {
    pub fn new(sample_bytes: u64) -> Weigher {
        Weigher {
            mean: sample_bytes,
            unit: sample_bytes,
        }
    }

    /// Returns the weigher of another mode of the same capture. If that mode samples, a unit must be set.
    pub fn with_mean(self, mean: u64) -> Weigher {
        Weigher { mean, ..self }
    }

    pub fn in_unit(self, unit: u64) -> Weigher {
        Weigher { unit, ..self }
    }

    pub fn has_unit(&self) -> bool {
        self.unit != 0
    }

    pub fn sample_bytes(&self) -> u64 {
        self.mean
    }

    pub fn unit(&self) -> u64 {
        self.unit
    }

    #[inline(always)]
    pub fn weigh(&self, size: u64) -> Raw {
        if self.unit == 0 {
            return Raw {
                bytes: size,
                count: 1,
                variance: 0,
            };
        }
        self.weigh_sample(size)
    }

    #[cold]
    fn weigh_sample(&self, size: u64) -> Raw {
        if self.mean == 0 {
            return Raw {
                bytes: size,
                count: 1 << COUNT_SHIFT,
                variance: 0,
            };
        }
        let size = size.max(1) as f64;
        let weight = self.weight(size);
        // In units of the squared first mean, so that the result lies between 0 and 1 unless the mean has changed.
        let spread = size * weight / self.unit as f64;
        let variance = (1.0 - 1.0 / weight) * spread * spread;
        Raw {
            bytes: (size * weight).round() as u64,
            count: (weight * f64::from(1 << COUNT_SHIFT)).round() as u64,
            variance: (variance * f64::from(1 << VARIANCE_SHIFT)).round() as u64,
        }
    }

    /// Returns the number of blocks of this size that one recorded block represents.
    pub fn weight(&self, size: f64) -> f64 {
        if self.mean == 0 {
            return 1.0;
        }
        // exp_m1 keeps its precision for blocks far smaller than the mean, where 1 − exp would lose all of it.
        -1.0 / f64::exp_m1(-size.max(1.0) / self.mean as f64)
    }

    /// Returns the amount that `length` bytes of a block of `size` represent, without its count.
    pub fn weigh_part(&self, size: u64, length: u64) -> Raw {
        let whole = self.weigh(size);
        let share = |amount: u64| {
            let share = u128::from(amount) * u128::from(length) / u128::from(size.max(1));
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        Raw {
            bytes: share(whole.bytes),
            count: 0,
            variance: share(whole.variance),
        }
    }

    /// Returns the number of blocks that an amount represents.
    #[inline(always)]
    pub fn blocks(&self, raw: Raw) -> u64 {
        if self.unit == 0 {
            return raw.count;
        }
        raw.count.saturating_add(1 << (COUNT_SHIFT - 1)) >> COUNT_SHIFT
    }

    /// Does the same as [`Weigher::blocks`] for a count that may be negative.
    pub fn finish_count(&self, count: i64) -> i64 {
        let amount = Raw {
            count: count.unsigned_abs(),
            ..Raw::default()
        };
        self.blocks(amount) as i64 * count.signum()
    }

    pub fn finish(&self, raw: Raw) -> Amount {
        if self.unit == 0 {
            return Amount {
                bytes: raw.bytes,
                count: raw.count,
                variance: 0.0,
            };
        }
        let unit = (self.unit as f64) * (self.unit as f64) / f64::from(1 << VARIANCE_SHIFT);
        Amount {
            bytes: raw.bytes,
            count: self.blocks(raw),
            variance: raw.variance as f64 * unit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEAN: u64 = 512 << 10;

    #[test]
    fn exact_capture_counts_each_block_as_itself() {
        let weigher = Weigher::new(0);
        let amount = weigher.finish(weigher.weigh(600));
        assert_eq!((amount.bytes, amount.count, amount.variance), (600, 1, 0.0));
    }

    #[test]
    fn small_sampled_block_represents_the_mean_and_a_large_one_itself() {
        let weigher = Weigher::new(MEAN);
        let small = weigher.finish(weigher.weigh(64));
        assert_eq!(small.bytes, MEAN + 32);
        assert_eq!(small.count, 8193);
        let big = weigher.finish(weigher.weigh(64 * MEAN));
        assert_eq!((big.bytes, big.count), (64 * MEAN, 1));
        assert!(big.error_bytes() < 1.0);
    }

    #[test]
    fn estimate_and_error_bar_fit_a_simulated_sampling() {
        // Uses a fixed random generator: each of 200 runs samples 20 000 blocks of mixed sizes.
        let sizes: Vec<u64> = (0..20_000).map(|n| 16 + (n % 97) * 120).collect();
        let truth: u64 = sizes.iter().sum();
        let weigher = Weigher::new(MEAN / 8);
        let mut state = 1u64;
        let mut inside = 0;
        let mut sum = 0.0;
        for _ in 0..200 {
            let mut estimate = Raw::default();
            for &size in &sizes {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                let draw = (state >> 11) as f64 / (1u64 << 53) as f64;
                if draw < 1.0 / weigher.weight(size as f64) {
                    estimate += weigher.weigh(size);
                }
            }
            let estimate = weigher.finish(estimate);
            sum += estimate.bytes as f64;
            let error = (estimate.bytes as f64 - truth as f64).abs();
            inside += usize::from(error <= estimate.error_bytes());
        }
        let bias = sum / 200.0 / truth as f64 - 1.0;
        assert!(bias.abs() < 0.01, "bias {bias}");
        assert!((180..=200).contains(&inside), "{inside} of 200 inside");
    }
}
