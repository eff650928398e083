//! Draws a few objects and their references: as SVG or PNG, as a page with the picture, or as dot for other programs.
//!
//! Referrers are above their referents. In reading order: `layers` assigns every box, label and bend of an arrow to a
//! layer and orders each layer. `coordinates` computes positions. `layout` does both for each connected part, `routes`
//! draws the arrows, and `svg`, `png`, `page` and `dot` write files. Boxes and labels never overlap, and no arrow
//! crosses a label or a box. Each has its own slot in a layer, and arrows change position only between layers. The same
//! graph always gives the same picture.

mod coordinates;
mod dot;
mod layers;
mod layout;
mod page;
mod png;
mod routes;
mod svg;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use dot::dot;
pub use page::page;
pub use png::png;
pub use svg::svg;

use crate::text::shorten;

/// The role of a box, which determines its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxRole {
    /// One of the requested objects.
    Start,
    Module,
    Frame,
    Highlight,
    Object,
    /// A note with the number of objects that are not drawn.
    More,
}

impl BoxRole {
    pub const ALL: [BoxRole; 6] = [
        BoxRole::Start,
        BoxRole::Module,
        BoxRole::Frame,
        BoxRole::Highlight,
        BoxRole::Object,
        BoxRole::More,
    ];

    /// The name in files and in Python.
    pub fn word(self) -> &'static str {
        match self {
            BoxRole::Start => "start",
            BoxRole::Module => "module",
            BoxRole::Frame => "frame",
            BoxRole::Highlight => "highlight",
            BoxRole::Object => "object",
            BoxRole::More => "more",
        }
    }

    /// The meaning of the colour for the legend; objects and notes need none.
    fn legend(self) -> Option<&'static str> {
        match self {
            BoxRole::Start => Some("selected"),
            BoxRole::Module => Some("module"),
            BoxRole::Frame => Some("frame"),
            BoxRole::Highlight => Some("highlighted"),
            BoxRole::Object | BoxRole::More => None,
        }
    }

    /// Fill and text colours, light and dark.
    fn colours(self) -> [(&'static str, &'static str); 2] {
        match self {
            BoxRole::Start => [("#fde8e8", "#9b1c1c"), ("#451a1a", "#fca5a5")],
            BoxRole::Module => [("#dcfce7", "#14532d"), ("#14321f", "#86efac")],
            BoxRole::Frame => [("#fef3c7", "#78350f"), ("#3b2a0a", "#fcd34d")],
            BoxRole::Highlight => [("#dbeafe", "#1e3a8a"), ("#172a54", "#93c5fd")],
            BoxRole::Object => [("#eef2f7", "#1f2933"), ("#222c30", "#e6edee")],
            BoxRole::More => [("#ffffff", "#b91c1c"), ("#13181a", "#f08a78")],
        }
    }
}

#[derive(Clone, Debug)]
pub struct Node {
    pub lines: Vec<String>,
    pub role: BoxRole,
    /// Rows with smaller numbers are higher.
    pub row: i32,
    /// Whether the border is thick: the object has a finalizer.
    pub has_finalizer: bool,
    /// Only for dot.
    pub attributes: Vec<(String, String)>,
}

/// Boxes, and arrows from referrers to referents.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
    pub edges: Vec<(usize, usize, String)>,
}

/// All references from one object to another, which share an arrow.
struct Arrow {
    from: usize,
    to: usize,
    labels: Vec<String>,
}

/// The largest width of a line in a box, and of a label. Longer texts lose their middle; the tooltip has the whole text.
const MAX_LINE: usize = 40;
const MAX_LABEL: usize = 28;
/// The maximum number of labels at an arrow; the arrow shows the number of further labels.
const MAX_LABELS: usize = 2;

impl Graph {
    /// Arrows in the order of their first reference.
    fn arrows(&self) -> Vec<Arrow> {
        let mut arrows: Vec<Arrow> = Vec::new();
        let mut positions: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for (from, to, label) in &self.edges {
            if *from >= self.nodes.len() || *to >= self.nodes.len() {
                continue;
            }
            let at = *positions.entry((*from, *to)).or_insert_with(|| {
                arrows.push(Arrow {
                    from: *from,
                    to: *to,
                    labels: Vec::new(),
                });
                arrows.len() - 1
            });
            if !label.is_empty() && !arrows[at].labels.contains(label) {
                arrows[at].labels.push(label.clone());
            }
        }
        arrows
    }
}

impl Arrow {
    /// The label of the arrow.
    fn shown(&self) -> String {
        match self.labels.as_slice() {
            [one] => shorten::middle(one, MAX_LABEL),
            labels => {
                let n_shown = labels.len().min(MAX_LABELS);
                let each = MAX_LABEL / MAX_LABELS;
                let mut shown: Vec<String> = labels[..n_shown]
                    .iter()
                    .map(|label| shorten::middle(label, each))
                    .collect();
                if labels.len() > n_shown {
                    shown.push(format!("… {} more", labels.len() - n_shown));
                }
                shown.join(", ")
            }
        }
    }
}
