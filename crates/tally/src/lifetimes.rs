//! The times at which the blocks of each site were allocated and freed, in bins.
//!
//! One list answers every question about an interval whose ends are edges of bins. An entry holds the bytes and blocks that
//! a site allocated in bin `birth` and that were freed in bin `death`. For edges `a < b`, these sums are exact:
//!
//! ```text
//! allocated from a to b                      entries with a <= birth < b
//! allocated from a to b and live at b        entries with a <= birth < b <= death
//! ```
//!
//! The list is bounded: when it grows too long, neighbouring bins are merged in pairs, and the list stays exact
//! at the remaining edges.

/// Longer lists are made shorter by halving the number of bins.
const MAX_ENTRIES: usize = 300_000;
const MIN_BINS: usize = 2;

/// The bytes and blocks that were allocated in one bin and freed in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Index of the site.
    pub site: u32,
    pub birth: u16,
    /// Equals the number of bins if the blocks were live at the end.
    pub death: u16,
    /// Negative if a free was undone in a later bin, because its call failed (`realloc`, `munmap`).
    pub bytes: i64,
    pub count: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifetimes {
    /// Clock units, ascending. Bin `n` reaches from edge `n` to edge `n + 1`.
    pub edges: Vec<u64>,
    /// After [`Lifetimes::merge`]: by site, birth and death, ascending, without duplicates.
    pub entries: Vec<Lifetime>,
}

impl Lifetimes {
    pub fn n_bins(&self) -> usize {
        self.edges.len().saturating_sub(1)
    }

    pub fn add(&mut self, life: Lifetime) {
        if life.bytes != 0 || life.count != 0 {
            self.entries.push(life);
        }
    }

    pub(crate) fn is_too_long(&self) -> bool {
        self.entries.len() > MAX_ENTRIES && self.n_bins() > MIN_BINS
    }

    /// Merges bins in pairs. If their number is odd, the last one stays as it is.
    pub fn halve(&mut self) {
        let n_before = self.n_bins() as u16;
        self.edges = halved(&self.edges);
        let n_bins = self.n_bins() as u16;
        for life in &mut self.entries {
            life.birth /= 2;
            life.death = if life.death == n_before {
                n_bins
            } else {
                life.death / 2
            };
        }
        self.merge();
    }

    /// Sorts the entries and merges those with the same site, birth and death.
    pub fn merge(&mut self) {
        // Site, birth and death in one number, to compare them at once.
        let key = |life: &Lifetime| {
            let bins = u32::from(life.birth) << 16 | u32::from(life.death);
            u64::from(life.site) << 32 | u64::from(bins)
        };
        self.entries.sort_unstable_by_key(key);
        self.entries.dedup_by(|next, life| {
            let is_same = key(next) == key(life);
            if is_same {
                life.bytes = life.bytes.wrapping_add(next.bytes);
                life.count = life.count.wrapping_add(next.count);
            }
            is_same
        });
        self.entries
            .retain(|life| life.bytes != 0 || life.count != 0);
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Lifetime>() + self.edges.capacity() * size_of::<u64>()
    }
}

/// Returns every second edge, and the last.
pub fn halved(edges: &[u64]) -> Vec<u64> {
    let mut left: Vec<u64> = edges.iter().copied().step_by(2).collect();
    if edges.len() % 2 == 0 {
        left.extend(edges.last());
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(birth: u16, death: u16, bytes: i64) -> Lifetime {
        Lifetime {
            site: 7,
            birth,
            death,
            bytes,
            count: 1,
        }
    }

    /// Returns the bytes allocated between two edges, and those of them that were live at the second.
    fn between(lives: &Lifetimes, from: u16, to: u16) -> (i64, i64) {
        let born = lives.entries.iter();
        let born = born.filter(|life| from <= life.birth && life.birth < to);
        let alive = born.clone().filter(|life| life.death >= to);
        (
            born.map(|life| life.bytes).sum(),
            alive.map(|life| life.bytes).sum(),
        )
    }

    #[test]
    fn halving_keeps_the_sums_at_the_remaining_edges() {
        for n_bins in [4u16, 5] {
            let mut lives = Lifetimes {
                edges: (0..=u64::from(n_bins)).map(|n| n * 10).collect(),
                entries: Vec::new(),
            };
            for birth in 0..n_bins {
                for death in birth..=n_bins {
                    lives.add(life(birth, death, 1 << (birth * 6 + death)));
                }
            }
            let before = lives.clone();
            lives.halve();
            assert_eq!(lives.n_bins(), usize::from(n_bins.div_ceil(2)));
            for from in 0..lives.edges.len() as u16 {
                for to in from..lives.edges.len() as u16 {
                    let old = |edge: u16| (edge * 2).min(n_bins);
                    assert_eq!(
                        between(&lives, from, to),
                        between(&before, old(from), old(to))
                    );
                }
            }
        }
    }

    #[test]
    fn undone_free_leaves_no_entry() {
        let mut lives = Lifetimes::default();
        lives.add(life(0, 1, 50));
        lives.add(Lifetime {
            count: -1,
            ..life(0, 1, -50)
        });
        lives.merge();
        assert_eq!(lives.entries, []);
    }
}
