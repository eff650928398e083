//! Assigns boxes, labels and bends of arrows to layers, and orders each layer.
//!
//! Boxes are in rows, labels in strips between them. An arrow has a slot in each layer between its ends: its label in one of
//! them, narrow bends in the others. A very wide row of boxes or labels is split into several.

use super::Arrow;

/// A box before it has coordinates.
#[derive(Clone, Debug)]
pub struct Size {
    pub width: f64,
    pub height: f64,
    pub row: i32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SlotContent {
    /// The number of the box.
    Box(usize),
    /// The label of the arrow with this number.
    Label(usize),
    /// A bend of the arrow with this number.
    Bend(usize),
}

#[derive(Clone, Debug)]
pub struct Slot {
    pub content: SlotContent,
    pub layer: usize,
    pub width: f64,
    pub height: f64,
    pub above: Vec<usize>,
    pub below: Vec<usize>,
}

/// Slots, their order in each layer, and the slots of each arrow, from its upper end to its lower end.
#[derive(Debug, Default)]
pub struct Layers {
    pub slots: Vec<Slot>,
    pub order: Vec<Vec<usize>>,
    pub routes: Vec<Vec<usize>>,
}

/// The gap between neighbours in a layer.
pub const GAP: f64 = 22.0;
pub const LABEL_GAP: f64 = 12.0;
pub const LABEL_HEIGHT: f64 = 16.0;
const BEND: f64 = 2.0;
/// The width of the turn of an arrow to a box of the same row.
const TURN: f64 = 28.0;
const N_SWEEPS: usize = 10;

/// The layers of connected boxes. `labels` are the widths of the arrows' labels, 0 for none; no arrow may end where it
/// begins.
pub fn layers(boxes: &[Size], arrows: &[Arrow], labels: &[f64], wide: f64) -> Layers {
    let rows = wrapped(boxes, arrows, wide);
    let mut row_of = vec![0; boxes.len()];
    for (row, members) in rows.iter().enumerate() {
        for &at in members {
            row_of[at] = row;
        }
    }
    let strips = label_strips(arrows, labels, &row_of, rows.len(), wide);
    // The layer of each row; its strips follow.
    let mut first_layer = Vec::with_capacity(rows.len());
    let mut n_layers = 0;
    for row in 0..rows.len() {
        first_layer.push(n_layers);
        n_layers += 1 + strips.n_of_row[row];
    }
    let mut all = Layers {
        slots: Vec::new(),
        order: vec![Vec::new(); n_layers],
        routes: Vec::new(),
    };
    for (at, size) in boxes.iter().enumerate() {
        all.slots.push(Slot {
            content: SlotContent::Box(at),
            layer: first_layer[row_of[at]],
            width: size.width,
            height: size.height,
            above: Vec::new(),
            below: Vec::new(),
        });
    }
    for (row, members) in rows.iter().enumerate() {
        all.order[first_layer[row]].clone_from(members);
    }
    for (number, arrow) in arrows.iter().enumerate() {
        let (row, strip) = strips.of_arrow[number];
        let label_layer = first_layer[row] + 1 + strip;
        all.connect(number, arrow, labels[number], label_layer);
    }
    all.uncross();
    all
}

/// The boxes of each row in an initial order. A row that is too wide is distributed over several rows, alternately, so that
/// boxes stay near the boxes they are connected with.
fn wrapped(boxes: &[Size], arrows: &[Arrow], wide: f64) -> Vec<Vec<usize>> {
    let mut numbers: Vec<i32> = boxes.iter().map(|size| size.row).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut plain = Layers {
        order: vec![Vec::new(); numbers.len()],
        ..Layers::default()
    };
    for (at, size) in boxes.iter().enumerate() {
        let layer = numbers.binary_search(&size.row).unwrap_or(0);
        plain.order[layer].push(at);
        plain.slots.push(Slot {
            content: SlotContent::Box(at),
            layer,
            width: size.width,
            height: size.height,
            above: Vec::new(),
            below: Vec::new(),
        });
    }
    for arrow in arrows {
        let (a, b) = (plain.slots[arrow.from].layer, plain.slots[arrow.to].layer);
        if a != b {
            let (high, low) = if a < b {
                (arrow.from, arrow.to)
            } else {
                (arrow.to, arrow.from)
            };
            plain.link(high, low);
        }
    }
    plain.uncross();
    let mut rows = Vec::new();
    for row in plain.order {
        let width: f64 = row.iter().map(|&at| boxes[at].width + GAP).sum();
        let n = ((width / wide).ceil() as usize).clamp(1, row.len().max(1));
        for part in 0..n {
            rows.push(row.iter().skip(part).step_by(n).copied().collect());
        }
    }
    rows
}

struct Strips {
    /// The number of strips below each row of boxes.
    n_of_row: Vec<usize>,
    /// The row above the label, and its strip below that row.
    of_arrow: Vec<(usize, usize)>,
}

/// Puts a label at the end of its arrow where fewer arrows meet, so that it is clear which arrow it belongs to.
fn label_strips(
    arrows: &[Arrow],
    labels: &[f64],
    row_of: &[usize],
    n_rows: usize,
    wide: f64,
) -> Strips {
    let ends = |arrow: &Arrow| {
        if row_of[arrow.from] <= row_of[arrow.to] {
            (arrow.from, arrow.to)
        } else {
            (arrow.to, arrow.from)
        }
    };
    let mut n_below = vec![0usize; row_of.len()];
    let mut n_above = vec![0usize; row_of.len()];
    for arrow in arrows {
        let (high, low) = ends(arrow);
        n_below[high] += 1;
        n_above[low] += 1;
    }
    let mut widths = vec![0.0f64; n_rows];
    // An arrow within a row turns back in the first strip below.
    let mut is_needed = vec![false; n_rows];
    let rows: Vec<usize> = arrows
        .iter()
        .zip(labels)
        .map(|(arrow, &width)| {
            let (high, low) = ends(arrow);
            let is_level = row_of[high] == row_of[low];
            let row = if is_level || n_below[high] <= n_above[low] {
                row_of[high]
            } else {
                row_of[low] - 1
            };
            if width > 0.0 {
                widths[row] += width + LABEL_GAP;
            }
            is_needed[row] |= is_level || width > 0.0;
            row
        })
        .collect();
    let n_of_row: Vec<usize> = (0..n_rows)
        .map(|row| ((widths[row] / wide).ceil() as usize).max(usize::from(is_needed[row])))
        .collect();
    let mut n_seen = vec![0usize; n_rows];
    let of_arrow = arrows
        .iter()
        .zip(&rows)
        .map(|(arrow, &row)| {
            if row_of[arrow.from] == row_of[arrow.to] {
                return (row, 0);
            }
            n_seen[row] += 1;
            (row, (n_seen[row] - 1) % n_of_row[row].max(1))
        })
        .collect();
    Strips { n_of_row, of_arrow }
}

impl Layers {
    fn link(&mut self, high: usize, low: usize) {
        self.slots[high].below.push(low);
        self.slots[low].above.push(high);
    }

