//! A segment of the table of live blocks: buckets of one cache line each.

pub(super) const N_BUCKETS: usize = 1024;
pub(super) const MASK: usize = N_BUCKETS - 1;
/// Blocks in a bucket; a *way* is the position of one of them.
pub(super) const WAYS: usize = 4;
/// Addresses with more bits are impossible.
pub(super) const ADDRESS_BITS: u32 = 56;
pub(super) const ONE_PAST: u64 = 1 << ADDRESS_BITS;
pub(super) const MAX_USED: u32 = (N_BUCKETS * WAYS) as u32 * 4 / 5;

/// Four blocks in one cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(super) struct Bucket {
    /// 0: empty. The top byte of the first is not part of an address: it is `n_past`.
    pub addresses: [u64; WAYS],
    pub blocks: [Packed; WAYS],
}

#[derive(Clone, Copy, Default)]
pub(super) struct Packed {
    pub size: u32,
    pub site: u32,
}

impl From<Packed> for super::Block {
    #[inline(always)]
    fn from(packed: Packed) -> super::Block {
        super::Block {
            size: packed.size.into(),
            site: packed.site,
        }
    }
}

impl Bucket {
    /// Returns the way that holds an address. Without branches, because no processor could predict them.
    #[inline(always)]
    fn way_of(&self, address: u64) -> Option<usize> {
        let mut matches = 0u32;
        for (way, &here) in self.addresses.iter().enumerate() {
            matches |= u32::from((here ^ address) << 8 == 0) << way;
        }
        (matches != 0).then(|| matches.trailing_zeros() as usize % WAYS)
    }

    /// Returns the number of blocks that passed this bucket because it was full, and lie in a later one.
    #[inline(always)]
    fn n_past(&self) -> u64 {
        self.addresses[0] >> ADDRESS_BITS
    }

    #[inline(always)]
    fn set_address(&mut self, way: usize, address: u64) {
        let here = &mut self.addresses[way];
        *here = *here & !(ONE_PAST - 1) | address;
    }
}

pub(super) struct Segment {
    pub buckets: Box<[Bucket; N_BUCKETS]>,
    pub n_used: u32,
    /// Number of top bits of the hash that all its addresses share.
    pub depth: u32,
}

impl Segment {
    pub fn new(depth: u32) -> Segment {
        let buckets = vec![Bucket::default(); N_BUCKETS].into_boxed_slice();
        Segment {
            buckets: buckets.try_into().unwrap_or_else(|_| unreachable!()),
            n_used: 0,
            depth,
        }
    }

    /// Returns bucket and way of a block.
    #[inline(always)]
    pub fn find(&self, hash: u64, address: u64) -> Option<(usize, usize)> {
        let mut at = hash as usize & MASK;
        loop {
            let bucket = &self.buckets[at];
            if let Some(way) = bucket.way_of(address) {
                return Some((at, way));
            }
            if bucket.n_past() == 0 {
                return None;
            }
            at = (at + 1) & MASK;
        }
    }

    /// Stores a new block. Returns false if it would have to pass a bucket whose count is at its maximum.
    #[inline(always)]
    pub fn put(&mut self, hash: u64, address: u64, block: Packed) -> bool {
        let home = hash as usize & MASK;
        let mut at = home;
        let way = loop {
            let bucket = &self.buckets[at];
            if let Some(way) = bucket.way_of(0) {
                break way;
            }
            if bucket.n_past() == u64::from(u8::MAX) {
                return false;
            }
            at = (at + 1) & MASK;
        };
        self.buckets[at].set_address(way, address);
        self.buckets[at].blocks[way] = block;
        self.n_used += 1;
        for passed in between(home, at) {
            self.buckets[passed].addresses[0] += ONE_PAST;
        }
        true
    }

    #[inline(always)]
    pub fn take(&mut self, hash: u64, address: u64) -> Option<Packed> {
        let (at, way) = self.find(hash, address)?;
        self.buckets[at].set_address(way, 0);
        self.n_used -= 1;
        for passed in between(hash as usize & MASK, at) {
            self.buckets[passed].addresses[0] -= ONE_PAST;
        }
        Some(self.buckets[at].blocks[way])
    }
}

/// Returns the buckets from `home` to the one before `at`.
#[inline(always)]
fn between(home: usize, at: usize) -> impl Iterator<Item = usize> {
    (home..home + (at.wrapping_sub(home) & MASK)).map(|passed| passed & MASK)
}
