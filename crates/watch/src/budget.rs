//! Limits expensive work to a share of one core: it is repeated only after enough time has passed.

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

    /// Returns the time until the cost of all earlier work is covered.
    pub fn owed(&self, now: Instant) -> Duration {
        self.next
            .map_or(Duration::ZERO, |next| next.saturating_duration_since(now))
    }

    /// Delays the next work until the cost of this and earlier work is within the share. `cost` is processor time: with
    /// wall-clock time, a busy machine would be sampled less and less often.
    pub fn pay(&mut self, now: Instant, cost: Duration) {
        self.next = now.checked_add(self.owed(now) + cost.div_f64(self.share));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_waits_until_its_cost_is_within_the_share() {
        let (mut budget, now) = (Budget::new(0.01), Instant::now());
        assert!(budget.allows(now));
        budget.pay(now, Duration::from_millis(20));
        assert!(!budget.allows(now + Duration::from_millis(1_999)));
        assert!(budget.allows(now + Duration::from_millis(2_001)));
        budget.pay(now, Duration::from_millis(10));
        assert_eq!(budget.owed(now), Duration::from_secs(3));
    }
}
