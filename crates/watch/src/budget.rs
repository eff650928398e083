//! Work that costs too much to be done at every tick is done when enough time has passed to pay for it.

use std::time::{Duration, Instant};

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

    /// How long it is until everything is paid for.
    pub fn owed(&self, now: Instant) -> Duration {
        self.next
            .map_or(Duration::ZERO, |next| next.saturating_duration_since(now))
    }

    /// Waits for as long as it takes to make the cost of work the share, on top of what is still owed for earlier work.
    /// What counts is processor time, not the time of the wall: on a busy machine we would otherwise look less and less.
    pub fn pay(&mut self, now: Instant, cost: Duration) {
        self.next = now.checked_add(self.owed(now) + cost.div_f64(self.share));
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
        budget.pay(now, Duration::from_millis(10));
        assert_eq!(budget.owed(now), Duration::from_secs(3));
    }
}
