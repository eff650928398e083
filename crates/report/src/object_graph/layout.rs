//! Lays out each connected part separately, and arranges the parts next to each other.

use super::coordinates::{Coordinates, coordinates};
use super::layers::{GAP, LABEL_HEIGHT, Size, SlotContent, layers};
use super::{Arrow, Graph, MAX_LINE};
use crate::text::shorten;

/// The character widths of a monospaced font in boxes (12 pixels) and at arrows (11); the writer fits other fonts to them.
pub const CHARACTER: f64 = 7.3;
pub const LABEL_CHARACTER: f64 = 6.7;
pub const LINE: f64 = 16.0;
pub const PADDING: f64 = 8.0;
pub const MARGIN: f64 = 20.0;
const LABEL_PADDING: f64 = 3.0;
/// The gap between parts that are not connected.
const PART_GAP: f64 = 48.0;
/// The width that a box reserves for each end of an arrow, and the maximum width that it reserves for all ends.
const PORT: f64 = 9.0;
const MAX_PORTS_WIDTH: f64 = 360.0;
/// Parts wrap at this width, or at a width that gives the picture a good aspect ratio.
const MIN_WIDTH: f64 = 1200.0;
const ASPECT_RATIO: f64 = 1.5;
/// The width of an arrow from a box to itself, on its right side.
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
    /// To a point, vertical at both ends.
    Swing(f64, f64),
    /// In a half circle to a point at the same height.
    Turn(f64),
    /// Out of the right side of a box, and back to it at this distance below.
    Loop(f64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Heading {
    Down,
    Up,
    Left,
}

/// A line and the position of its tip.
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
    /// By arrow number.
    pub labels: Vec<Option<Rect>>,
    pub lines: Vec<Option<Line>>,
    pub width: f64,
    pub height: f64,
}

/// Lays out a graph with the given arrows and their labels.
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
    let wide = (area.sqrt() * ASPECT_RATIO).max(MIN_WIDTH);
    let mut all = Layout {
        boxes: vec![Rect::default(); sizes.len()],
        labels: vec![None; arrows.len()],
        lines: vec![None; arrows.len()],
        ..Layout::default()
    };
    let (mut x, mut y, mut row_height) = (MARGIN, MARGIN, 0.0f64);
    for part in parts(graph.nodes.len(), arrows) {
        let drawn = Part::new(&part, &sizes, arrows, &label, wide);
        let (width, height) = (drawn.coordinates.width, drawn.coordinates.height);
        if x > MARGIN && x + width > MARGIN + wide {
            (x, y, row_height) = (MARGIN, y + row_height + PART_GAP, 0.0);
        }
        drawn.put(x, y, &sizes, &label, &mut all);
        all.width = all.width.max(x + width + MARGIN);
        all.height = all.height.max(y + height + MARGIN);
        x += width + PART_GAP;
        row_height = row_height.max(height);
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

/// The boxes of each connected part. Parts are in the order of their first boxes.
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

/// A connected part with its own coordinates.
pub struct Part<'a> {
    pub nodes: &'a [usize],
    /// Numbers of the arrows between boxes, and of those from a box to itself.
    between: Vec<usize>,
    own: Vec<(usize, usize)>,
    /// For each arrow between boxes, whether it leads downwards.
    pub is_down: Vec<bool>,
    pub layers: super::layers::Layers,
    pub coordinates: Coordinates,
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
        let coordinates = coordinates(&layers);
        // The first slots are the boxes, in their order.
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
            coordinates,
        }
    }

    /// Adds the part to the picture with its upper left corner at a point.
    fn put(
        &self,
        left: f64,
        top: f64,
        sizes: &[Size],
        label: &dyn Fn(usize) -> f64,
        all: &mut Layout,
    ) {
        for (at, slot) in self.layers.slots.iter().enumerate() {
            let (high, low) = self.coordinates.layers[slot.layer];
            let rect = Rect {
                x: left + self.coordinates.x[at] - slot.width / 2.0,
                y: top + (high + low - slot.height) / 2.0,
                width: slot.width,
                height: slot.height,
            };
            match slot.content {
                SlotContent::Box(number) => {
                    let node = self.nodes[number];
                    // The slot also has room for an arrow from the box to itself; the box does not.
                    let width = sizes[node].width;
                    all.boxes[node] = Rect { width, ..rect };
                }
                SlotContent::Label(number) => {
                    let number = self.between[number];
                    let width = label(number);
                    let x = rect.x + (rect.width - width) / 2.0;
                    all.labels[number] = Some(Rect { x, width, ..rect });
                }
                SlotContent::Bend(_) => {}
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
}
