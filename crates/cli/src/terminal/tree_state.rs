//! The state of the call tree view: expanded nodes, chosen node, sort order and search.

use std::cmp::Reverse;

use heaptide_analysis::model::{NodeContent, Tree, TreeNode};

use super::input::Search;

/// The sort order of the calls from one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Size,
    Count,
    Name,
}

impl Order {
    pub(super) fn name(self) -> &'static str {
        match self {
            Order::Size => "size",
            Order::Count => "allocations",
            Order::Name => "name",
        }
    }

    fn next(self) -> Order {
        match self {
            Order::Size => Order::Count,
            Order::Count => Order::Name,
            Order::Name => Order::Size,
        }
    }
}

/// Nodes are identified by their index in the tree's list.
pub(super) struct TreeState<'a> {
    nodes: &'a [TreeNode],
    parents: Vec<usize>,
    children: Vec<Vec<usize>>,
    is_open: Vec<bool>,
    /// The visible nodes, from top to bottom.
    rows: Vec<usize>,
    /// Index in `rows`.
    chosen: usize,
    pub order: Order,
    pub search: Search,
}

impl<'a> TreeState<'a> {
    pub(super) fn new(tree: &'a Tree) -> TreeState<'a> {
        let nodes = &tree.nodes[..];
        let mut parents = Vec::with_capacity(nodes.len());
        let mut children = vec![Vec::new(); nodes.len()];
        let mut path: Vec<usize> = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            path.truncate(node.depth);
            let parent = path.last().copied().unwrap_or(0);
            parents.push(parent);
            if at > 0 {
                children[parent].push(at);
            }
            path.push(at);
        }
        let mut state = TreeState {
            nodes,
            parents,
            children,
            is_open: vec![false; nodes.len()],
            rows: Vec::new(),
            chosen: 0,
            order: Order::Size,
            search: Search::default(),
        };
        state.expand_to_the_largest();
        state.lay_out();
        state
    }

    /// Expands from the root while one call has at least half of its caller's bytes.
    fn expand_to_the_largest(&mut self) {
        let mut at = 0;
        while at < self.nodes.len() {
            self.is_open[at] = true;
            let largest = self.children[at].iter().copied();
            let Some(child) =
                largest.max_by_key(|&child| (self.nodes[child].bytes, Reverse(child)))
            else {
                return;
            };
            if self.nodes[child].bytes < self.nodes[at].bytes / 2 {
                return;
            }
            at = child;
        }
    }

    /// Computes the visible nodes.
    fn lay_out(&mut self) {
        self.rows.clear();
        let mut waiting = if self.nodes.is_empty() {
            vec![]
        } else {
            vec![0]
        };
        while let Some(at) = waiting.pop() {
            self.rows.push(at);
            if self.is_open[at] {
                waiting.extend(self.children[at].iter().rev());
            }
        }
        self.chosen = self.chosen.min(self.rows.len().saturating_sub(1));
    }

    pub(super) fn rows(&self) -> &[usize] {
        &self.rows
    }

    pub(super) fn chosen_row(&self) -> usize {
        self.chosen
    }

    /// Returns the chosen node; `None` in an empty tree.
    pub(super) fn chosen(&self) -> Option<usize> {
        self.rows.get(self.chosen).copied()
    }

    pub(super) fn node(&self, at: usize) -> &'a TreeNode {
        &self.nodes[at]
    }

    pub(super) fn parent(&self, at: usize) -> &'a TreeNode {
        &self.nodes[self.parents[at]]
    }

    /// Returns whether the node is expanded; `None` for a leaf.
    pub(super) fn fold(&self, at: usize) -> Option<bool> {
        (!self.children[at].is_empty()).then_some(self.is_open[at])
    }

    pub(super) fn whole(&self) -> u64 {
        self.nodes.first().map_or(0, |root| root.bytes)
    }

    pub(super) fn step(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        self.chosen = self.chosen.saturating_add_signed(by).min(last);
    }

    fn choose(&mut self, at: usize) {
        if let Some(row) = self.rows.iter().position(|&row| row == at) {
            self.chosen = row;
        }
    }

    /// Expands the chosen node. If it is expanded, moves to its first call.
    pub(super) fn open(&mut self) {
        let Some(at) = self.chosen() else { return };
        match self.fold(at) {
            Some(false) => self.set_open(at, true),
            Some(true) => self.step(1),
            None => {}
        }
    }

    /// Collapses the chosen node. If it is not expanded, moves to its caller.
    pub(super) fn close(&mut self) {
        let Some(at) = self.chosen() else { return };
        if self.fold(at) == Some(true) {
            self.set_open(at, false);
        } else {
            self.choose(self.parents[at]);
        }
    }

    pub(super) fn toggle(&mut self) {
        if let Some(at) = self.chosen() {
            self.set_open(at, !self.is_open[at]);
        }
    }

    fn set_open(&mut self, at: usize, open: bool) {
        self.is_open[at] = open;
        self.lay_out();
    }

    /// Expands or collapses the chosen node and its subtree.
    pub(super) fn set_all_below(&mut self, open: bool) {
        let Some(first) = self.chosen() else { return };
        let depth = self.nodes[first].depth;
        let below = self.nodes[first + 1..].iter();
        let n_below = below.take_while(|node| node.depth > depth).count();
        self.is_open[first..=first + n_below].fill(open);
        self.lay_out();
        self.choose(first);
    }

    pub(super) fn next_order(&mut self) {
        self.order = self.order.next();
        let (nodes, order) = (self.nodes, self.order);
        for children in &mut self.children {
            children.sort_by(|&one, &other| {
                let (one_node, other_node) = (&nodes[one], &nodes[other]);
                let largest_first = match order {
                    Order::Size => other_node.bytes.cmp(&one_node.bytes),
                    Order::Count => other_node.count.cmp(&one_node.count),
                    Order::Name => name(one_node).cmp(&name(other_node)),
                };
                largest_first.then(one.cmp(&other))
            });
        }
        let chosen = self.chosen();
        self.lay_out();
        if let Some(at) = chosen {
            self.choose(at);
        }
    }

    pub(super) fn is_match(&self, at: usize) -> bool {
        self.search.is_on()
            && match &self.nodes[at].content {
                NodeContent::Frame(location) => {
                    self.search.matches(&[&location.function, &location.file])
                }
                _ => false,
            }
    }

    pub(super) fn n_matches(&self) -> usize {
        (0..self.nodes.len())
            .filter(|&at| self.is_match(at))
            .count()
    }

    /// Moves to the next match and expands its callers. After the last match follows the first.
    pub(super) fn find(&mut self, forward: bool) {
        let Some(from) = self.chosen() else { return };
        let n = self.nodes.len();
        let others = (1..=n).map(|step| match forward {
            true => (from + step) % n,
            false => (from + n - step) % n,
        });
        let Some(next) = others.into_iter().find(|&at| self.is_match(at)) else {
            return;
        };
        self.reveal(next);
    }

    /// Stays if the chosen node matches the search, else moves to the next match.
    pub(super) fn find_while_typing(&mut self) {
        if self.search.is_on() && self.chosen().is_some_and(|at| !self.is_match(at)) {
            self.find(true);
        }
    }

    fn reveal(&mut self, at: usize) {
        let mut caller = at;
        while caller != 0 {
            caller = self.parents[caller];
            self.is_open[caller] = true;
        }
        self.lay_out();
        self.choose(at);
    }
}

