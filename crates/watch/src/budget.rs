//! Work that costs too much to be done at every tick is done when enough time has passed to pay for it.

use std::time::{Duration, Instant};

use crate::sys;

/// A share of one core.
pub struct Budget {
    share: f64,
    next: Option<Instant>,
}

impl Budget {
    pub fn new(share: f64) -> Budget {
        Budget { share, next: None }
    }

    pub fn allows(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// Does the work and waits for as long as it takes to make its cost the share. What counts is processor time, not the
    /// time of the wall: on a busy machine we would otherwise look less and less.
    pub fn spend<T>(&mut self, now: Instant, work: impl FnOnce() -> T) -> T {
        let before = sys::cpu_time();
        let result = work();
        self.pay(now, sys::cpu_time().saturating_sub(before));
        result
    }

    /// The same for work that was done already.
    pub fn pay(&mut self, now: Instant, cost: Duration) {
        self.next = now.checked_add(cost.div_f64(self.share));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dear_work_waits_until_it_is_one_percent() {
        let (mut budget, now) = (Budget::new(0.01), Instant::now());
        assert!(budget.allows(now));
        budget.pay(now, Duration::from_millis(20));
        assert!(!budget.allows(now + Duration::from_millis(1_999)));
        assert!(budget.allows(now + Duration::from_millis(2_001)));
    }
}
