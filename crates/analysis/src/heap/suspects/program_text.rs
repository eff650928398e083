//! The objects that are the program itself rather than its data. They have no weight in the search for suspects.

use heaptide_capture::heap::EdgeType;

use super::is_interned_table;
use crate::heap::dominators::TOP;
use crate::heap::graph::Bits;
use crate::heap::view::Heap;

/// Code, functions, types, modules and their dicts; the constants, names and docstrings of code; and the table of interned
/// strings.
pub(super) fn program_text(heap: &Heap) -> Bits {
    let is_text: Vec<bool> = (0..heap.kinds.len() as u32)
        .map(|kind| {
            matches!(
                heap.kinds.label(kind),
                "types.CodeType"
                    | "function"
                    | "module"
                    | "dict of module"
                    | "dict of type"
                    | "types.WrapperDescriptorType"
                    | "types.MethodDescriptorType"
                    | "types.ClassMethodDescriptorType"
                    | "types.GetSetDescriptorType"
                    | "types.MemberDescriptorType"
                    | "types.BuiltinMethodType"
            )
        })
        .collect();
    let mut text = Bits::new(heap.n_objects());
    let immediate = &heap.dominators().immediate;
    for &object in &heap.dominators().order {
        let dominator = immediate[object as usize];
        // Code dominates its constants. A function may dominate data: the variables of its closure.
        let of_code = dominator != TOP
            && text.contains(dominator)
            && (heap.kind(dominator) == "types.CodeType"
                || !is_text_kind(heap, dominator, &is_text));
        if is_text_kind(heap, object, &is_text) || of_code {
            text.insert(object);
        }
    }
    let roots = heap.roots.iter().copied();
    for table in roots.filter(|&root| is_interned_table(heap, root)) {
        text.insert(table);
    }
    for object in 0..heap.n_objects() as u32 {
        for (target, label) in heap.snapshot.edges.of(object) {
            let has_doc = matches!(label.edge_type(), EdgeType::Key | EdgeType::Internal)
                && heap.snapshot.names.get(label.number()) == "__doc__";
            if has_doc {
                text.insert(target);
            }
        }
    }
    text
}

fn is_text_kind(heap: &Heap, object: u32, is_text: &[bool]) -> bool {
    is_text[heap.kinds.of(object) as usize] || heap.type_names().contains_key(&object)
}
