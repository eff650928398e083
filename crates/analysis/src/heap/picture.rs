//! A small part of the graph to draw: some objects with their referrers or referents, or the path from a root.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use super::PLAIN_DICT;
use super::labels;
use super::paths;
use super::view::Heap;

/// The role of a box in the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One of the requested objects.
    Start,
    Module,
    Frame,
    Other,
    /// The number of further objects that are not drawn.
    More(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Box {
    pub object: Option<u32>,
    pub role: Role,
    /// The number of steps from the start.
    pub row: u32,
    /// The number of neighbours that are too far away to be drawn.
    pub n_beyond: usize,
}

/// Boxes and arrows. An arrow goes from the referrer to the referent.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    pub boxes: Vec<Box>,
    pub arrows: Vec<(usize, usize, String)>,
    /// Whether rows lead to referents of the start instead of its referrers.
    pub is_forward: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct PictureLimits {
    pub depth: u32,
    /// Neighbours drawn for each box.
    pub too_many: usize,
    pub max_boxes: usize,
    /// Whether to draw referents instead of referrers.
    pub forward: bool,
}

impl Default for PictureLimits {
    fn default() -> Self {
        PictureLimits {
            depth: 4,
            too_many: 8,
            max_boxes: 200,
            forward: false,
        }
    }
}

/// The neighbourhood of some objects. The search for referrers ends at modules, because above them everything is connected.
pub fn surroundings(heap: &Heap, starts: &[u32], limits: PictureLimits) -> Picture {
    let mut picture = Picture {
        is_forward: limits.forward,
        ..Picture::default()
    };
    let mut positions: FxHashMap<u32, usize> = FxHashMap::default();
    let mut level: Vec<u32> = Vec::new();
    for &start in starts {
        if let Entry::Vacant(vacant) = positions.entry(start) {
            vacant.insert(picture.boxes.len());
            picture.boxes.push(Box {
                object: Some(start),
                role: Role::Start,
                row: 0,
                n_beyond: 0,
            });
            level.push(start);
        }
    }
    for row in 1..=limits.depth {
        let mut next = Vec::new();
        for &object in &level {
            let at = positions[&object];
            let neighbours = neighbours(heap, object, picture.boxes[at].role, limits.forward);
            let n_drawn = neighbours.len().min(limits.too_many);
            let mut n_hidden = neighbours.len() - n_drawn;
            for &neighbour in &neighbours[..n_drawn] {
                if let Entry::Vacant(vacant) = positions.entry(neighbour) {
                    if picture.boxes.len() >= limits.max_boxes {
                        n_hidden += 1;
                        continue;
                    }
                    vacant.insert(picture.boxes.len());
                    picture.boxes.push(Box {
                        object: Some(neighbour),
                        role: role_of(heap, neighbour),
                        row,
                        n_beyond: 0,
                    });
                    next.push(neighbour);
                }
                let (from, to) = if limits.forward {
                    (object, neighbour)
                } else {
                    (neighbour, object)
                };
                picture.connect(heap, &positions, from, to);
            }
            if n_hidden > 0 {
                let more = picture.boxes.len();
                picture.boxes.push(Box {
                    object: None,
                    role: Role::More(n_hidden),
                    row,
                    n_beyond: 0,
                });
                let ends = if limits.forward {
                    (at, more)
                } else {
                    (more, at)
                };
                picture.arrows.push((ends.0, ends.1, String::new()));
            }
        }
        level = next;
    }
    for &object in &level {
        let at = positions[&object];
        let neighbours = neighbours(heap, object, picture.boxes[at].role, limits.forward);
        let n_beyond = neighbours
            .iter()
            .filter(|neighbour| !picture.is_connected(at, positions.get(neighbour)))
            .count();
        picture.boxes[at].n_beyond = n_beyond;
    }
    picture.arrows.dedup();
    picture
}

/// The objects to continue with.
fn neighbours(heap: &Heap, object: u32, role: Role, forward: bool) -> Vec<u32> {
    if !forward && role == Role::Module {
        return Vec::new();
    }
    let mut neighbours = if forward {
        heap.graph.of(object).to_vec()
    } else {
        heap.referrers().of(object).to_vec()
    };
    neighbours.sort_unstable();
    neighbours.dedup();
    // Types are connected with everything, so they are not useful here.
    neighbours.retain(|one| !heap.type_names().contains_key(one));
    if !forward {
        // Modules first: the search ends at them, so the limit should omit other objects.
        neighbours.sort_by_key(|&one| role_of(heap, one) != Role::Module);
    }
    neighbours
}

/// The shortest path from a root to an object, one box below the other. In a long path, one box replaces the objects in
/// the middle and shows their number.
pub fn path(heap: &Heap, object: u32) -> Picture {
    let mut picture = Picture::default();
    let Some(path) = heap.distances().path_to(object) else {
        return picture;
    };
    let hidden = paths::hidden(&path);
    let (first, last) = (&path[..hidden.start], &path[hidden.end..]);
    let n_boxes = first.len() + last.len() + usize::from(!hidden.is_empty());
    let mut positions: FxHashMap<u32, usize> = FxHashMap::default();
    let below = |at: usize| (n_boxes - 1 - at) as u32;
    for (at, part) in [first, last].into_iter().enumerate() {
        if at == 1 && !hidden.is_empty() {
            let more = picture.boxes.len();
            picture.boxes.push(Box {
                object: None,
                role: Role::More(hidden.len()),
                row: below(more),
                n_beyond: 0,
            });
            picture.arrows.push((more - 1, more, String::new()));
            picture.arrows.push((more, more + 1, String::new()));
        }
        for &step in part {
            let position = picture.boxes.len();
            positions.insert(step, position);
            picture.boxes.push(Box {
                object: Some(step),
                role: if step == object {
                    Role::Start
                } else {
                    role_of(heap, step)
                },
                row: below(position),
                n_beyond: 0,
            });
        }
        for pair in part.windows(2) {
            picture.connect(heap, &positions, pair[0], pair[1]);
        }
    }
    picture
}

fn role_of(heap: &Heap, object: u32) -> Role {
    match heap.kind(object) {
        "module" => Role::Module,
        "types.FrameType" => Role::Frame,
        _ => Role::Other,
    }
}

impl Picture {
    fn connect(&mut self, heap: &Heap, positions: &FxHashMap<u32, usize>, from: u32, to: u32) {
        let references = heap.references_between(from, to);
        let text = match references.as_slice() {
            [] => String::new(),
            [one] => one.clone(),
            [one, rest @ ..] => format!("{one} and {} more", rest.len()),
        };
        if let (Some(&from), Some(&to)) = (positions.get(&from), positions.get(&to)) {
            let arrow = (from, to, text);
            if !self.arrows.contains(&arrow) {
                self.arrows.push(arrow);
            }
        }
    }

    /// Whether the arrow from one box to another exists.
    fn is_connected(&self, at: usize, other: Option<&usize>) -> bool {
        other.is_some_and(|&other| {
            let ends = if self.is_forward {
                (at, other)
            } else {
                (other, at)
            };
            let mut arrows = self.arrows.iter();
            arrows.any(|(from, to, _)| (*from, *to) == ends)
        })
    }

    /// The text lines of a box. `count` writes a number of objects.
    pub fn lines(&self, heap: &Heap, at: usize, count: fn(u64) -> String) -> Vec<String> {
        let one = &self.boxes[at];
        match (one.object, one.role) {
            (Some(object), _) => {
                // Most readers do not know heapy's name for a plain dict.
                let kind = match heap.kind(object) {
                    PLAIN_DICT => "dict",
                    kind => kind,
                };
                let mut lines = vec![kind.to_owned()];
                // Heapy writes a length as `*3`, which most readers do not know either.
                let sample = heap.sample(object);
                match sample.split_once('*') {
                    Some((address, n_items)) if address.starts_with("0x") => {
                        let noun = if n_items == "1" { "item" } else { "items" };
                        let n_items = n_items.parse().map_or(n_items.to_owned(), count);
                        lines.extend([address.to_owned(), format!("{n_items} {noun}")]);
                    }
                    _ => lines.push(sample),
                }
                if let Some(root) = heap.root_of(object) {
                    lines.push(labels::root(&heap.snapshot, root));
                }
                if one.n_beyond > 0 {
                    // Referrers are above.
                    let arrow = if self.is_forward { '↓' } else { '↑' };
                    lines.push(format!("{arrow} {} more", count(one.n_beyond as u64)));
                }
                lines
            }
            (None, Role::More(n)) => vec![format!("{} more", count(n as u64))],
            (None, _) => Vec::new(),
        }
    }
}
