//! A part of a heap as a graph to draw.

use heaptide_analysis::heap::Heap;
use heaptide_analysis::heap::picture::{Picture, Role};

use crate::object_graph::{BoxRole, Graph, Node};
use crate::units;

/// Boxes with their text; referrers are above their referents.
pub fn drawing(heap: &Heap, picture: &Picture) -> Graph {
    let nodes = picture.boxes.iter().enumerate().map(|(at, one)| {
        let row = i32::try_from(one.row).unwrap_or(i32::MAX);
        Node {
            lines: picture.lines(heap, at, units::count),
            role: match one.role {
                Role::Start => BoxRole::Start,
                Role::Module => BoxRole::Module,
                Role::Frame => BoxRole::Frame,
                Role::Other => BoxRole::Object,
                Role::More(_) => BoxRole::More,
            },
            row: if picture.is_forward { row } else { -row },
            has_finalizer: false,
            attributes: Vec::new(),
        }
    });
    Graph {
        nodes: nodes.collect(),
        edges: picture.arrows.clone(),
    }
}
