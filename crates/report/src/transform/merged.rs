//! Stacks with their sums over threads, allocators and processes.

use heaptide_analysis::Measure;
use heaptide_analysis::model::StackModel;
use heaptide_tally::Amount;

/// The stacks that hold memory, with their amounts, in depth-first order, so that neighbours share as many frames as
/// possible. The empty stack, `None`, comes first.
pub fn stacks(model: &StackModel, measure: Measure) -> Vec<(Option<usize>, Amount)> {
    let mut empty = Amount::default();
    let mut sums = vec![Amount::default(); model.stacks.len()];
    for site in model.processes.iter().flat_map(|process| &process.sites) {
        match site.stack {
            Some(stack) => sums[stack] += site.amount(measure),
            None => empty += site.amount(measure),
        }
    }
    let ordered = depth_first(model).into_iter();
    let ordered = ordered.map(|stack| (Some(stack), sums[stack]));
    let held = |&(_, amount): &(_, Amount)| amount.count > 0 || amount.bytes > 0;
    [(None, empty)]
        .into_iter()
        .chain(ordered)
        .filter(held)
        .collect()
}

/// The frames of a stack as indices of locations, innermost first.
pub fn frames(model: &StackModel, stack: Option<usize>) -> impl Iterator<Item = usize> + '_ {
    let mut next = stack;
    std::iter::from_fn(move || {
        let node = model.stacks[next?];
        next = node.parent;
        Some(node.location)
    })
}

/// All stacks in depth-first order, callers before callees. Without recursion, because stacks can be deep.
fn depth_first(model: &StackModel) -> Vec<usize> {
    let n_stacks = model.stacks.len();
    let mut first_callee: Vec<Option<usize>> = vec![None; n_stacks];
    let mut next_sibling: Vec<Option<usize>> = vec![None; n_stacks];
    let mut first_root = None;
    for (at, node) in model.stacks.iter().enumerate().rev() {
        let first = match node.parent {
            Some(parent) => &mut first_callee[parent],
            None => &mut first_root,
        };
        next_sibling[at] = first.replace(at);
    }
    let mut ordered = Vec::with_capacity(n_stacks);
    let mut waiting: Vec<usize> = first_root.into_iter().collect();
    while let Some(at) = waiting.pop() {
        ordered.push(at);
        waiting.extend(next_sibling[at]);
        waiting.extend(first_callee[at]);
    }
    ordered
}
