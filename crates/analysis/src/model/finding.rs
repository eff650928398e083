//! A finding: a fact that deserves attention, its location, the evidence, and advice.
//!
//! Sentences carry their values unrounded; `report` fills them in with units, the same way in texts, pages and JSON.

use super::{Location, Measure};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finding {
    /// The name in JSON.
    pub name: &'static str,
    /// The line that allocated; `None` if the finding is about a process, or if no Python frame was on the stack.
    pub location: Option<Location>,
    /// The program's nearest line on the stack, if `location` is in the standard library.
    pub caller: Option<Location>,
    /// The nearest line of the user's own code on the stack; may be the same as `location`.
    pub user: Option<Location>,
    pub headline: Sentence,
    /// The numbers that support the finding, and those that contradict it.
    pub evidence: Vec<Sentence>,
    pub advice: &'static str,
    /// The numbers of the sentences by their JSON keys.
    pub numbers: Vec<(&'static str, Number)>,
    /// Pages link the finding to the frame that is largest by this measure; `None` if it is about a process.
    pub measure: Option<Measure>,
}

/// A text with a `{}` for each value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sentence {
    pub template: &'static str,
    pub values: Vec<SentenceValue>,
}

impl Sentence {
    pub fn new<const N: usize>(template: &'static str, values: [SentenceValue; N]) -> Sentence {
        debug_assert_eq!(template.matches("{}").count(), N, "{template}");
        Sentence {
            template,
            values: values.into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum SentenceValue {
    Bytes(u64),
    Blocks(u64),
    Count(u64),
    /// The name of a process, as in [`super::ProcessSummary::shown`].
    Process(String),
    /// A part and its whole.
    Percent(f64, f64),
    Nanoseconds(u64),
    /// `None` if no Python frame was on the stack. The file is a path below an import folder.
    Location(Option<Location>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Unsigned(u64),
    Real(f64),
    Unknown,
}

impl From<u64> for Number {
    fn from(number: u64) -> Number {
        Number::Unsigned(number)
    }
}

impl From<u32> for Number {
    fn from(number: u32) -> Number {
        Number::Unsigned(number.into())
    }
}
