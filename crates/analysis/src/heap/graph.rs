//! The reference graph as two flat columns, and its reverse.

/// References between numbered objects: object `i` refers to `targets[starts[i]..starts[i + 1]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    starts: Vec<u32>,
    targets: Vec<u32>,
}

impl Graph {
    /// A graph of `n_objects` objects. `references_of` returns the objects that an object refers to.
    pub fn build<I>(n_objects: usize, references_of: impl Fn(u32) -> I) -> Graph
    where
        I: Iterator<Item = u32>,
    {
        let mut starts = Vec::with_capacity(n_objects + 1);
        let mut targets = Vec::new();
        starts.push(0);
        for object in 0..n_objects as u32 {
            let known = references_of(object).filter(|&target| (target as usize) < n_objects);
            targets.extend(known);
            starts.push(targets.len() as u32);
        }
        Graph { starts, targets }
    }

    /// A graph of pairs, in any order.
    pub fn from_pairs(n_objects: usize, pairs: &[(u32, u32)]) -> Graph {
        let mut sorted = pairs.to_vec();
        sorted.sort_by_key(|&(from, _)| from);
        Graph::build(n_objects, |object| {
            let first = sorted.partition_point(|&(from, _)| from < object);
            let own = sorted[first..]
                .iter()
                .take_while(move |&&(from, _)| from == object);
            own.map(|&(_, to)| to)
        })
    }

    pub fn n_objects(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    pub fn n_references(&self) -> usize {
        self.targets.len()
    }

    /// The targets of an object, one for each reference.
    pub fn of(&self, object: u32) -> &[u32] {
        let object = object as usize;
        &self.targets[self.starts[object] as usize..self.starts[object + 1] as usize]
    }

    /// The reversed graph; the referrers of an object are in ascending order.
    pub fn reversed(&self) -> Graph {
        let mut starts = vec![0u32; self.starts.len()];
        for &target in &self.targets {
            starts[target as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut targets = vec![0u32; self.targets.len()];
        for object in 0..self.n_objects() as u32 {
            for &target in self.of(object) {
                let next_free = &mut next[target as usize];
                targets[*next_free as usize] = object;
                *next_free += 1;
            }
        }
        Graph { starts, targets }
    }

    /// The objects that `from` reaches on paths without objects for which `avoid` is true.
    pub fn reach(&self, from: impl IntoIterator<Item = u32>, avoid: impl Fn(u32) -> bool) -> Bits {
        let mut reached = Bits::new(self.n_objects());
        let mut waiting: Vec<u32> = Vec::new();
        for object in from {
            if !avoid(object) && reached.insert(object) {
                waiting.push(object);
            }
        }
        while let Some(object) = waiting.pop() {
            for &target in self.of(object) {
                if !reached.contains(target) && !avoid(target) {
                    reached.insert(target);
                    waiting.push(target);
                }
            }
        }
        reached
    }
}

/// One bit for each object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
}

impl Bits {
    pub fn new(n_objects: usize) -> Bits {
        Bits {
            words: vec![0; n_objects.div_ceil(64)],
        }
    }

    pub fn of(n_objects: usize, objects: impl IntoIterator<Item = u32>) -> Bits {
        let mut bits = Bits::new(n_objects);
        for object in objects {
            bits.insert(object);
        }
        bits
    }

    pub fn contains(&self, object: u32) -> bool {
        let word = self.words.get(object as usize / 64).copied().unwrap_or(0);
        word >> (object % 64) & 1 != 0
    }

    /// Returns whether the object is new to the set. Objects outside the graph are ignored.
    pub fn insert(&mut self, object: u32) -> bool {
        let Some(word) = self.words.get_mut(object as usize / 64) else {
            return false;
        };
        let bit = 1 << (object % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Returns the objects in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros();
                rest &= rest.wrapping_sub(1);
                (bit < 64).then_some(at as u32 * 64 + bit)
            })
        })
    }
}
