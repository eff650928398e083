//! Groups blocks by lifetime into classes. Each class covers lifetimes twice as long as those of the class before. The
//! bins of time limit the resolution.

use crate::load::Session;
use crate::model::LifetimeClass;

/// Empty if the request did not ask for lifetimes, if nothing was allocated, or if a bounded capture lacks the times of its
/// first events.
pub fn lifetimes(session: &Session) -> Vec<LifetimeClass> {
    let processes = || session.processes.iter();
    if processes().any(|process| process.times_unknown_until().is_some()) {
        return Vec::new();
    }
    let lives = || processes().map(|process| &process.sums.lives);
    let n_bins = lives().map(|lives| lives.n_bins()).filter(|&n| n > 0);
    let Some(n_bins) = n_bins.min() else {
        return Vec::new();
    };
    let edges = session.window.coarse(n_bins);
    let bin_ns = edges.get(1).map_or(0, |second| second - edges[0]);
    let mut classes: Vec<LifetimeClass> = Vec::new();
    let mut alive = LifetimeClass::default();
    for process_lives in lives().filter(|lives| lives.n_bins() > 0) {
        // A process with more bins has narrower bins.
        let n_halvings = (process_lives.n_bins() / n_bins).max(1).ilog2();
        for life in &process_lives.entries {
            let class = if usize::from(life.death) == process_lives.n_bins() {
                &mut alive
            } else {
                let age = (life.death >> n_halvings) - (life.birth >> n_halvings);
                // Ages in bins: 0, 1, 2 to 3, 4 to 7 and so on.
                let number = u16::BITS - age.leading_zeros();
                while classes.len() <= number as usize {
                    classes.push(LifetimeClass {
                        below_ns: Some(bin_ns << classes.len()),
                        ..LifetimeClass::default()
                    });
                }
                &mut classes[number as usize]
            };
            class.bytes = class.bytes.saturating_add_signed(life.bytes);
            class.count = class.count.saturating_add_signed(life.count);
        }
    }
    if alive.count > 0 || alive.bytes > 0 {
        classes.push(alive);
    }
    classes
}