fn name(node: &TreeNode) -> (u8, &str) {
    match &node.content {
        NodeContent::Frame(location) => (0, &location.function),
        NodeContent::Root | NodeContent::NoFrames => (1, ""),
        NodeContent::Elided { .. } => (2, ""),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use heaptide_analysis::Measure;
    use heaptide_analysis::model::{Location, Quality};
    use ratatui::crossterm::event::KeyCode;

    pub fn tree(nodes: &[(usize, &str, u64, u64)]) -> Tree {
        let node = |&(depth, name, bytes, count): &(usize, &str, u64, u64)| TreeNode {
            depth,
            content: match name {
                "" => NodeContent::Root,
                name => NodeContent::Frame(Location {
                    function: name.into(),
                    file: "/x/y.py".into(),
                    line: 7,
                    library: None,
                }),
            },
            bytes,
            count,
            has_children: false,
        };
        Tree {
            nodes: nodes.iter().map(node).collect(),
            measure: Measure::Peak,
            quality: Quality::default(),
        }
    }

    fn example() -> Tree {
        tree(&[
            (0, "", 100, 9),
            (1, "main", 90, 4),
            (2, "load", 40, 1),
            (3, "read", 40, 1),
            (2, "parse", 38, 3),
            (1, "helper", 10, 5),
        ])
    }

    fn names<'a>(state: &TreeState<'a>) -> Vec<&'a str> {
        let rows = state.rows().iter();
        rows.map(|&at| name(state.node(at)).1).collect()
    }

    #[test]
    fn largest_path_is_expanded_initially() {
        let tree = example();
        let state = TreeState::new(&tree);
        assert_eq!(names(&state), ["", "main", "load", "parse", "helper"]);
        assert_eq!(state.fold(2), Some(false));
        assert_eq!(state.fold(3), None);
    }

    #[test]
    fn nodes_expand_and_collapse_and_the_chosen_node_stays_visible() {
        let tree = example();
        let mut state = TreeState::new(&tree);
        state.step(2);
        state.open();
        assert_eq!(
            names(&state),
            ["", "main", "load", "read", "parse", "helper"]
        );
        state.open();
        assert_eq!(state.chosen(), Some(3), "moves to the first call");
        state.close();
        assert_eq!(state.chosen(), Some(2), "a leaf leads to its caller");
        state.step(-2);
        state.set_all_below(false);
        assert_eq!(names(&state), [""]);
        state.set_all_below(true);
        assert_eq!(state.rows().len(), 6);
        state.step(100);
        assert_eq!(state.chosen(), Some(5));
    }

    #[test]
    fn sorting_keeps_the_chosen_node() {
        let tree = example();
        let mut state = TreeState::new(&tree);
        state.step(3);
        assert_eq!(state.chosen(), Some(4));
        state.next_order();
        assert_eq!(names(&state), ["", "helper", "main", "parse", "load"]);
        assert_eq!(state.chosen(), Some(4));
        state.next_order();
        assert_eq!(names(&state), ["", "helper", "main", "load", "parse"]);
        state.next_order();
        assert_eq!(names(&state), ["", "main", "load", "parse", "helper"]);
    }

    #[test]
    fn search_expands_the_callers_of_matches_and_wraps_around() {
        let tree = example();
        let mut state = TreeState::new(&tree);
        state.search.open();
        for letter in "REA".chars() {
            state.search.key(KeyCode::Char(letter));
            state.find_while_typing();
        }
        assert_eq!((state.chosen(), state.n_matches()), (Some(3), 1));
        state.search.clear();
        state.search.key(KeyCode::Char('r'));
        state.find(true);
        assert_eq!(state.chosen(), Some(4));
        state.find(true);
        assert_eq!(state.chosen(), Some(5));
        state.find(true);
        assert_eq!(state.chosen(), Some(3));
        state.find(false);
        assert_eq!(state.chosen(), Some(5));
    }
}
