//! The sums of a capture while its program writes it.
//!
//! A block that cannot be read may be half written. The follower then restarts at the first event, and reports damage only
//! if the block stays unreadable.

use std::ops::ControlFlow;
use std::path::Path;

use heaptide_capture::{Capture, Damage, GrowingCapture, OpenError};

use crate::order::replay_numbers;
use crate::tally::Tally;

/// After this many attempts, a block that cannot be read is reported as damage.
const MAX_ATTEMPTS: u32 = 8;

/// A capture that grows, and its sums.
pub struct Follower {
    growing: GrowingCapture,
    tally: Tally,
    n_failed: u32,
    damage: Vec<Damage>,
    is_complete: bool,
}

impl Follower {
    pub fn open(path: &Path) -> Result<Follower, OpenError> {
        Ok(Follower::new(Capture::open(path)?))
    }

    /// Follows a capture that was just opened, from its beginning.
    pub fn new(capture: Capture) -> Follower {
        let mut follower = Follower {
            tally: empty_for(&capture),
            growing: GrowingCapture::new(capture),
            n_failed: 0,
            damage: Vec::new(),
            is_complete: false,
        };
        // The first refresh only finds the largest segment number. The second one adds the events up to it.
        follower.refresh(false);
        follower.refresh(false);
        follower
    }

    /// Returns the capture as far as it is known: header and registry.
    pub fn capture(&self) -> &Capture {
        self.growing.capture()
    }

    /// Returns the sums so far.
    pub fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// Returns sums and capture, for callers that need both at once.
    pub fn parts(&self) -> (&Tally, &Capture) {
        (&self.tally, self.growing.capture())
    }

    /// Returns the damage found so far.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Returns whether the recording ended normally and all events are in the sums.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Adds new events. `is_over` means that the program has exited and writes nothing more.
    pub fn refresh(&mut self, is_over: bool) {
        let tally = &mut self.tally;
        let wanted = self.growing.refresh(is_over, |capture| {
            Tally::for_capture(capture).is_ok_and(|first| {
                *tally = first;
                tally.distinguish_job_names();
                true
            })
        });
        let (capture, mut cursors) = self.growing.replay_parts();
        tally.take_modes_of(capture);
        let damage = replay_numbers(capture, wanted, &mut |_| {}, &mut |chunk, ops| {
            let new = cursors.advance(chunk, ops);
            if !new.is_empty() {
                tally.apply(chunk, new);
            }
            ControlFlow::Continue(())
        });
        // The last block of a thread stays pending while it cannot be read, so every refresh finds its damage again.
        let is_new = |found: &Damage| !self.damage.contains(found);
        let new_damage: Vec<Damage> = damage.into_iter().filter(is_new).collect();
        let mut is_read = true;
        if new_damage.is_empty() {
            self.n_failed = 0;
        } else if is_over || self.n_failed >= MAX_ATTEMPTS {
            self.damage.extend(new_damage);
            self.n_failed = 0;
        } else {
            self.n_failed += 1;
            is_read = false;
            self.growing.restart();
            self.tally = empty_for(self.capture());
        }
        self.is_complete = is_read && self.growing.is_whole();
        self.growing.forget_taken();
    }
}

/// Returns an empty tally that sums by job name, because live views show memory by job name.
fn empty_for(capture: &Capture) -> Tally {
    let mut tally = Tally::empty_for(capture);
    tally.distinguish_job_names();
    tally
}
