//! The last allocations of a thread. A block is temporary if its thread frees it while it is one of these.

#[derive(Default)]
pub(crate) struct Recent {
    /// A ring; 0 for a block that is already freed.
    addresses: Vec<u64>,
    next: usize,
}

impl Recent {
    /// Adds an allocation and remembers the last `n`.
    #[inline(always)]
    pub fn push(&mut self, address: u64, n: usize) {
        if self.addresses.len() != n {
            self.addresses = vec![0; n];
            self.next = 0;
        }
        self.addresses[self.next] = address;
        self.next += 1;
        if self.next == n {
            self.next = 0;
        }
    }

    /// Removes a block; returns its position in the ring.
    #[inline(always)]
    pub fn take(&mut self, address: u64) -> Option<usize> {
        let position = self.addresses.iter().position(|&known| known == address)?;
        self.addresses[position] = 0;
        Some(position)
    }

    /// Undoes [`Recent::take`].
    pub fn put_back(&mut self, position: usize, address: u64) {
        if let Some(known) = self.addresses.get_mut(position) {
            *known = address;
        }
    }

    pub fn heap_bytes(&self) -> usize {
        self.addresses.capacity() * size_of::<u64>()
    }
}
