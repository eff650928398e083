//! What was found becomes a snapshot: objects in the order of their addresses, and everything else renumbered. Needs no
//! interpreter, so the program goes on meanwhile.

use heaptide_capture::heap::{
    EdgeKind, Edges, HeapHeader, HeapSnapshot, Label, NO_OBJECT, Objects, Root, Value,
};

use super::walk::Walk;

/// Bytes of the columns that a walk fills for objects, and of the table that finds them.
pub fn walker_bytes(walk: &Walk) -> u64 {
    let columns = walk.addresses.bytes()
        + walk.type_column.bytes()
        + walk.sizes.bytes()
        + walk.flags.bytes()
        + walk.starts.bytes()
        + walk.table.bytes();
    columns as u64
}

pub fn snapshot(mut walk: Walk, roots: Vec<Root>, header: HeapHeader) -> HeapSnapshot {
    let n_objects = walk.addresses.len();
    let mut addresses = walk.addresses.to_vec();
    addresses.sort_unstable();
    // From the order of finding to the order of addresses, and back.
    let mut found = vec![0_u32; n_objects];
    let mut numbers = vec![0_u32; n_objects];
    for (number, address) in addresses.iter().enumerate() {
        if let Some(ahead) = addresses.get(number + 8) {
            walk.table.prefetch(*ahead);
        }
        let before = walk.table.find(&walk.addresses, *address).unwrap_or(0);
        found[number] = before;
        numbers[before as usize] = number as u32;
    }
    let table = std::mem::replace(
        &mut walk.table,
        match super::table::Table::new() {
            Some(table) => table,
            None => return HeapSnapshot::default(),
        },
    );
    let weak = weak_edges(&walk, &table);
    drop(table);

    let values_bytes: Vec<u64> = walk.types.iter().map(|entry| entry.values_bytes).collect();
    let mut objects = Objects {
        addresses,
        types: Vec::with_capacity(n_objects),
        sizes: Vec::with_capacity(n_objects),
        extras: Vec::with_capacity(n_objects),
        flags: Vec::with_capacity(n_objects),
    };
    for before in &found {
        let at = *before as usize;
        let (type_number, flags) = (walk.type_column[at], walk.flags[at]);
        objects.types.push(type_number);
        objects.flags.push(flags);
        objects.sizes.push(match walk.sizes[at] {
            u32::MAX => walk.large_sizes.get(before).copied().unwrap_or(0),
            size => u64::from(size),
        });
        objects.extras.push(if flags & Objects::INLINE_VALUES != 0 {
            values_bytes[type_number as usize]
        } else {
            0
        });
    }
    let edges = ordered_edges(&walk, &found, &numbers, &weak);
    let mut values: Vec<Value> = walk
        .values
        .take()
        .unwrap_or_default()
        .into_iter()
        .map(|(object, text)| Value {
            object: numbers[object as usize],
            text,
        })
        .collect();
    values.sort_unstable_by_key(|value| value.object);
    let roots = roots.into_iter().map(|root| Root {
        object: numbers[root.object as usize],
        ..root
    });
    let types = walk.types.into_iter().map(|entry| {
        let mut info = entry.info;
        info.object = objects.find(info.address).unwrap_or(NO_OBJECT);
        info
    });
    HeapSnapshot {
        header,
        types: types.collect(),
        names: walk.names.names,
        roots: roots.collect(),
        objects,
        edges,
        values,
        stacks: None,
    }
}

/// Weak references whose target is in the snapshot, sorted by who has them.
fn weak_edges(walk: &Walk, table: &super::table::Table) -> Vec<(u32, u32)> {
    let mut weak: Vec<(u32, u32)> = walk
        .weak
        .iter()
        .filter_map(|weak| Some((weak.from, table.find(&walk.addresses, weak.target)?)))
        .collect();
    weak.sort_unstable();
    weak
}

fn ordered_edges(walk: &Walk, found: &[u32], numbers: &[u32], weak: &[(u32, u32)]) -> Edges {
    let n_edges = walk.targets.len() + weak.len();
    let mut edges = Edges {
        starts: Vec::with_capacity(found.len() + 1),
        targets: Vec::with_capacity(n_edges),
        labels: Vec::with_capacity(n_edges),
    };
    edges.starts.push(0);
    for before in found {
        let at = *before as usize;
        let start = walk.starts[at] as usize;
        let next = walk.starts.get(at + 1);
        let end = next.map_or(walk.targets.len(), |end| *end as usize);
        for place in start..end {
            edges.targets.push(numbers[walk.targets[place] as usize]);
            let label = Label::from_word(walk.labels[place]);
            edges
                .labels
                .push(label.unwrap_or(Label::new(EdgeKind::Referent, 0)));
        }
        let first = weak.partition_point(|(from, _)| from < before);
        for (from, target) in &weak[first..] {
            if from != before {
                break;
            }
            edges.targets.push(numbers[*target as usize]);
            edges.labels.push(Label::new(EdgeKind::Weak, 0));
        }
        edges.starts.push(edges.targets.len() as u32);
    }
    edges
}
