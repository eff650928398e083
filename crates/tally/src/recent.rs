//! The last few allocations of a thread, to tell which blocks are temporary: released by the thread that allocated them
//! after at most so many other allocations of that thread.

#[derive(Default)]
pub(crate) struct Recent {
    /// A ring; 0 where a block was released already.
    addresses: Vec<u64>,
    next: usize,
}

impl Recent {
    /// An allocation; `n` of them are remembered.
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

    /// Its place, if this block is one of them. It is forgotten.
    #[inline(always)]
    pub fn take(&mut self, address: u64) -> Option<usize> {
        let place = self.addresses.iter().position(|&known| known == address)?;
        self.addresses[place] = 0;
        Some(place)
    }

    /// The release did not happen.
    pub fn put_back(&mut self, place: usize, address: u64) {
        if let Some(known) = self.addresses.get_mut(place) {
            *known = address;
        }
    }

    pub fn heap_bytes(&self) -> usize {
        self.addresses.capacity() * size_of::<u64>()
    }
}
