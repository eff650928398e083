//! Assembles the result of a walk into a snapshot: objects in the order of their addresses, all references renumbered.
//! Needs no interpreter, so the program runs meanwhile.

use heaptide_capture::heap::{
    EdgeType, Edges, HeapHeader, HeapSnapshot, Label, NO_OBJECT, Objects, Root, Value,
};

use super::column::Column;
use super::output::Columns;
use super::renumber::Renumbering;
use super::walk::{WalkResult, Weak};

pub fn snapshot(walked: WalkResult, roots: Vec<Root>, header: HeapHeader) -> HeapSnapshot {
    let mut columns = walked.columns;
    let n_objects = columns.handles.len();
    let numbering = walked.numbering;
    // For each object, in the order of addresses, its position in the order of the walk.
    let mut walk_positions = vec![0_u32; n_objects];
    for (at, handle) in columns.handles.iter().enumerate() {
        if let Some(number) = walk_positions.get_mut(numbering.number(*handle) as usize) {
            *number = at as u32;
        }
    }
    columns.handles = Column::new();

    let values_bytes: Vec<u64> = walked
        .types
        .iter()
        .map(|entry| entry.values_bytes)
        .collect();
    let mut objects = Objects {
        addresses: numbering.addresses(n_objects),
        types: Vec::with_capacity(n_objects),
        sizes: Vec::with_capacity(n_objects),
        extras: Vec::with_capacity(n_objects),
        flags: Vec::with_capacity(n_objects),
    };
    for at in &walk_positions {
        let at = *at as usize;
        let (type_number, flags) = (columns.types[at], columns.flags[at]);
        objects.types.push(type_number);
        objects.flags.push(flags);
        objects.sizes.push(columns.size(at));
        objects.extras.push(if flags & Objects::INLINE_VALUES != 0 {
            columns.extra(at, values_bytes[type_number as usize])
        } else {
            0
        });
    }
    let edges = ordered_edges(
        &columns,
        &walk_positions,
        &numbering,
        &weak_edges(&walked.weak, &numbering),
    );
    let mut values: Vec<Value> = walked
        .previews
        .into_iter()
        .map(|(handle, text)| Value {
            object: numbering.number(handle),
            text,
        })
        .collect();
    values.sort_unstable_by_key(|value| value.object);
    let roots = roots.into_iter().map(|root| Root {
        object: numbering.number(root.object),
        ..root
    });
    let types = walked.types.into_iter().map(|entry| {
        let mut info = entry.info;
        info.object = numbering.find(info.address).unwrap_or(NO_OBJECT);
        info
    });
    HeapSnapshot {
        header,
        types: types.collect(),
        names: walked.names.names,
        roots: roots.collect(),
        objects,
        edges,
        values,
        stacks: None,
    }
}

/// Returns the weak references whose target is in the snapshot, sorted by the object that has them.
fn weak_edges(weak: &Column<Weak>, numbering: &Renumbering) -> Vec<(u32, u32)> {
    let mut weak: Vec<(u32, u32)> = weak
        .iter()
        .filter_map(|weak| Some((numbering.number(weak.from), numbering.find(weak.target)?)))
        .collect();
    weak.sort_unstable();
    weak
}

fn ordered_edges(
    columns: &Columns,
    walk_positions: &[u32],
    numbering: &Renumbering,
    weak: &[(u32, u32)],
) -> Edges {
    let n_edges = columns.targets.len() + weak.len();
    let mut edges = Edges {
        starts: Vec::with_capacity(walk_positions.len() + 1),
        targets: Vec::with_capacity(n_edges),
        labels: Vec::with_capacity(n_edges),
    };
    edges.starts.push(0);
    let mut weak = weak.iter().peekable();
    for (number, at) in walk_positions.iter().enumerate() {
        let references = columns.references(*at as usize);
        for target in &columns.targets[references.clone()] {
            edges.targets.push(numbering.number(*target));
        }
        for label in &columns.labels[references] {
            let label = Label::from_word(*label);
            edges
                .labels
                .push(label.unwrap_or(Label::new(EdgeType::Referent, 0)));
        }
        while let Some((_, target)) = weak.next_if(|(from, _)| *from as usize == number) {
            edges.targets.push(*target);
            edges.labels.push(Label::new(EdgeType::Weak, 0));
        }
        edges.starts.push(edges.targets.len() as u32);
    }
    edges
}
