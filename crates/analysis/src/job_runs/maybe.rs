//! Numbers that may be unknown, stored without additional memory.
//!
//! A report may have a hundred thousand runs of jobs, and most numbers of most runs are unknown. An `Option` would double
//! the memory of each.

/// A number type with a reserved value, which no run has, for an unknown number.
pub trait HasUnknown: Copy + PartialEq {
    const UNKNOWN: Self;
}

impl HasUnknown for u32 {
    const UNKNOWN: u32 = u32::MAX;
}

impl HasUnknown for u64 {
    const UNKNOWN: u64 = u64::MAX;
}

impl HasUnknown for i64 {
    const UNKNOWN: i64 = i64::MIN;
}

/// Durations are never negative.
impl HasUnknown for f64 {
    const UNKNOWN: f64 = -1.0;
}

/// A number that may be unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Maybe<T>(T);

impl<T: HasUnknown> Maybe<T> {
    pub fn get(self) -> Option<T> {
        (self.0 != T::UNKNOWN).then_some(self.0)
    }

    pub fn is_known(self) -> bool {
        self.get().is_some()
    }

    /// This number, or the other one if this is unknown.
    #[must_use]
    pub fn or(self, other: Maybe<T>) -> Maybe<T> {
        if self.is_known() { self } else { other }
    }
}

impl<T: HasUnknown> Default for Maybe<T> {
    fn default() -> Maybe<T> {
        Maybe(T::UNKNOWN)
    }
}

impl<T: HasUnknown> From<Option<T>> for Maybe<T> {
    fn from(number: Option<T>) -> Maybe<T> {
        number.map_or_else(Maybe::default, Maybe)
    }
}

impl<T: HasUnknown> From<T> for Maybe<T> {
    fn from(number: T) -> Maybe<T> {
        Maybe(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_numbers_are_kept_and_unknown_ones_filled_in() {
        let unknown = Maybe::<u64>::default();
        assert_eq!(unknown.get(), None);
        assert_eq!(unknown.or(0.into()).get(), Some(0));
        assert_eq!(Maybe::from(3_u64).or(4.into()).get(), Some(3));
        assert_eq!(Maybe::from(Some(-5_i64)).get(), Some(-5));
        assert_eq!(Maybe::<f64>::from(None).get(), None);
        assert_eq!(size_of::<Maybe<f64>>(), 8);
    }
}
