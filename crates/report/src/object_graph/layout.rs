//! Where everything is: each connected part by itself, the parts beside each other.

use super::layers::{GAP, LABEL_HEIGHT, Size, What, layers};
use super::places::{Places, STRAIGHT, places};
use super::{Arrow, Graph, MAX_LINE};
use crate::text::shorten;

/// Of a monospaced font, in boxes (12 pixels) and at arrows (11); the writer makes other fonts keep to it.
pub const CHARACTER: f64 = 7.3;
pub const LABEL_CHARACTER: f64 = 6.7;
pub const LINE: f64 = 16.0;
pub const PADDING: f64 = 8.0;
pub const MARGIN: f64 = 20.0;
const LABEL_PADDING: f64 = 3.0;
/// Between parts that do not hang together.
const PART_GAP: f64 = 48.0;
/// A box is wide enough for the tips of its arrows, within reason.
const PORT: f64 = 9.0;
const MAX_PORTS_WIDTH: f64 = 360.0;
const MAX_PORT: f64 = 16.0;
/// A picture is wrapped at this width, or at one that gives it a shape to look at.
const LEAST_WIDTH: f64 = 1200.0;
const SHAPE: f64 = 1.5;
/// What an arrow from an object to itself takes at its right.
const LOOP: f64 = 26.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rect {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Straight(f64),
    /// To a point, leaving and arriving straight up or down.
    Swing(f64, f64),
    /// Around, to the same height beside.
    Turn(f64),
    /// Out of the right side of a box and back, so far below.
    Loop(f64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Heading {
    Down,
    Up,
    Left,
}

/// A line, and where its tip is.
#[derive(Clone, Debug)]
pub struct Line {
    pub start: (f64, f64),
    pub steps: Vec<Step>,
    pub tip: (f64, f64),
    pub heading: Heading,
}

#[derive(Debug, Default)]
pub struct Layout {
    pub boxes: Vec<Rect>,
    /// By the number of the arrow.
    pub labels: Vec<Option<Rect>>,
    pub lines: Vec<Option<Line>>,
    pub width: f64,
    pub height: f64,
}

/// Places for a graph whose arrows are given, with what stands at them.
pub fn layout(graph: &Graph, arrows: &[Arrow], shown: &[String]) -> Layout {
    let sizes = box_sizes(graph, arrows);
    let label = |at: usize| match shown[at].as_str() {
        "" => 0.0,
        text => shorten::width(text) as f64 * LABEL_CHARACTER + 2.0 * LABEL_PADDING,
    };
    let area: f64 = sizes
        .iter()
        .map(|size| (size.width + GAP) * (size.height + 90.0))
        .sum();
    let wide = (area.sqrt() * SHAPE).max(LEAST_WIDTH);
    let mut all = Layout {
        boxes: vec![Rect::default(); sizes.len()],
        labels: vec![None; arrows.len()],
        lines: vec![None; arrows.len()],
        ..Layout::default()
    };
    let (mut x, mut y, mut shelf) = (MARGIN, MARGIN, 0.0f64);
    for part in parts(graph.nodes.len(), arrows) {
        let drawn = Part::new(&part, &sizes, arrows, &label, wide);
        let (width, height) = (drawn.places.width, drawn.places.height);
        if x > MARGIN && x + width > MARGIN + wide {
            (x, y, shelf) = (MARGIN, y + shelf + PART_GAP, 0.0);
        }
        drawn.put(x, y, &sizes, &label, &mut all);
        all.width = all.width.max(x + width + MARGIN);
        all.height = all.height.max(y + height + MARGIN);
        x += width + PART_GAP;
        shelf = shelf.max(height);
    }
    all
}

fn box_sizes(graph: &Graph, arrows: &[Arrow]) -> Vec<Size> {
    let mut n_arrows = vec![[0usize; 2]; graph.nodes.len()];
    for arrow in arrows.iter().filter(|arrow| arrow.from != arrow.to) {
        let is_down = graph.nodes[arrow.from].row < graph.nodes[arrow.to].row;
        n_arrows[arrow.from][usize::from(is_down)] += 1;
        n_arrows[arrow.to][usize::from(!is_down)] += 1;
    }
    let sizes = graph.nodes.iter().zip(n_arrows).map(|(node, n)| {
        let longest = node
            .lines
            .iter()
            .map(|line| shorten::width(line).min(MAX_LINE))
            .max();
        let text = longest.unwrap_or(0).max(1) as f64 * CHARACTER + 2.0 * PADDING;
        let ports = n[0].max(n[1]) as f64 * PORT + 2.0 * PADDING;
        Size {
            width: text.max(ports.min(MAX_PORTS_WIDTH)),
            height: node.lines.len().max(1) as f64 * LINE + 2.0 * PADDING,
            row: node.row,
        }
    });
    sizes.collect()
}

/// Boxes that hang together, by the first of them.
fn parts(n: usize, arrows: &[Arrow]) -> Vec<Vec<usize>> {
    let mut near: Vec<Vec<usize>> = vec![Vec::new(); n];
    for arrow in arrows {
        near[arrow.from].push(arrow.to);
        near[arrow.to].push(arrow.from);
    }
    let mut is_seen = vec![false; n];
    let mut parts = Vec::new();
    for first in 0..n {
        if is_seen[first] {
            continue;
        }
        is_seen[first] = true;
        let mut part = vec![first];
        let mut next = 0;
        while next < part.len() {
            for &other in &near[part[next]] {
                if !is_seen[other] {
                    is_seen[other] = true;
                    part.push(other);
                }
            }
            next += 1;
        }
        part.sort_unstable();
        parts.push(part);
    }
    parts
}

/// A part with its own coordinates.
struct Part<'a> {
    nodes: &'a [usize],
    /// Numbers of the arrows between boxes, and of those from a box to itself.
    between: Vec<usize>,
    own: Vec<(usize, usize)>,
    /// Of the arrows between boxes: whether it leads from the higher one to the lower one.
    is_down: Vec<bool>,
    layers: super::layers::Layers,
    places: Places,
}

impl<'a> Part<'a> {
    fn new(
        nodes: &'a [usize],
        sizes: &[Size],
        arrows: &[Arrow],
        label: &dyn Fn(usize) -> f64,
        wide: f64,
    ) -> Part<'a> {
        let mut boxes: Vec<Size> = nodes.iter().map(|&at| sizes[at].clone()).collect();
        let (mut between, mut own, mut local) = (Vec::new(), Vec::new(), Vec::new());
        for (number, arrow) in arrows.iter().enumerate() {
            let (Ok(from), Ok(to)) = (
                nodes.binary_search(&arrow.from),
                nodes.binary_search(&arrow.to),
            ) else {
                continue;
            };
            if from == to {
                boxes[from].width += LOOP + label(number);
                own.push((number, from));
            } else {
                between.push(number);
                local.push(Arrow {
                    from,
                    to,
                    labels: Vec::new(),
                });
            }
        }
        let widths: Vec<f64> = between.iter().map(|&number| label(number)).collect();
        let layers = layers(&boxes, &local, &widths, wide);
        let places = places(&layers);
        // Boxes are the first slots, in their order.
        let is_down = local
            .iter()
            .zip(&layers.routes)
            .map(|(arrow, route)| route.first() == Some(&arrow.from))
            .collect();
        Part {
            nodes,
            between,
            own,
            is_down,
            layers,
            places,
        }
    }

    /// Into the whole, with its left upper corner at a point.
    fn put(
        &self,
        left: f64,
        top: f64,
        sizes: &[Size],
        label: &dyn Fn(usize) -> f64,
        all: &mut Layout,
    ) {
        for (at, slot) in self.layers.slots.iter().enumerate() {
            let (high, low) = self.places.layers[slot.layer];
            let rect = Rect {
                x: left + self.places.x[at] - slot.width / 2.0,
                y: top + (high + low - slot.height) / 2.0,
                width: slot.width,
                height: slot.height,
            };
            match slot.what {
                What::Box(number) => {
                    let node = self.nodes[number];
                    // Without the room for an arrow to itself.
                    let width = sizes[node].width;
                    all.boxes[node] = Rect { width, ..rect };
                }
                What::Label(number) => {
                    let number = self.between[number];
                    let width = label(number);
                    let x = rect.x + (rect.width - width) / 2.0;
                    all.labels[number] = Some(Rect { x, width, ..rect });
                }
                What::Bend(_) => {}
            }
        }
        for &(number, node) in &self.own {
            let rect = all.boxes[self.nodes[node]];
            let (x, middle) = (rect.x + rect.width, rect.y + rect.height / 2.0);
            let reach = rect.height / 4.0;
            all.lines[number] = Some(Line {
                start: (x, middle - reach),
                steps: vec![Step::Loop(2.0 * reach)],
                tip: (x, middle + reach),
                heading: Heading::Left,
            });
            if label(number) > 0.0 {
                all.labels[number] = Some(Rect {
                    x: x + LOOP,
                    y: middle - LABEL_HEIGHT / 2.0,
                    width: label(number),
                    height: LABEL_HEIGHT,
                });
            }
        }
        let ports = self.ports(&all.boxes);
        for (local, &number) in self.between.iter().enumerate() {
            let line = self.line(local, (left, top), &ports[local], &all.boxes);
            all.lines[number] = Some(line);
        }
    }

    /// Where each arrow leaves its first box and meets its last: beside each other, in the order of where they go.
    fn ports(&self, boxes: &[Rect]) -> Vec<[f64; 2]> {
        let mut sides: Vec<[Vec<(f64, usize, usize)>; 2]> =
            vec![Default::default(); self.nodes.len()];
        for (local, route) in self.layers.routes.iter().enumerate() {
            let last = route.len() - 1;
            for (end, at, next) in [(0, route[0], route[1]), (1, route[last], route[last - 1])] {
                let is_below = self.layers.slots[next].layer > self.layers.slots[at].layer;
                sides[at][usize::from(is_below)].push((self.places.x[next], local, end));
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

    fn line(&self, local: usize, corner: (f64, f64), ports: &[f64; 2], boxes: &[Rect]) -> Line {
        let route = &self.layers.routes[local];
        let slot = |at: usize| &self.layers.slots[route[at]];
        let rect = |at: usize| boxes[self.nodes[route[at]]];
        let span = |at: usize| {
            let (high, low) = self.places.layers[slot(at).layer];
            (corner.1 + high, corner.1 + low)
        };
        let last = route.len() - 1;
        let (first_box, last_box) = (rect(0), rect(last));
        let start = (ports[0], first_box.y + first_box.height);
        let mut steps = vec![Step::Straight(span(0).1)];
        if slot(0).layer == slot(last).layer {
            // Down, around and up again; it turns in the half of its room that is nearer.
            let middle = corner.0 + self.places.x[route[1]];
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
        for at in 1..last {
            let (high, low) = span(at);
            steps.push(Step::Swing(corner.0 + self.places.x[route[at]], high));
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
