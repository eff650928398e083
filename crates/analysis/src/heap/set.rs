//! Sets of objects as ascending lists of numbers: small sets need little memory, and combining two merges the lists.

use std::cmp::Ordering;

/// Objects of one snapshot, without duplicates, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectSet {
    numbers: Vec<u32>,
}

impl FromIterator<u32> for ObjectSet {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> ObjectSet {
        let mut numbers: Vec<u32> = numbers.into_iter().collect();
        // Numbers from a scan over columns are already sorted.
        if !numbers.is_sorted_by(|a, b| a < b) {
            numbers.sort_unstable();
            numbers.dedup();
        }
        ObjectSet { numbers }
    }
}

impl ObjectSet {
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    pub fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.numbers.iter().copied()
    }

    pub fn contains(&self, object: u32) -> bool {
        self.numbers.binary_search(&object).is_ok()
    }

    pub fn union(&self, other: &ObjectSet) -> ObjectSet {
        self.merge(other, |_| true)
    }

    pub fn intersection(&self, other: &ObjectSet) -> ObjectSet {
        self.merge(other, |side| side == Ordering::Equal)
    }

    /// Objects of this set that are not in the other.
    pub fn difference(&self, other: &ObjectSet) -> ObjectSet {
        self.merge(other, |side| side == Ordering::Less)
    }

    pub fn symmetric_difference(&self, other: &ObjectSet) -> ObjectSet {
        self.merge(other, |side| side != Ordering::Equal)
    }

    /// Merges both sets; `keep` gets `Less` for objects only in this set, `Greater` for objects only in the other.
    fn merge(&self, other: &ObjectSet, keep: impl Fn(Ordering) -> bool) -> ObjectSet {
        let (mut left, mut right) = (&self.numbers[..], &other.numbers[..]);
        let mut numbers = Vec::new();
        loop {
            let side = match (left.first(), right.first()) {
                (Some(a), Some(b)) => a.cmp(b),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return ObjectSet { numbers },
            };
            let from = if side == Ordering::Greater {
                right
            } else {
                left
            };
            if keep(side) {
                numbers.push(from[0]);
            }
            if side != Ordering::Greater {
                left = &left[1..];
            }
            if side != Ordering::Less {
                right = &right[1..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(numbers: &[u32]) -> ObjectSet {
        numbers.iter().copied().collect()
    }

    #[test]
    fn operations_are_those_of_sets() {
        let (a, b) = (set(&[5, 1, 3, 3]), set(&[3, 4]));
        assert_eq!(a.numbers(), [1, 3, 5]);
        assert_eq!(a.union(&b).numbers(), [1, 3, 4, 5]);
        assert_eq!(a.intersection(&b).numbers(), [3]);
        assert_eq!(a.difference(&b).numbers(), [1, 5]);
        assert_eq!(b.difference(&a).numbers(), [4]);
        assert_eq!(a.symmetric_difference(&b).numbers(), [1, 4, 5]);
        assert!(a.contains(5) && !a.contains(4));
    }
}
