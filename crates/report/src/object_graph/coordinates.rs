//! Coordinates of slots: near their neighbours, in the order of their layer, with a minimum distance.

use super::layers::{GAP, LABEL_GAP, Layers, Slot, SlotContent};

/// The gaps between two lines, and between a line and a box.
const LINE_GAP: f64 = 8.0;
const BOX_LINE_GAP: f64 = 12.0;
/// The gap between layers. It is larger if arrows go far to the side, because flat arrows are hard to distinguish.
const LAYER_GAP: f64 = 16.0;
const MAX_SLOPE: f64 = 9.0;
const MAX_EXTRA: f64 = 110.0;
/// The length of the vertical part of an arrow at a box.
pub const STRAIGHT: f64 = 10.0;
const N_SWEEPS: usize = 14;
/// The factor by which the picture is wider than its widest layer requires. More room makes lines straighter.
const ROOM: f64 = 1.1;

/// The horizontal centre of each slot, and the top and bottom of each layer.
pub struct Coordinates {
    pub x: Vec<f64>,
    pub layers: Vec<(f64, f64)>,
    pub width: f64,
    pub height: f64,
}

pub fn coordinates(layers: &Layers) -> Coordinates {
    let mut x = vec![0.0; layers.slots.len()];
    let room = ROOM
        * layers
            .order
            .iter()
            .map(|order| packed(&layers.slots, order))
            .fold(0.0, f64::max);
    for order in &layers.order {
        let wanted = vec![(room / 2.0, 1.0); order.len()];
        settle(&layers.slots, order, &wanted, room, &mut x);
    }
    for sweep in 0..N_SWEEPS {
        for at in 0..layers.order.len() {
            let layer = if sweep % 2 == 0 {
                at
            } else {
                layers.order.len() - 1 - at
            };
            let order = &layers.order[layer];
            let wanted: Vec<(f64, f64)> = order
                .iter()
                .map(|&slot| preferred(&layers.slots, slot, sweep, &x))
                .collect();
            settle(&layers.slots, order, &wanted, room, &mut x);
        }
    }
    let edge = |sign: f64| {
        let ends = layers.slots.iter().zip(&x);
        ends.map(|(slot, x)| sign * x + slot.width / 2.0)
            .fold(f64::NEG_INFINITY, f64::max)
    };
    let (left, right) = (-edge(-1.0), edge(1.0));
    for one in &mut x {
        *one -= left;
    }
    let (spans, height) = heights(layers, &x);
    Coordinates {
        x,
        layers: spans,
        width: right - left,
        height,
    }
}

/// The preferred position of a slot and its weight: straight lines weigh more than centred boxes.
fn preferred(slots: &[Slot], at: usize, sweep: usize, x: &[f64]) -> (f64, f64) {
    let slot = &slots[at];
    let is_last = sweep + 2 >= N_SWEEPS;
    let (above, below) = if is_last {
        (true, true)
    } else {
        (sweep % 2 == 0, sweep % 2 == 1)
    };
    let near = slot
        .above
        .iter()
        .filter(|_| above)
        .chain(slot.below.iter().filter(|_| below));
    let is_line = |slot: &Slot| !matches!(slot.content, SlotContent::Box(_));
    let (mut sum, mut weight) = (0.0, 0.0);
    for &other in near {
        let pull = match (is_line(slot), is_line(&slots[other])) {
            (true, true) => 8.0,
            (false, false) => 1.0,
            _ => 2.0,
        };
        sum += pull * x[other];
        weight += pull;
    }
    if weight == 0.0 {
        (x[at], 0.5)
    } else {
        (sum / weight, weight)
    }
}

/// Finds the positions nearest to the preferred ones (least squares) that keep order and distance. Neighbours that would be
/// too close form one block, at the mean of its members' preferred positions. All stay between 0 and `room`, which is wide
/// enough.
fn settle(slots: &[Slot], order: &[usize], wanted: &[(f64, f64)], room: f64, x: &mut [f64]) {
    let (Some(first), Some(last)) = (order.first(), order.last()) else {
        return;
    };
    let mut offsets = Vec::with_capacity(order.len());
    let mut offset = 0.0;
    for (at, &slot) in order.iter().enumerate() {
        if at > 0 {
            offset += distance(&slots[order[at - 1]], &slots[slot]);
        }
        offsets.push(offset);
    }
    let least = slots[*first].width / 2.0;
    let most = (room - slots[*last].width / 2.0 - offset).max(least);
    // The weighted sum of preferred positions, the weight and the number of members of each block.
    let mut blocks: Vec<(f64, f64, usize)> = Vec::new();
    for (&(position, weight), offset) in wanted.iter().zip(&offsets) {
        let mut block = ((position - offset) * weight, weight, 1);
        while let Some(&last) = blocks.last() {
            if last.0 / last.1 < block.0 / block.1 {
                break;
            }
            block = (last.0 + block.0, last.1 + block.1, last.2 + block.2);
            blocks.pop();
        }
        blocks.push(block);
    }
    let mut members = order.iter().zip(&offsets);
    for (sum, weight, n) in blocks {
        for (&slot, offset) in members.by_ref().take(n) {
            x[slot] = (sum / weight).clamp(least, most) + offset;
        }
    }
}

/// The smallest width of a layer.
fn packed(slots: &[Slot], order: &[usize]) -> f64 {
    let (Some(first), Some(last)) = (order.first(), order.last()) else {
        return 0.0;
    };
    let between: f64 = order
        .windows(2)
        .map(|pair| distance(&slots[pair[0]], &slots[pair[1]]))
        .sum();
    between + (slots[*first].width + slots[*last].width) / 2.0
}

fn distance(a: &Slot, b: &Slot) -> f64 {
    let gap = match (a.content, b.content) {
        (SlotContent::Box(_), SlotContent::Box(_)) => GAP,
        (SlotContent::Bend(_), SlotContent::Bend(_)) => LINE_GAP,
        (SlotContent::Label(_), _) | (_, SlotContent::Label(_)) => LABEL_GAP,
        _ => BOX_LINE_GAP,
    };
    (a.width + b.width) / 2.0 + gap
}

fn heights(layers: &Layers, x: &[f64]) -> (Vec<(f64, f64)>, f64) {
    let mut spans = Vec::with_capacity(layers.order.len());
    let mut y = 0.0;
    for order in &layers.order {
        let tallest = order
            .iter()
            .map(|&slot| {
                let room = match layers.slots[slot].content {
                    SlotContent::Box(_) => 2.0 * STRAIGHT,
                    _ => 0.0,
                };
                layers.slots[slot].height + room
            })
            .fold(0.0, f64::max);
        let farthest = order
            .iter()
            .flat_map(|&slot| {
                let below = layers.slots[slot].below.iter();
                below.map(move |&other| (x[other] - x[slot]).abs())
            })
            .fold(0.0, f64::max);
        spans.push((y, y + tallest));
        y += tallest + LAYER_GAP + (farthest / MAX_SLOPE).min(MAX_EXTRA);
    }
    let bottom = spans.last().map_or(0.0, |&(_, bottom)| bottom);
    (spans, bottom)
}
