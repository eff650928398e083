//! Heap snapshots that several tests share.

use heaptide_capture::heap::{EdgeType, Label, RootCategory};

use crate::{Added, HeapBuilder};

/// A module `job` with a cache of two orders, each with a price in its `__dict__`; the first order is also in a set.
pub fn shop() -> HeapBuilder {
    let mut heap = HeapBuilder::new();
    heap.header().pid = 7;
    let module = heap.object("module", 72);
    let namespace = heap.object("dict", 200);
    heap.edge(module, namespace, Label::new(EdgeType::DictOf, 0));
    heap.root(RootCategory::Module, "job", module);
    let cache = heap.object("dict", 400);
    heap.named(namespace, cache, EdgeType::Key, "cache");
    let open = heap.object("set", 216);
    heap.named(namespace, open, EdgeType::Key, "open");
    for (at, key) in ["a", "b"].into_iter().enumerate() {
        let order = order(&mut heap, cache, key);
        if at == 0 {
            heap.edge(open, order, Label::new(EdgeType::Element, 0));
        }
    }
    heap
}

fn order(heap: &mut HeapBuilder, cache: Added, key: &str) -> Added {
    let order = heap.object("shop.Order", 48);
    heap.named(cache, order, EdgeType::Key, key);
    let own = heap.object("dict", 64);
    heap.edge(order, own, Label::new(EdgeType::DictOf, 0));
    let price = heap.object("float", 24);
    heap.named(own, price, EdgeType::Key, "price");
    order
}
