//! The numbers of `heaptide diff`: the changes between two recordings.

use heaptide_capture::Mode;

use super::Measure;
use super::quality::Quality;

#[derive(Clone, Debug)]
pub struct Diff {
    /// The measure of the stacks.
    pub measure: Measure,
    /// Whether the lines of a function are distinguished.
    pub by_line: bool,
    pub before: DiffSide,
    pub after: DiffSide,
    /// The locations of both sides. Without [`Diff::by_line`] the line is 0.
    pub locations: Vec<super::Location>,
    /// The frames of all stacks; callers come first. Stacks share the frames of their callers, so that the size of a
    /// comparison does not grow with the depth of its stacks.
    pub frames: Vec<DiffFrame>,
    /// The stacks that changed, the largest change first.
    pub stacks: Vec<DiffStack>,
}

/// One side: the sums of all its captures.
#[derive(Clone, Debug, Default)]
pub struct DiffSide {
    /// At the moment of [`Quality::peak_moment`].
    pub peak: Estimate,
    pub leaked: Estimate,
    pub total: Estimate,
    pub temporary: Estimate,
    pub duration_ns: u64,
    /// The largest resident size of a process; `None` if none was sampled.
    pub resident_peak_bytes: Option<u64>,
    /// The different recording modes of its captures, without the options that do not change a size: native frames,
    /// bounded files, forked children.
    pub modes: Vec<Mode>,
    pub quality: Quality,
}

/// A number with its sampling error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    pub bytes: u64,
    pub count: u64,
    /// The variance of `bytes`; 0 if every allocation was recorded.
    pub variance: f64,
}

/// A location, and its caller as the number of another frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DiffFrame {
    pub location: u32,
    pub caller: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiffStack {
    /// The number of the innermost frame; `None` if no Python frame was on the stack.
    pub frame: Option<usize>,
    pub change: Change,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    pub before: Estimate,
    pub after: Estimate,
}

impl Diff {
    /// Returns the locations of a stack, innermost first.
    pub fn locations_of(&self, stack: &DiffStack) -> impl Iterator<Item = &super::Location> {
        std::iter::successors(stack.frame, |&frame| self.frames[frame].caller)
            .map(|frame| &self.locations[self.frames[frame].location as usize])
    }

    /// Whether both sides have this measure.
    pub fn knows(&self, measure: Measure) -> bool {
        [&self.before, &self.after]
            .iter()
            .all(|side| side.quality.knows(measure))
    }

    /// Whether both sides were recorded in the same modes. They differ if only one side records Python's own allocators, or
    /// if the sampling rates differ.
    pub fn has_equal_modes(&self) -> bool {
        self.before.modes == self.after.modes
    }

    /// The change of the total in a measure.
    pub fn whole(&self, measure: Measure) -> Change {
        Change {
            before: self.before.of(measure),
            after: self.after.of(measure),
        }
    }
}

impl Change {
    /// The growth in bytes; negative if it shrank.
    pub fn bytes(&self) -> i64 {
        let difference = i128::from(self.after.bytes) - i128::from(self.before.bytes);
        difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    pub fn count(&self) -> i64 {
        let difference = i128::from(self.after.count) - i128::from(self.before.count);
        difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Half the width of the 95% interval around the change. The sides are independent samples, so variances add up.
    pub fn error_bytes(&self) -> f64 {
        1.96 * (self.before.variance + self.after.variance).sqrt()
    }

    /// Whether sampling alone can cause a change of this size between two equal runs.
    pub fn is_noise(&self) -> bool {
        let error = self.error_bytes();
        error > 0.0 && self.bytes().unsigned_abs() as f64 <= error
    }

    /// The smallest growth in bytes within the error; 0 if it may not have grown.
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
