//! The number of allocations of each size.
//!
//! Small sizes have a counter each in an array. Larger sizes are in a hash table until it is full; further
//! sizes are counted in bins of about 1 % width.

use crate::encoding::{Decoder, Encoder};
use crate::index::{Index, hash};

const N_DIRECT: usize = 4096;
const MAX_DISTINCT: usize = 1 << 20;
const BINS_PER_OCTAVE: u32 = 64;
const N_BINS: usize = 64 * BINS_PER_OCTAVE as usize;

pub(crate) struct SizeCounts {
    direct: Box<[u64]>,
    large: Vec<(u64, u64)>,
    index: Index,
    /// Empty until needed.
    bins: Vec<u64>,
}

impl SizeCounts {
    pub fn new() -> SizeCounts {
        SizeCounts {
            direct: vec![0; N_DIRECT].into_boxed_slice(),
            large: Vec::new(),
            index: Index::default(),
            bins: Vec::new(),
        }
    }

    #[inline(always)]
    pub fn count(&mut self, size: u64) {
        match self.direct.get_mut(size as usize) {
            Some(count) if size < N_DIRECT as u64 => *count += 1,
            _ => self.count_large(size),
        }
    }

    fn count_large(&mut self, size: u64) {
        let large = &mut self.large;
        if let Some(at) = self
            .index
            .find(hash(size), |at| large[at as usize].0 == size)
        {
            large[at as usize].1 += 1;
        } else if large.len() < MAX_DISTINCT {
            self.add_large(size, 1);
        } else {
            if self.bins.is_empty() {
                self.bins = vec![0; N_BINS];
            }
            self.bins[bin_of(size)] += 1;
        }
    }

    fn add_large(&mut self, size: u64, n: u64) {
        let large = &mut self.large;
        let at = large.len() as u32;
        large.push((size, n));
        self.index
            .insert(hash(size), at, |at| hash(large[at as usize].0));
    }

    pub fn write(&self, out: &mut Encoder) {
        let direct = self.direct.iter().zip(0u64..);
        let mut counts: Vec<(u64, u64)> = direct.map(|(&n, size)| (size, n)).collect();
        counts.retain(|&(_, n)| n > 0);
        let mut large = self.large.clone();
        large.sort_unstable();
        counts.append(&mut large);
        write_counts(&counts, out);
        let bins = self.bins.iter().zip(0u64..);
        let mut counts: Vec<(u64, u64)> = bins.map(|(&n, bin)| (bin, n)).collect();
        counts.retain(|&(_, n)| n > 0);
        write_counts(&counts, out);
    }

    pub fn read(input: &mut Decoder) -> Option<SizeCounts> {
        let mut sizes = SizeCounts::new();
        read_counts(input, |size, n| {
            if size < N_DIRECT as u64 {
                sizes.direct[size as usize] = n;
            } else if sizes.large.len() < MAX_DISTINCT {
                sizes.add_large(size, n);
            } else {
                return None;
            }
            Some(())
        })?;
        read_counts(input, |bin, n| {
            if sizes.bins.is_empty() {
                sizes.bins = vec![0; N_BINS];
            }
            *sizes.bins.get_mut(usize::try_from(bin).ok()?)? = n;
            Some(())
        })?;
        Some(sizes)
    }

    /// Returns each size and its number of recorded allocations, smallest first.
    pub fn finish(self) -> Vec<(u64, u64)> {
        let direct = self.direct.iter().zip(0u64..);
        let mut counts: Vec<(u64, u64)> = direct.map(|(&n, size)| (size, n)).collect();
        counts.extend(self.large);
        let bins = self.bins.iter().enumerate();
        counts.extend(bins.map(|(bin, &n)| (middle_of(bin), n)));
        counts.retain(|&(_, n)| n > 0);
        counts.sort_unstable();
        counts
    }

    pub fn heap_bytes(&self) -> usize {
        self.large.capacity() * 16
            + self.index.heap_bytes()
            + (self.bins.capacity() + N_DIRECT) * size_of::<u64>()
    }
}

/// Writes ascending keys and their counts.
fn write_counts(counts: &[(u64, u64)], out: &mut Encoder) {
    out.number(counts.len() as u64);
    let mut previous = 0;
    for &(key, n) in counts {
        out.number(key - previous);
        out.number(n);
        previous = key;
    }
}

fn read_counts(input: &mut Decoder, mut each: impl FnMut(u64, u64) -> Option<()>) -> Option<()> {
    let mut key = 0u64;
    for position in 0..input.length(2)? {
        let step = input.number()?;
        if position > 0 && step == 0 {
            return None;
        }
        key = key.checked_add(step)?;
        each(key, input.count()?)?;
    }
    Some(())
}

/// Returns the bin: the octave and the six bits after the leading one. `size` is at least [`N_DIRECT`].
fn bin_of(size: u64) -> usize {
    let octave = size.ilog2();
    let within = (size >> (octave - BINS_PER_OCTAVE.ilog2())) as u32 % BINS_PER_OCTAVE;
    (octave * BINS_PER_OCTAVE + within) as usize
}

fn middle_of(bin: usize) -> u64 {
    let octave = bin as u32 / BINS_PER_OCTAVE;
    let within = bin as u64 % u64::from(BINS_PER_OCTAVE);
    if octave < BINS_PER_OCTAVE.ilog2() {
        return 0;
    }
    let width = 1u64 << (octave - BINS_PER_OCTAVE.ilog2());
    (u64::from(BINS_PER_OCTAVE) + within) * width + width / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_counted_one_by_one() {
        let mut sizes = SizeCounts::new();
        for size in [0, 64, 64, 4095, 4096, 1 << 40, 1 << 40, u64::MAX] {
            sizes.count(size);
        }
        let expected = [
            (0, 1),
            (64, 2),
            (4095, 1),
            (4096, 1),
            (1 << 40, 2),
            (u64::MAX, 1),
        ];
        assert_eq!(sizes.finish(), expected);
    }

    #[test]
    fn sizes_beyond_the_table_are_counted_with_an_error_below_two_percent() {
        let mut sizes = SizeCounts::new();
        let n_more = 1_000;
        for n in 0..(MAX_DISTINCT as u64 + n_more) {
            sizes.count(10_000 + n);
        }
        let counts = sizes.finish();
        assert_eq!(
            counts.iter().map(|&(_, n)| n).sum::<u64>(),
            MAX_DISTINCT as u64 + n_more
        );
        let binned: Vec<_> = counts.iter().filter(|&&(_, n)| n > 1).collect();
        assert!(!binned.is_empty());
        let last = 10_000 + MAX_DISTINCT as u64 + n_more;
        assert!(
            binned
                .iter()
                .all(|&&(size, _)| size.abs_diff(last) < last / 50)
        );
    }
}
