//! The lines of arrows: their end points at boxes, and their path through the layers in between.

use super::coordinates::STRAIGHT;
use super::layout::{Heading, Line, PADDING, Part, Rect, Step};

/// The largest distance between neighbouring arrows at a box.
const MAX_PORT: f64 = 16.0;

impl Part<'_> {
    /// The end points of each arrow at its first and last box. Those at one box are side by side, sorted by their other end.
    pub fn ports(&self, boxes: &[Rect]) -> Vec<[f64; 2]> {
        let mut sides: Vec<[Vec<(f64, usize, usize)>; 2]> =
            vec![Default::default(); self.nodes.len()];
        for (local, route) in self.layers.routes.iter().enumerate() {
            let last = route.len() - 1;
            for (end, at, next) in [(0, route[0], route[1]), (1, route[last], route[last - 1])] {
                let is_below = self.layers.slots[next].layer > self.layers.slots[at].layer;
                sides[at][usize::from(is_below)].push((self.coordinates.x[next], local, end));
            }
        }
        let mut ports = vec![[0.0; 2]; self.layers.routes.len()];
        for (node, sides) in sides.iter_mut().enumerate() {
            let rect = boxes[self.nodes[node]];
            for side in sides {
                side.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
                let n = side.len();
                let room = rect.width - 2.0 * PADDING;
                let step = (room / (n.max(2) - 1) as f64).min(MAX_PORT);
                for (at, &(_, local, end)) in side.iter().enumerate() {
                    let from_middle = at as f64 - (n as f64 - 1.0) / 2.0;
                    ports[local][end] = rect.x + rect.width / 2.0 + from_middle * step;
                }
            }
        }
        ports
    }

    pub fn line(&self, local: usize, corner: (f64, f64), ports: &[f64; 2], boxes: &[Rect]) -> Line {
        let route = &self.layers.routes[local];
        let slot = |at: usize| &self.layers.slots[route[at]];
        let rect = |at: usize| boxes[self.nodes[route[at]]];
        let span = |at: usize| {
            let (high, low) = self.coordinates.layers[slot(at).layer];
            (corner.1 + high, corner.1 + low)
        };
        let last = route.len() - 1;
        let (first_box, last_box) = (rect(0), rect(last));
        let start = (ports[0], first_box.y + first_box.height);
        let mut steps = vec![Step::Straight(span(0).1)];
        if slot(0).layer == slot(last).layer {
            // The line goes down, turns and goes up again, in the nearer half of its slot.
            let middle = corner.0 + self.coordinates.x[route[1]];
            let reach = (slot(1).width / 4.0).min(10.0);
            let side = if ports[0] <= ports[1] { -reach } else { reach };
            let top = span(1).0;
            steps.push(Step::Swing(middle + side, top));
            steps.push(Step::Turn(middle - side));
            steps.push(Step::Swing(ports[1], span(0).1));
            let bottom = last_box.y + last_box.height;
            steps.push(Step::Straight(bottom));
            return Line {
                start,
                steps,
                tip: (ports[1], bottom),
                heading: Heading::Up,
            };
        }
        for (at, &passed) in route.iter().enumerate().take(last).skip(1) {
            let (high, low) = span(at);
            steps.push(Step::Swing(corner.0 + self.coordinates.x[passed], high));
            steps.push(Step::Straight(low));
        }
        steps.push(Step::Swing(ports[1], span(last).0));
        steps.push(Step::Straight(last_box.y));
        debug_assert!(span(last).0 + STRAIGHT <= last_box.y + 0.01);
        let is_down = self.is_down[local];
        Line {
            start,
            steps,
            tip: if is_down {
                (ports[1], last_box.y)
            } else {
                start
            },
            heading: if is_down { Heading::Down } else { Heading::Up },
        }
    }
}
