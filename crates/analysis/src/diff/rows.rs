//! The stacks that changed, with the bytes of each side.

use heaptide_tally::Amount;
use rustc_hash::FxHashMap;

use super::function_of;
use crate::interner::Interner;
use crate::load::Session;
use crate::model::diff::{Change, DiffFrame, DiffStack, Estimate};
use crate::model::{Measure, StackModel};
use crate::stacks;
use crate::symbols::Location;

pub(super) fn rows(
    session: &Session,
    n_before: usize,
    measure: Measure,
    by_line: bool,
) -> (Vec<Location>, Vec<DiffFrame>, Vec<DiffStack>) {
    let all = stacks(session);
    let (locations, frames, frame_of) = merge(&all, by_line);
    let mut changes: FxHashMap<Option<usize>, Change> = FxHashMap::default();
    for (number, process) in all.processes.iter().enumerate() {
        for site in &process.sites {
            let frame = site.stack.map(|stack| frame_of[stack]);
            let change = changes.entry(frame).or_default();
            let side = if number < n_before {
                &mut change.before
            } else {
                &mut change.after
            };
            add(side, site.amount(measure));
        }
    }
    let mut changed: Vec<(Option<usize>, Change)> = changes
        .into_iter()
        .filter(|(_, change)| change.bytes() != 0 || change.count() != 0)
        .collect();
    changed.sort_by_key(|&(frame, change)| {
        let size = change.bytes().unsigned_abs();
        (
            std::cmp::Reverse((size, change.count().unsigned_abs())),
            frame,
        )
    });
    let stacks = changed
        .into_iter()
        .map(|(frame, change)| DiffStack { frame, change });
    (locations, frames, stacks.collect())
}

/// Merged locations and frames, and for each stack of the model its innermost frame. Merges the lines of one function
/// unless `by_line` is set.
fn merge(all: &StackModel, by_line: bool) -> (Vec<Location>, Vec<DiffFrame>, Vec<usize>) {
    let mut locations = Interner::default();
    let location_of = all.locations.iter().map(|at| {
        let at = if by_line { at.clone() } else { function_of(at) };
        locations.number(at)
    });
    let location_of: Vec<u32> = location_of.collect();
    let mut frames = Interner::default();
    let mut frame_of: Vec<usize> = Vec::with_capacity(all.stacks.len());
    for stack in &all.stacks {
        // Callers come first.
        let frame = DiffFrame {
            location: location_of[stack.location],
            caller: stack.parent.map(|parent| frame_of[parent]),
        };
        frame_of.push(frames.number(frame) as usize);
    }
    (locations.values, frames.values, frame_of)
}

fn add(sum: &mut Estimate, amount: Amount) {
    sum.bytes = sum.bytes.saturating_add(amount.bytes);
    sum.count = sum.count.saturating_add(amount.count);
    sum.variance += amount.variance;
}
