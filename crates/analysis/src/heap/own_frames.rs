//! Objects of the Heaptide functions that took the snapshot: their arguments and variables, and all objects that only
//! these hold.
//!
//! These functions are the innermost frames of a thread. Functions of Heaptide that call the program are further out.
//! They do not count, because their arguments belong to the program. The functions are recognised by the namespaces of
//! Heaptide's modules. A command that takes the snapshot of a running process also runs a script without a module; its
//! functions have fixed names.

use heaptide_capture::heap::{EdgeType, RootCategory};

use super::graph::Bits;
use super::program_text::top_package;
use super::view::Heap;

/// The module that serves commands from outside, and the functions of the script that calls it, innermost first.
const ATTACHED: &str = "heaptide.attached";
const SCRIPT: [&str; 3] = ["act", "visit", "<module>"];

pub(super) fn objects(heap: &Heap) -> Bits {
    let mut waiting = variables(heap);
    let mut own = Bits::of(heap.n_objects(), waiting.iter().copied());
    if waiting.is_empty() {
        return own;
    }
    let referrers = heap.referrers();
    while let Some(object) = waiting.pop() {
        for &target in heap.graph.of(object) {
            let is_held_elsewhere = heap.root_of(target).is_some()
                || referrers.of(target).iter().any(|&it| !own.contains(it));
            if !is_held_elsewhere && own.insert(target) {
                waiting.push(target);
            }
        }
    }
    own
}

/// The variables and intermediate values of the functions.
fn variables(heap: &Heap) -> Vec<u32> {
    let names = &heap.snapshot.names;
    let own = namespaces(heap, |module| top_package(module) == "heaptide");
    let attached = namespaces(heap, |module| module == ATTACHED);
    let is_of = |function: u32, namespaces: &Bits| {
        let mut edges = heap.snapshot.edges.of(function);
        edges.any(|(target, _)| namespaces.contains(target))
    };
    let mut objects = Vec::new();
    // Frames come innermost first, and their functions before their variables.
    let (mut thread, mut frame, mut is_own, mut script) = ("", "", false, SCRIPT.iter().peekable());
    let mut is_attached = false;
    let roots = heap.snapshot.roots.iter();
    for root in roots.filter(|root| root.category == RootCategory::Frame) {
        let name = names.get(root.name);
        let is_variable = !frame.is_empty()
            && name
                .strip_prefix(frame)
                .is_some_and(|rest| rest.starts_with(['.', ' ']) && rest != " function");
        // In 3.10 a running frame is an object, which refers to its namespace and its variables.
        let is_frame_object = !is_variable && heap.snapshot.type_of(root.object).name == "frame";
        let of_function = name.strip_suffix(" function");
        if let Some(of_function) = of_function.or(is_frame_object.then_some(name)) {
            let (of_thread, function) = name_parts(of_function);
            if of_thread != thread {
                (thread, is_own, is_attached) = (of_thread, true, false);
                script = SCRIPT.iter().peekable();
            }
            frame = of_function;
            let is_of_script = is_attached && script.next_if(|&&it| it == function).is_some();
            is_own = is_own && (is_of_script || is_of(root.object, &own));
            is_attached |= is_own && is_of(root.object, &attached);
        }
        if is_own && (is_variable || is_frame_object) {
            objects.push(root.object);
        }
    }
    objects
}

/// `thread 2/act` as the thread and the function.
fn name_parts(frame: &str) -> (&str, &str) {
    frame.split_once('/').unwrap_or((frame, ""))
}

/// The namespaces of the modules that `is_wanted` accepts.
fn namespaces(heap: &Heap, is_wanted: impl Fn(&str) -> bool) -> Bits {
    let names = &heap.snapshot.names;
    let roots = heap.snapshot.roots.iter();
    let modules = roots
        .filter(|root| root.category == RootCategory::Module && is_wanted(names.get(root.name)));
    let namespaces = modules.flat_map(|root| {
        let edges = heap.snapshot.edges.of(root.object);
        edges
            .filter_map(|(target, label)| (label.edge_type() == EdgeType::DictOf).then_some(target))
    });
    Bits::of(heap.n_objects(), namespaces)
}
