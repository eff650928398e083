//! The lines that allocated some objects, the most bytes first.

use rustc_hash::FxHashMap;

use super::view::Heap;

/// A line that allocated objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    pub function: String,
    pub file: String,
    pub line: u32,
    pub bytes: u64,
    /// The number of its objects.
    pub count: u64,
}

/// Bytes and numbers of objects, summed by line.
pub struct Sums<'a> {
    heap: &'a Heap,
    /// Bytes and objects.
    by_line: FxHashMap<(&'a str, &'a str, u32), (u64, u64)>,
}

impl<'a> Sums<'a> {
    pub fn new(heap: &'a Heap) -> Sums<'a> {
        Sums {
            heap,
            by_line: FxHashMap::default(),
        }
    }

    pub fn add(&mut self, object: u32, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if let Some(frame) = self.heap.allocation(object).last() {
            let line = (frame.function.as_str(), frame.file.as_str(), frame.line);
            let sum = self.by_line.entry(line).or_default();
            sum.0 += bytes;
            sum.1 += 1;
        }
    }

    pub fn largest(self, n_sites: usize) -> Vec<Site> {
        let mut sums: Vec<_> = self.by_line.into_iter().collect();
        sums.sort_unstable_by_key(|&((function, file, line), (bytes, _))| {
            (std::cmp::Reverse(bytes), file, line, function)
        });
        let sites = sums.into_iter().take(n_sites);
        sites
            .map(|((function, file, line), (bytes, count))| Site {
                function: function.to_owned(),
                file: file.to_owned(),
                line,
                bytes,
                count,
            })
            .collect()
    }
}

/// For each group, the line that allocated more of its bytes than any other line. `None` if the lines of most of its objects
/// are not known: a recording without `--objects` has only the lines of objects too large for the object allocator.
pub fn of_groups(heap: &Heap, n_groups: usize, group_of: &[u32]) -> Vec<Option<Site>> {
    if heap.stacks().is_none() {
        return vec![None; n_groups];
    }
    let mut sums: Vec<(Sums, u64)> = (0..n_groups).map(|_| (Sums::new(heap), 0)).collect();
    for (object, &group) in (0..).zip(group_of) {
        if let Some((sums, n_objects)) = sums.get_mut(group as usize) {
            sums.add(object, heap.bytes(object));
            *n_objects += 1;
        }
    }
    let largest = sums.into_iter().map(|(sums, n_objects)| {
        let n_known = sums.by_line.values().map(|&(_, count)| count).sum::<u64>();
        let is_mostly_known = n_known * 2 >= n_objects;
        is_mostly_known.then(|| sums.largest(1).pop()).flatten()
    });
    largest.collect()
}
