//! The stacks that changed, with the bytes of each side.

use heaptide_tally::Amount;
use rustc_hash::FxHashMap;

use super::function_of;
use crate::load::Session;
use crate::model::diff::{Change, DiffStack, Estimate};
use crate::model::{Measure, StackModel};
use crate::stacks;
use crate::symbols::Location;

/// A stack: its caller, and its innermost location. Lines of one function may be merged.
type Node = (Option<usize>, u32);

pub(super) fn rows(
    session: &Session,
    n_before: usize,
    measure: Measure,
    by_line: bool,
) -> (Vec<Location>, Vec<DiffStack>) {
    let all = stacks(session);
    let (locations, nodes, node_of) = merge(&all, by_line);
    let mut changes: FxHashMap<Option<usize>, Change> = FxHashMap::default();
    for (number, process) in all.processes.iter().enumerate() {
        for site in &process.sites {
            let node = site.stack.map(|stack| node_of[stack]);
            let change = changes.entry(node).or_default();
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
    changed.sort_by_key(|&(node, change)| {
        let size = change.bytes().unsigned_abs();
        (
            std::cmp::Reverse((size, change.count().unsigned_abs())),
            node,
        )
    });
    let stacks = changed.into_iter().map(|(node, change)| DiffStack {
        frames: frames(node, &nodes),
        change,
    });
    (locations, stacks.collect())
}

/// Merged locations and stacks, and for each stack of the model its merged stack.
fn merge(all: &StackModel, by_line: bool) -> (Vec<Location>, Vec<Node>, Vec<usize>) {
    let mut locations: Vec<Location> = Vec::new();
    let mut known: FxHashMap<Location, u32> = FxHashMap::default();
    let location_of: Vec<u32> = all
        .locations
        .iter()
        .map(|at| {
            let at = if by_line { at.clone() } else { function_of(at) };
            *known.entry(at.clone()).or_insert_with(|| {
                locations.push(at);
                locations.len() as u32 - 1
            })
        })
        .collect();
    let mut nodes: Vec<Node> = Vec::new();
    let mut numbers: FxHashMap<Node, usize> = FxHashMap::default();
    let mut node_of: Vec<usize> = Vec::with_capacity(all.stacks.len());
    for stack in &all.stacks {
        // Callers come first.
        let node = (
            stack.parent.map(|parent| node_of[parent]),
            location_of[stack.location],
        );
        node_of.push(*numbers.entry(node).or_insert_with(|| {
            nodes.push(node);
            nodes.len() - 1
        }));
    }
    (locations, nodes, node_of)
}

fn frames(mut at: Option<usize>, nodes: &[Node]) -> Vec<u32> {
    let mut frames = Vec::new();
    while let Some(node) = at {
        let (parent, location) = nodes[node];
        frames.push(location);
        at = parent;
    }
    frames
}

fn add(sum: &mut Estimate, amount: Amount) {
    sum.bytes = sum.bytes.saturating_add(amount.bytes);
    sum.count = sum.count.saturating_add(amount.count);
    sum.variance += amount.variance;
}
