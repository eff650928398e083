//! A heap snapshot built by hand: objects and references may be added in any order.

use std::collections::HashMap;

use heaptide_capture::heap::{
    EdgeType, HeapHeader, HeapSnapshot, Label, NO_OBJECT, Objects, Root, RootCategory, TypeInfo,
    Value,
};

/// The number of an added object. [`HeapBuilder::finish`] renumbers objects unless they were added in the order of their
/// addresses, as [`HeapBuilder::object`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Added(pub u32);

#[derive(Default)]
pub struct HeapBuilder {
    snapshot: HeapSnapshot,
    /// By object, in the order of adding.
    edges: Vec<Vec<(u32, Label)>>,
    types: HashMap<String, u32>,
    names: HashMap<String, u32>,
}

impl HeapBuilder {
    pub fn new() -> HeapBuilder {
        HeapBuilder::default()
    }

    pub fn header(&mut self) -> &mut HeapHeader {
        &mut self.snapshot.header
    }

    /// Returns the number of a name; adds it if it is new.
    pub fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        if let Some(&number) = self.names.get(name) {
            return number;
        }
        let number = self.snapshot.names.push(name);
        self.names.insert(name.to_owned(), number);
        number
    }

    /// Returns the number of a type by its full name (`module.name`, or a builtin's name); adds it if it is new.
    pub fn type_number(&mut self, full_name: &str) -> u32 {
        if let Some(&number) = self.types.get(full_name) {
            return number;
        }
        let (module, name) = full_name
            .rsplit_once('.')
            .unwrap_or(("builtins", full_name));
        let number = self.snapshot.types.len() as u32;
        self.snapshot.types.push(TypeInfo {
            name: name.to_owned(),
            module: module.to_owned(),
            address: 0,
            object: NO_OBJECT,
            flags: TypeInfo::COLLECTED,
        });
        self.types.insert(full_name.to_owned(), number);
        number
    }

    /// Adds an object at a higher address than all others so far.
    pub fn object(&mut self, full_type_name: &str, size: u64) -> Added {
        let last = self.snapshot.objects.addresses.iter().max();
        let address = last.map_or(0x1000, |last| last + 16);
        self.object_at(address, full_type_name, size)
    }

    /// Adds an object at an address that no other object has.
    pub fn object_at(&mut self, address: u64, full_type_name: &str, size: u64) -> Added {
        let number = self.type_number(full_type_name);
        let objects = &mut self.snapshot.objects;
        objects.addresses.push(address);
        objects.types.push(number);
        objects.sizes.push(size);
        objects.extras.push(0);
        objects.flags.push(Objects::TRACKED);
        self.edges.push(Vec::new());
        Added(self.edges.len() as u32 - 1)
    }

    /// Sets the bytes of an object outside its own block.
    pub fn extra(&mut self, object: Added, bytes: u64) {
        if let Some(slot) = self.snapshot.objects.extras.get_mut(object.0 as usize) {
            *slot = bytes;
        }
    }

    /// Replaces the flags of an object.
    pub fn flags(&mut self, object: Added, flags: u8) {
        if let Some(slot) = self.snapshot.objects.flags.get_mut(object.0 as usize) {
            *slot = flags;
        }
    }

    /// Adds a reference of an edge type that has a name.
    pub fn named(&mut self, from: Added, to: Added, edge_type: EdgeType, name: &str) {
        let number = self.name(name);
        self.edge(from, to, Label::new(edge_type, number));
    }

    /// Adds a reference of an edge type that has a position, or neither name nor position.
    pub fn edge(&mut self, from: Added, to: Added, label: Label) {
        if let Some(edges) = self.edges.get_mut(from.0 as usize) {
            edges.push((to.0, label));
        }
    }

    pub fn root(&mut self, category: RootCategory, name: &str, object: Added) {
        let name = self.name(name);
        self.snapshot.roots.push(Root {
            category,
            name,
            object: object.0,
        });
    }

    pub fn value(&mut self, object: Added, text: &str) {
        self.snapshot.values.push(Value {
            object: object.0,
            text: text.to_owned(),
        });
    }

    /// Returns the snapshot, with objects in the order of their addresses.
    pub fn finish(self) -> HeapSnapshot {
        let HeapBuilder {
            mut snapshot,
            edges,
            ..
        } = self;
        let objects = &snapshot.objects;
        let mut order: Vec<u32> = (0..objects.len() as u32).collect();
        order.sort_by_key(|at| objects.addresses[*at as usize]);
        let mut number_of = vec![NO_OBJECT; order.len()];
        for (number, at) in order.iter().enumerate() {
            number_of[*at as usize] = number as u32;
        }
        let moved = |object: u32| number_of.get(object as usize).copied().unwrap_or(NO_OBJECT);
        snapshot.objects = Objects {
            addresses: in_order(&order, &objects.addresses),
            types: in_order(&order, &objects.types),
            sizes: in_order(&order, &objects.sizes),
            extras: in_order(&order, &objects.extras),
            flags: in_order(&order, &objects.flags),
        };
        for at in &order {
            for (target, label) in &edges[*at as usize] {
                snapshot.edges.targets.push(moved(*target));
                snapshot.edges.labels.push(*label);
            }
            let end = snapshot.edges.targets.len() as u32;
            snapshot.edges.starts.push(end);
        }
        for root in &mut snapshot.roots {
            root.object = moved(root.object);
        }
        for value in &mut snapshot.values {
            value.object = moved(value.object);
        }
        snapshot.values.sort_by_key(|value| value.object);
        snapshot
    }
}

fn in_order<T: Copy>(order: &[u32], column: &[T]) -> Vec<T> {
    order.iter().map(|at| column[*at as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finish_sorts_objects_by_address_and_keeps_their_references() {
        let mut builder = HeapBuilder::new();
        let value = builder.object_at(300, "int", 28);
        let owner = builder.object_at(100, "shop.Order", 48);
        let dict = builder.object_at(200, "dict", 64);
        builder.edge(owner, dict, Label::new(EdgeType::DictOf, 0));
        builder.named(dict, value, EdgeType::Key, "price");
        builder.root(RootCategory::Module, "shop", owner);
        builder.value(value, "17");
        let snapshot = builder.finish();
        assert_eq!(snapshot.objects.addresses, [100, 200, 300]);
        assert_eq!(snapshot.type_of(0).full_name(), "shop.Order");
        assert_eq!(snapshot.type_of(2).full_name(), "int");
        assert_eq!(snapshot.dict_owners(), [NO_OBJECT, 0, NO_OBJECT]);
        let (target, label) = snapshot.edges.of(1).next().unwrap();
        assert_eq!((target, snapshot.names.get(label.number())), (2, "price"));
        assert_eq!(snapshot.roots[0].object, 0);
        assert_eq!(snapshot.value_of(2), Some("17"));
        assert_eq!(snapshot.objects.find(200), Some(1));
    }
}
