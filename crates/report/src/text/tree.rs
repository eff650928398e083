//! `heaptide tree` as plain text: one indented line per node.

use std::io::{self, Write};

use heaptide_analysis::model::{NodeContent, Tree, TreeNode};

use super::{Style, notes};
use crate::units::{count, percent, percentage, size};

pub fn tree(out: &mut dyn Write, tree: &Tree, style: Style) -> io::Result<()> {
    for note in notes::incomplete(&tree.quality) {
        writeln!(out, "{}", style.bold(&note))?;
    }
    let whole = tree.nodes.first().map_or(0, |root| root.bytes);
    if let Some(heading) = notes::heading(&tree.quality, tree.measure) {
        writeln!(out, "{}", style.bold(&heading))?;
    }
    if tree.nodes.len() <= 1 {
        writeln!(out, "<No allocations>")?;
    } else {
        let mut guides = Guides::new(&tree.nodes);
        for (at, node) in tree.nodes.iter().enumerate() {
            writeln!(out, "{}{}", guides.next(at), label(node, whole, style))?;
        }
    }
    for note in notes::footer(&tree.quality, tree.measure) {
        writeln!(out, "{note}")?;
    }
    Ok(())
}

fn label(node: &TreeNode, whole: u64, style: Style) -> String {
    let share = percent(node.bytes, whole);
    let sign = match node.content {
        NodeContent::Elided { .. } => "❓",
        _ if node.has_children => "📂",
        _ => "📄",
    };
    let amount = style.share(
        share,
        &format!("{} ({})", size(node.bytes), percentage(share)),
    );
    let what = match &node.content {
        NodeContent::Root => style.bold("<ROOT>"),
        NodeContent::NoFrames => style.bold("<stack trace unavailable>"),
        NodeContent::Frame(at) => {
            let line = style.dim(&at.file_and_line());
            format!("{} {line}", style.bold(&at.function))
        }
        NodeContent::Elided { n_locations } => format!(
            "{} allocations from {} locations below the configured threshold",
            count(node.count),
            count(*n_locations)
        ),
    };
    format!("{sign} {amount} {what}")
}

/// The guide lines that connect siblings.
struct Guides {
    /// For each node, whether a sibling follows.
    has_next: Vec<bool>,
    depths: Vec<usize>,
    /// For each depth from the root to the current node, whether its line continues.
    open: Vec<bool>,
}

/// Deeper nodes are indented by only this many levels and show their depth as a number. So lines stay readable, and the
/// size of a report is linear in the depth of a recursion.
const MAX_INDENTED: usize = 120;

impl Guides {
    fn new(nodes: &[TreeNode]) -> Guides {
        let depths: Vec<usize> = nodes.iter().map(|node| node.depth).collect();
        let mut has_next = vec![false; nodes.len()];
        // For each depth, whether a sibling follows: nodes are visited in reverse order.
        let mut follows: Vec<bool> = Vec::new();
        for (at, &depth) in depths.iter().enumerate().rev() {
            follows.resize((depth + 1).max(follows.len()), false);
            has_next[at] = follows[depth];
            follows.truncate(depth + 1);
            follows[depth] = true;
        }
        Guides {
            has_next,
            depths,
            open: Vec::new(),
        }
    }

    fn next(&mut self, at: usize) -> String {
        let depth = self.depths[at];
        self.open.truncate(depth);
        self.open.resize(depth + 1, false);
        self.open[depth] = self.has_next[at];
        if depth == 0 {
            return String::new();
        }
        let shown = depth.min(MAX_INDENTED);
        let lines = self.open[depth + 1 - shown..depth].iter();
        let mut text: String = lines
            .map(|&continues| if continues { "│   " } else { "    " })
            .collect();
        if depth > MAX_INDENTED {
            text += &format!("[{depth}] ");
        }
        text + if self.has_next[at] {
            "├── "
        } else {
            "└── "
        }
    }
}
