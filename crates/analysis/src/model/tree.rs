//! The call tree of `heaptide tree`.

use super::Measure;
use super::quality::Quality;

#[derive(Clone, Debug)]
pub struct Tree {
    /// Each node before its children, and those largest first. A list, because stacks can be deeper than recursion is
    /// safe.
    pub nodes: Vec<TreeNode>,
    pub measure: Measure,
    pub quality: Quality,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// 0 for the root.
    pub depth: usize,
    pub content: NodeContent,
    /// Here and below.
    pub bytes: u64,
    pub count: u64,
    /// True if something was called from here, whether it is shown or not.
    pub has_children: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeContent {
    Root,
    Frame(super::Location),
    /// Allocated without a Python frame on the stack.
    NoFrames,
    /// Smaller places, summed up.
    Elided {
        n_locations: u64,
    },
}
