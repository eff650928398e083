//! The call tree of `heaptide tree`.

use super::Measure;
use super::quality::Quality;

#[derive(Clone, Debug)]
pub struct Tree {
    /// Each node comes before its children, which are sorted largest first. It is a list because stacks can be too deep for
    /// recursion.
    pub nodes: Vec<TreeNode>,
    pub measure: Measure,
    pub quality: Quality,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// 0 for the root.
    pub depth: usize,
    pub content: NodeContent,
    /// Including its callees.
    pub bytes: u64,
    pub count: u64,
    /// Whether the node has callees, shown or not.
    pub has_children: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeContent {
    Root,
    Frame(super::Location),
    /// Allocated without a Python frame on the stack.
    NoFrames,
    /// The sum of smaller siblings.
    Elided {
        n_locations: u64,
    },
}
