//! Cuts the call tree to a number of frames, and merges the smaller frames below each node into one node.

use heaptide_tally::{Lifetime, Lifetimes};
use rustc_hash::FxHashMap;

use super::FlameLimits;
use crate::interner::Interner;
use crate::model::flame::{FlameContent, FlameNode, Measured, Own};
use crate::model::{Measure, SiteSum, StackModel};

const SQUARE_KIB: f64 = 1024.0 * 1024.0;

type Amounts = [Measured; Measure::ALL.len()];

/// The whole tree, before it is cut.
pub(super) struct WholeTree {
    nodes: Vec<FlameNode>,
    /// In any order.
    own: Vec<Own>,
    no_frames: Option<u32>,
    /// Node and origin of each site that was added.
    sites: Vec<(u32, u32)>,
    /// `site` of an entry is a position in `sites`.
    lives: Lifetimes,
}

/// The kept part of the tree.
pub(super) struct Cut {
    pub(super) nodes: Vec<FlameNode>,
    pub(super) own: Vec<Own>,
    /// `site` of an entry is a position in `own`.
    pub(super) lives: Lifetimes,
    /// The kept locations by their position in the stack model. Frames refer to positions in this list.
    pub(super) locations: Vec<u32>,
}

impl WholeTree {
    /// Node 0 is the root; stack `n` of the model is node `n + 1`.
    pub(super) fn new(model: &StackModel) -> WholeTree {
        let root = FlameNode {
            parent: 0,
            content: FlameContent::Root,
        };
        let frames = model.stacks.iter().map(|stack| FlameNode {
            parent: stack.parent.map_or(0, |parent| parent as u32 + 1),
            content: FlameContent::Frame(stack.location as u32),
        });
        WholeTree {
            nodes: [root].into_iter().chain(frames).collect(),
            own: Vec::new(),
            no_frames: None,
            sites: Vec::new(),
            lives: Lifetimes::default(),
        }
    }

    pub(super) fn n_sites(&self) -> usize {
        self.sites.len()
    }

    pub(super) fn add(&mut self, site: &SiteSum, origin: u32) {
        let node = match site.stack {
            Some(stack) => stack as u32 + 1,
            None => *self.no_frames.get_or_insert_with(|| {
                self.nodes.push(FlameNode {
                    parent: 0,
                    content: FlameContent::NoFrames,
                });
                self.nodes.len() as u32 - 1
            }),
        };
        self.sites.push((node, origin));
        let measured = |amount: heaptide_tally::Amount| Measured {
            bytes: amount.bytes,
            count: amount.count,
            variance: (amount.variance / SQUARE_KIB).round() as u64,
        };
        let amounts = Measure::ALL.map(|measure| measured(site.amount(measure)));
        if amounts.iter().any(|amount| *amount != Measured::default()) {
            self.own.push(Own {
                node,
                origin,
                amounts,
            });
        }
    }

    /// Adds the lifetimes of a process whose sites begin at `first_site`, merged into `n_bins` bins.
    pub(super) fn add_lives(&mut self, lives: &Lifetimes, n_bins: usize, first_site: usize) {
        let mut lives = lives.clone();
        while lives.n_bins() > n_bins {
            lives.halve();
        }
        let entries = lives.entries.iter().map(|life| Lifetime {
            site: life.site + first_site as u32,
            ..*life
        });
        self.lives.entries.extend(entries);
        if lives.n_bins() > 0 {
            self.lives.edges = lives.edges;
        }
    }

