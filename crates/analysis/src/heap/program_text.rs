//! Program text: objects of the program itself and of the interpreter, as opposed to data.
//!
//! Users cannot change these objects, so they have no weight in the search for suspects and are not waste. They are
//! code, functions, types, modules and their names, docstrings, the import system with its caches, the variables of
//! Heaptide's own modules and of the functions that took the snapshot, and the table of interned strings.

use heaptide_capture::heap::{EdgeType, Root, RootCategory};

use super::dominators::TOP;
use super::graph::Bits;
use super::own_frames;
use super::set::ObjectSet;
use super::view::Heap;

/// Modules whose instances belong to the import system.
const IMPORT_SYSTEM: [&str; 4] = [
    "_frozen_importlib",
    "_frozen_importlib_external",
    "importlib",
    "zipimport",
];

/// Attributes of `sys` that the import system fills.
const IMPORT_TABLES: [&str; 6] = [
    "path_importer_cache",
    "modules",
    "meta_path",
    "path_hooks",
    "stdlib_module_names",
    "builtin_module_names",
];

/// Attributes of modules, classes and functions that describe the program and hold no data.
const INTERPRETER_NAMES: [&str; 10] = [
    "__doc__",
    "__annotations__",
    "__all__",
    "__name__",
    "__qualname__",
    "__module__",
    "__package__",
    "__file__",
    "__cached__",
    "__path__",
];

/// Returns examples from a set of objects. Prefers data to program text, which includes Heaptide's own objects.
pub fn examples(heap: &Heap, objects: &ObjectSet, n_examples: usize) -> Vec<u32> {
    if objects.len() <= n_examples {
        return objects.iter().collect();
    }
    let text = ProgramText::new(heap);
    let data = objects.iter().filter(|&object| !text.contains(object));
    let rest = objects.iter().filter(|&object| text.contains(object));
    let mut examples: Vec<u32> = data.chain(rest).take(n_examples).collect();
    examples.sort_unstable();
    examples
}

pub(super) struct ProgramText {
    objects: Bits,
    classes: Bits,
}

impl ProgramText {
    pub(super) fn new(heap: &Heap) -> ProgramText {
        let kinds = 0..heap.kinds.len() as u32;
        let is_text: Vec<bool> = kinds
            .map(|kind| is_text_label(heap.kinds.label(kind)))
            .collect();
        let is_text_kind = |object: u32| {
            is_text[heap.kinds.of(object) as usize] || heap.type_names().contains_key(&object)
        };
        let all = 0..heap.n_objects() as u32;
        let classes = all.filter(|&object| has_mro(heap, object));
        let classes = Bits::of(heap.n_objects(), classes);
        let mut text = import_tables(heap);
        for object in 0..heap.n_objects() as u32 {
            if is_of_import_system(heap, object) || is_subclass_table(heap, object) {
                text.insert(object);
            }
        }
        let immediate = &heap.dominators().immediate;
        for &object in &heap.dominators().order {
            let dominator = immediate[object as usize];
            // Objects that program text dominates also belong to it, such as the constants of code. Functions and
            // classes are exceptions: their closures and attributes may hold data.
            let of_text = dominator != TOP
                && text.contains(dominator)
                && (heap.kind(dominator) == "types.CodeType"
                    || !(is_text_kind(dominator) || classes.contains(dominator)));
            if is_text_kind(object) || of_text || classes.contains(object) {
                text.insert(object);
            }
        }
        let roots = heap.roots.iter().copied();
        for table in roots.filter(|&root| is_interned_table(heap, root)) {
            text.insert(table);
        }
        for object in own_frames::objects(heap).iter() {
            text.insert(object);
        }
        for object in 0..heap.n_objects() as u32 {
            for (target, label) in heap.snapshot.edges.of(object) {
                let has_name = matches!(label.edge_type(), EdgeType::Key | EdgeType::Internal);
                if has_name && INTERPRETER_NAMES.contains(&heap.snapshot.names.get(label.number()))
                {
                    text.insert(target);
                }
            }
        }
        ProgramText {
            objects: text,
            classes,
        }
    }

    pub(super) fn contains(&self, object: u32) -> bool {
        self.objects.contains(object)
    }

    /// Whether the object is a class, possibly one without instances or with a metaclass.
    pub(super) fn is_class(&self, object: u32) -> bool {
        self.classes.contains(object)
    }
}

fn is_text_label(label: &str) -> bool {
    matches!(
        label,
        "types.CodeType"
            | "function"
            | "module"
            | "dict of module"
            | "dict of type"
            | "dict of function"
            | "classmethod"
            | "staticmethod"
            | "types.WrapperDescriptorType"
            | "types.MethodDescriptorType"
            | "types.ClassMethodDescriptorType"
            | "types.GetSetDescriptorType"
            | "types.MemberDescriptorType"
            | "types.BuiltinMethodType"
    )
}

/// The tables of `sys`, and the variables of the import system's and Heaptide's modules.
fn import_tables(heap: &Heap) -> Bits {
    let mut tables = Bits::new(heap.n_objects());
    let names = &heap.snapshot.names;
    let roots = heap.snapshot.roots.iter();
    for root in roots.filter(|root| root.category == RootCategory::Module) {
        let module = names.get(root.name);
        let is_whole = is_import_system(module) || top_package(module) == "heaptide";
        if module != "sys" && !is_whole {
            continue;
        }
        let namespaces = heap.snapshot.edges.of(root.object);
        let namespaces = namespaces.filter(|(_, label)| label.edge_type() == EdgeType::DictOf);
        for (namespace, _) in namespaces {
            for (target, label) in heap.snapshot.edges.of(namespace) {
                let is_key = label.edge_type() == EdgeType::Key;
                if is_key && (is_whole || IMPORT_TABLES.contains(&names.get(label.number()))) {
                    tables.insert(target);
                }
            }
        }
    }
    tables
}

pub(super) fn top_package(module: &str) -> &str {
    module.split('.').next().unwrap_or(module)
}

fn is_import_system(module: &str) -> bool {
    IMPORT_SYSTEM.contains(&top_package(module))
}

fn is_of_import_system(heap: &Heap, object: u32) -> bool {
    is_import_system(heap.snapshot.type_of(object).module.as_str())
}

/// Whether this is the interpreter's list of a static type's subclasses: a dict of weak references that only C code holds.
fn is_subclass_table(heap: &Heap, object: u32) -> bool {
    let root = heap.root_of(object);
    let is_of_c = root.is_some_and(|root| root.category == RootCategory::C);
    if !is_of_c || !heap.kind(object).starts_with("dict") {
        return false;
    }
    let is_reference = |item: &u32| heap.kind(*item) == "weakref.ReferenceType";
    let items = heap.graph.of(object);
    items.iter().any(is_reference)
        && items
            .iter()
            .all(|item| is_reference(item) || heap.kind(*item) == "int")
}

/// Only classes have this attribute.
fn has_mro(heap: &Heap, object: u32) -> bool {
    heap.snapshot.edges.of(object).any(|(_, label)| {
        label.edge_type() == EdgeType::Internal
            && heap.snapshot.names.get(label.number()) == "__mro__"
    })
}

pub(super) fn is_interned_table(heap: &Heap, object: u32) -> bool {
    let root = heap.root_of(object);
    root.is_some_and(|root| {
        root.category == RootCategory::Interpreter
            && heap.snapshot.names.get(root.name) == Root::INTERNED_STRINGS
    })
}
