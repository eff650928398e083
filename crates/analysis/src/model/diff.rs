//! What changed between two recordings: the numbers of `heaptide diff`.

use super::Measure;
use super::quality::Quality;

#[derive(Clone, Debug)]
pub struct Diff {
    /// Which blocks the stacks are about.
    pub measure: Measure,
    /// Whether lines of one function are told apart.
    pub by_line: bool,
    pub before: DiffSide,
    pub after: DiffSide,
    /// The frames that occur, of both sides. Without [`Diff::by_line`] the line is 0.
    pub locations: Vec<super::Location>,
    /// What changed, the largest change first. Stacks that are the same on both sides are not here.
    pub stacks: Vec<DiffStack>,
}

/// One side: all captures that were named for it, together.
#[derive(Clone, Debug, Default)]
pub struct DiffSide {
    /// The most that was alive at one time.
    pub peak: Estimate,
    pub leaked: Estimate,
    pub total: Estimate,
    pub temporary: Estimate,
    pub duration_ns: u64,
    /// Largest resident size of a process; `None` if none was sampled.
    pub resident_peak_bytes: Option<u64>,
    pub quality: Quality,
}

/// A number, and how far it can be off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    pub bytes: u64,
    pub count: u64,
    /// Of `bytes`; 0 where every allocation was recorded.
    pub variance: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DiffStack {
    /// Numbers of locations, innermost first; empty if no Python frame was on the stack.
    pub frames: Vec<u32>,
    pub change: Change,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    pub before: Estimate,
    pub after: Estimate,
}

impl Diff {
    /// False if one of the sides does not say it.
    pub fn knows(&self, measure: Measure) -> bool {
        [&self.before, &self.after]
            .iter()
            .all(|side| side.quality.knows(measure))
    }
}

impl Change {
    /// By how many bytes it grew; negative if it shrank.
    pub fn bytes(&self) -> i64 {
        let difference = i128::from(self.after.bytes) - i128::from(self.before.bytes);
        difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    pub fn count(&self) -> i64 {
        let difference = i128::from(self.after.count) - i128::from(self.before.count);
        difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Half the width of the 95 % interval around the change. Both sides are samples of their own: squares add up.
    pub fn error_bytes(&self) -> f64 {
        1.96 * (self.before.variance + self.after.variance).sqrt()
    }

    /// Whether the change is no larger than what sampling alone makes of two equal runs.
    pub fn is_noise(&self) -> bool {
        let error = self.error_bytes();
        error > 0.0 && self.bytes().unsigned_abs() as f64 <= error
    }

    /// By how many bytes it grew at the least; 0 if it may not have grown at all.
    pub fn certain_growth(&self) -> u64 {
        let growth = self.bytes() as f64 - self.error_bytes();
        if growth > 0.0 { growth as u64 } else { 0 }
    }
}

impl DiffSide {
    pub fn of(&self, measure: Measure) -> Estimate {
        match measure {
            Measure::Peak => self.peak,
            Measure::Leaked => self.leaked,
            Measure::Total => self.total,
            Measure::Temporary => self.temporary,
        }
    }
}

impl Diff {
    /// The change of the whole, in any measure.
    pub fn whole(&self, measure: Measure) -> Change {
        Change {
            before: self.before.of(measure),
            after: self.after.of(measure),
        }
    }
}