    /// Cuts frames that are too small, and returns the share below which a frame was cut.
    pub(super) fn cut(&self, limits: FlameLimits) -> (f64, Cut) {
        let shares = self.shares();
        let mut min_share = limits.min_share;
        if shares.len() > limits.max_frames {
            let mut sorted = shares.clone();
            let (_, &mut at_limit, _) =
                sorted.select_nth_unstable_by(limits.max_frames, |one, other| other.total_cmp(one));
            // Drop all ties at the limit; keeping them could exceed `max_frames`.
            min_share = min_share.max(f64::from_bits(at_limit.to_bits() + 1));
        }
        // A caller's share is at least that of its callees, so the kept nodes form a tree.
        let is_kept = |node: usize| node == 0 || shares[node] >= min_share;
        let mut cut = Cut {
            nodes: Vec::new(),
            own: Vec::new(),
            lives: self.lives.clone(),
            locations: Vec::new(),
        };
        let mut locations = Interner::default();
        // For each node, the node of the result that contains it.
        let mut kept_as: Vec<u32> = Vec::with_capacity(self.nodes.len());
        let mut cut_below: FxHashMap<u32, u32> = FxHashMap::default();
        for (number, node) in self.nodes.iter().enumerate() {
            let parent = kept_as.get(node.parent as usize).copied().unwrap_or(0);
            if number != 0 && shares[number] == 0.0 {
                // Nothing was allocated here: a bounded capture may list empty sites.
                kept_as.push(parent);
                continue;
            }
            if is_kept(number) {
                let content = match node.content {
                    FlameContent::Frame(location) => {
                        FlameContent::Frame(locations.number(location))
                    }
                    other => other,
                };
                kept_as.push(cut.nodes.len() as u32);
                cut.nodes.push(FlameNode { parent, content });
                continue;
            }
            let is_below_cut =
                matches!(cut.nodes[parent as usize].content, FlameContent::Cut { .. });
            let merged = if is_below_cut {
                parent
            } else {
                *cut_below.entry(parent).or_insert_with(|| {
                    let content = FlameContent::Cut { n_frames: 0 };
                    cut.nodes.push(FlameNode { parent, content });
                    cut.nodes.len() as u32 - 1
                })
            };
            if let FlameContent::Cut { n_frames } = &mut cut.nodes[merged as usize].content {
                *n_frames += 1;
            }
            kept_as.push(merged);
        }
        cut.locations = locations.values;
        let mut own = self.own.clone();
        for own in &mut own {
            own.node = kept_as[own.node as usize];
        }
        own.sort_unstable_by_key(|own| (own.node, own.origin));
        for own in own {
            match cut.own.last_mut() {
                Some(last) if (last.node, last.origin) == (own.node, own.origin) => {
                    add(&mut last.amounts, &own.amounts);
                }
                _ => cut.own.push(own),
            }
        }
        let known: FxHashMap<(u32, u32), u32> = {
            let own = cut.own.iter().zip(0..);
            own.map(|(own, number)| ((own.node, own.origin), number))
                .collect()
        };
        let number_of: Vec<Option<&u32>> = self
            .sites
            .iter()
            .map(|&(node, origin)| known.get(&(kept_as[node as usize], origin)))
            .collect();
        cut.lives
            .entries
            .retain(|life| number_of[life.site as usize].is_some());
        for life in &mut cut.lives.entries {
            life.site = number_of[life.site as usize].copied().unwrap_or(0);
        }
        cut.lives.merge();
        (min_share, cut)
    }

    /// For each node, the largest share that it and its callees have in any measure.
    fn shares(&self) -> Vec<f64> {
        let mut sums = vec![Amounts::default(); self.nodes.len()];
        for own in &self.own {
            add(&mut sums[own.node as usize], &own.amounts);
        }
        for (number, node) in self.nodes.iter().enumerate().skip(1).rev() {
            let below = sums[number];
            add(&mut sums[node.parent as usize], &below);
        }
        let all = sums[0];
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let largest = |sum: &Amounts| {
            let pairs = sum.iter().zip(&all);
            pairs.fold(0.0, |largest: f64, (part, whole)| {
                let bytes = share(part.bytes, whole.bytes);
                largest.max(bytes).max(share(part.count, whole.count))
            })
        };
        sums.iter().map(largest).collect()
    }
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (sum, more) in sum.iter_mut().zip(more) {
        sum.bytes = sum.bytes.saturating_add(more.bytes);
        sum.count = sum.count.saturating_add(more.count);
        sum.variance = sum.variance.saturating_add(more.variance);
    }
}