    fn push(&mut self, content: SlotContent, layer: usize, width: f64, height: f64) -> usize {
        self.slots.push(Slot {
            content,
            layer,
            width,
            height,
            above: Vec::new(),
            below: Vec::new(),
        });
        self.order[layer].push(self.slots.len() - 1);
        self.slots.len() - 1
    }

    fn connect(&mut self, number: usize, arrow: &Arrow, label: f64, label_layer: usize) {
        let (a, b) = (self.slots[arrow.from].layer, self.slots[arrow.to].layer);
        if a == b {
            let content = if label > 0.0 {
                SlotContent::Label(number)
            } else {
                SlotContent::Bend(number)
            };
            let turn = self.push(content, label_layer, label.max(TURN), LABEL_HEIGHT);
            self.link(arrow.from, turn);
            self.link(arrow.to, turn);
            self.routes.push(vec![arrow.from, turn, arrow.to]);
            return;
        }
        let (high, low) = if a < b {
            (arrow.from, arrow.to)
        } else {
            (arrow.to, arrow.from)
        };
        let mut route = vec![high];
        for layer in a.min(b) + 1..a.max(b) {
            let slot = if layer == label_layer && label > 0.0 {
                self.push(SlotContent::Label(number), layer, label, LABEL_HEIGHT)
            } else {
                self.push(SlotContent::Bend(number), layer, BEND, 0.0)
            };
            self.link(route[route.len() - 1], slot);
            route.push(slot);
        }
        self.link(route[route.len() - 1], low);
        route.push(low);
        self.routes.push(route);
    }

    /// Orders each layer by the mean position of each slot's neighbours, alternately downwards and upwards, and keeps
    /// the order with the fewest crossings.
    fn uncross(&mut self) {
        let mut position = vec![0.0f64; self.slots.len()];
        for layer in &self.order {
            store_positions(layer, &mut position);
        }
        let mut best = self.order.clone();
        let mut fewest = self.n_crossings(&position);
        for sweep in 0..N_SWEEPS {
            if fewest == 0 {
                break;
            }
            let is_down = sweep % 2 == 0;
            for at in 0..self.order.len() {
                let layer = if is_down {
                    at
                } else {
                    self.order.len() - 1 - at
                };
                let mut wanted: Vec<(f64, usize)> = self.order[layer]
                    .iter()
                    .map(|&slot| {
                        let one = &self.slots[slot];
                        let near = if is_down { &one.above } else { &one.below };
                        let sum: f64 = near.iter().map(|&other| position[other]).sum();
                        let middle = if near.is_empty() {
                            position[slot]
                        } else {
                            sum / near.len() as f64
                        };
                        (middle, slot)
                    })
                    .collect();
                // The sort is stable: ties keep their order.
                wanted.sort_by(|a, b| a.0.total_cmp(&b.0));
                self.order[layer] = wanted.into_iter().map(|(_, slot)| slot).collect();
                store_positions(&self.order[layer], &mut position);
            }
            let n = self.n_crossings(&position);
            if n < fewest {
                fewest = n;
                best.clone_from(&self.order);
            }
        }
        self.order = best;
    }

    fn n_crossings(&self, position: &[f64]) -> usize {
        let mut n = 0;
        for layer in &self.order {
            let mut ends: Vec<f64> = Vec::new();
            for &slot in layer {
                let mut own: Vec<f64> = self.slots[slot]
                    .below
                    .iter()
                    .map(|&other| position[other])
                    .collect();
                own.sort_by(f64::total_cmp);
                for end in own {
                    // `ends` is sorted: arrows with larger ends began earlier, so this one crosses them.
                    let at = ends.partition_point(|&other| other <= end);
                    n += ends.len() - at;
                    ends.insert(at, end);
                }
            }
        }
        n
    }
}

/// Stores positions from 0 to 1 for any number of slots, so that layers are comparable.
fn store_positions(layer: &[usize], position: &mut [f64]) {
    for (at, &slot) in layer.iter().enumerate() {
        position[slot] = (at as f64 + 0.5) / layer.len() as f64;
    }
}
