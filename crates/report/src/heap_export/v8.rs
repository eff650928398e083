//! Heap snapshots in V8's format, for Chrome DevTools, memlab and similar tools.
//!
//! Nodes and references are plain numbers in the order that the loader of DevTools expects; texts come last. Sizes have 32
//! bits, so a larger object gets additional nodes for its memory. IDs of objects are odd and derived from addresses, so
//! that two snapshots of one process can be compared.

use std::io::{self, Write};

use heaptide_analysis::heap::Heap;
use heaptide_analysis::heap::dominators::TOP;
use heaptide_analysis::interner::Interner;
use heaptide_capture::heap::{EdgeType, Label, RootCategory};
use rustc_hash::{FxHashMap, FxHashSet};

use super::traces::Traces;
use crate::json::write_text;

const NODE_FIELDS: usize = 7;
/// Node types: positions in the list of the header.
const STRING: u32 = 2;
const OBJECT: u32 = 3;
const CODE: u32 = 4;
const CLOSURE: u32 = 5;
const NUMBER: u32 = 7;
const NATIVE: u32 = 8;
const SYNTHETIC: u32 = 9;
/// Edge types.
const CONTEXT: u32 = 0;
const ELEMENT: u32 = 1;
const PROPERTY: u32 = 2;
const INTERNAL: u32 = 3;
const HIDDEN: u32 = 4;
const WEAK: u32 = 6;

const META: &str = r#""meta":{"node_fields":["type","name","id","self_size","edge_count","trace_node_id","detachedness"],"node_types":[["hidden","array","string","object","code","closure","regexp","number","native","synthetic","concatenated string","sliced string","symbol","bigint","object shape"],"string","number","number","number","number","number"],"edge_fields":["type","name_or_index","to_node"],"edge_types":[["context","element","property","internal","hidden","shortcut","weak"],"string_or_number","node"],"trace_function_info_fields":["function_id","name","script_name","script_id","line","column"],"trace_node_fields":["id","function_info_index","count","size","children"],"sample_fields":["timestamp_us","last_assigned_id"],"location_fields":["object_index","script_id","line","column"]}"#;

/// The groups below the root node, in the order of [`root_group`]; garbage comes last.
const GROUPS: [&str; 7] = [
    "(interpreter)",
    "(modules)",
    "(built-in types)",
    "(variables of running functions)",
    "(threads)",
    "(held by C code)",
    "(garbage)",
];
/// The number of nodes that are not objects: the root node, the node of all roots, and the groups.
const N_SYNTHETIC: u32 = 2 + GROUPS.len() as u32;

/// Writes the snapshot.
pub fn heapsnapshot(out: &mut dyn Write, heap: &Heap) -> io::Result<()> {
    let mut export = Export::new(heap);
    let nodes = export.nodes();
    let n_edges: usize =
        nodes.iter().map(|node| node.edges.len()).sum::<usize>() + export.n_object_edges();
    let traces = Traces::new(heap, &mut export.texts);
    write!(
        out,
        "{{\"snapshot\":{{{META},\"node_count\":{},\"edge_count\":{n_edges},\"trace_function_count\":{}}},\n\"nodes\":[",
        nodes.len() + export.n_object_nodes(),
        traces.n_functions()
    )?;
    export.write_nodes(out, &nodes, &traces)?;
    out.write_all(b"],\n\"edges\":[")?;
    export.write_edges(out, &nodes)?;
    out.write_all(b"],\n\"trace_function_infos\":[")?;
    traces.write_functions(out)?;
    out.write_all(b"],\n\"trace_tree\":[")?;
    traces.write_tree(out)?;
    out.write_all(b"],\n\"samples\":[],\n\"locations\":[],\n\"strings\":[")?;
    for (at, text) in export.texts.values.iter().enumerate() {
        if at > 0 {
            out.write_all(b",\n")?;
        }
        write_text(out, text)?;
    }
    out.write_all(b"]}\n")
}

/// A node that is not an object: the root, a group.
struct Synthetic {
    name: u32,
    edges: Vec<(u32, u32, u32)>,
}

struct Export<'a> {
    heap: &'a Heap,
    texts: Interner<String>,
    /// Text numbers of kinds, of reference names, of `weak` and of `memory`.
    kind_texts: Vec<u32>,
    name_texts: Vec<u32>,
    weak: u32,
    memory: u32,
    ids: Vec<u32>,
    /// Objects whose size needs additional nodes, and their number.
    large: FxHashMap<u32, u64>,
}

impl<'a> Export<'a> {
    fn new(heap: &'a Heap) -> Export<'a> {
        let mut texts = Interner::default();
        texts.number_of("");
        let kinds = 0..heap.kinds.len() as u32;
        let kind_texts = kinds
            .map(|kind| texts.number_of(heap.kinds.label(kind)))
            .collect();
        let names = heap.snapshot.names.iter();
        let name_texts = names.map(|name| texts.number_of(name)).collect();
        let objects = 0..heap.n_objects() as u32;
        let large = objects.filter_map(|object| {
            let extra = heap.bytes(object) - own_bytes(heap, object);
            let n_nodes = extra.div_ceil(u64::from(u32::MAX));
            (n_nodes > 0).then_some((object, n_nodes))
        });
        Export {
            heap,
            weak: texts.number_of("weak"),
            memory: texts.number_of("memory"),
            kind_texts,
            name_texts,
            ids: ids(&heap.snapshot.objects.addresses),
            large: large.collect(),
            texts,
        }
    }

    fn n_extra(&self) -> usize {
        self.large.values().sum::<u64>() as usize
    }

    fn n_object_nodes(&self) -> usize {
        self.heap.n_objects() + self.n_extra()
    }

    fn n_object_edges(&self) -> usize {
        self.heap.snapshot.edges.len() + self.n_extra()
    }

    /// The position of a node, as edges refer to it.
    fn position(node: u32) -> u64 {
        u64::from(node) * NODE_FIELDS as u64
    }

    /// The root node and the groups below it.
    fn nodes(&mut self) -> Vec<Synthetic> {
        let mut groups: Vec<Synthetic> = GROUPS
            .iter()
            .map(|name| Synthetic {
                name: self.texts.number_of(*name),
                edges: Vec::new(),
            })
            .collect();
        let mut seen = FxHashSet::default();
        for root in &self.heap.snapshot.roots {
            let group = root_group(root.category);
            if seen.insert((group, root.object)) {
                let name = self.name_texts.get(root.name as usize).copied();
                let edge = (PROPERTY, name.unwrap_or(0), N_SYNTHETIC + root.object);
                groups[group].edges.push(edge);
            }
        }
        let tree = self.heap.dominators();
        for object in 0..self.heap.n_objects() as u32 {
            if tree.immediate[object as usize] == TOP && !tree.reachable.contains(object) {
                let garbage = &mut groups[GROUPS.len() - 1].edges;
                garbage.push((ELEMENT, garbage.len() as u32, N_SYNTHETIC + object));
            }
        }
        let below = (0..GROUPS.len() as u32).map(|at| (ELEMENT, at, 2 + at));
        let roots = Synthetic {
            name: self.texts.number_of("(GC roots)"),
            edges: below.collect(),
        };
        let top = Synthetic {
            name: self.texts.number_of(""),
            edges: vec![(ELEMENT, 0, 1)],
        };
        let mut nodes = vec![top, roots];
        nodes.append(&mut groups);
        nodes
    }

    fn write_nodes(
        &mut self,
        out: &mut dyn Write,
        nodes: &[Synthetic],
        traces: &Traces,
    ) -> io::Result<()> {
        for (at, node) in nodes.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            // Nodes that are not objects have the smallest odd IDs; the IDs of objects begin above them.
            let id = 2 * at + 1;
            let n_edges = node.edges.len();
            writeln!(out, "{comma}{SYNTHETIC},{},{id},0,{n_edges},0,0", node.name)?;
        }
        let mut extra = Vec::new();
        for object in 0..self.heap.n_objects() as u32 {
            let name = self.node_name(object);
            let n_nodes = self.large.get(&object).copied().unwrap_or(0);
            let n_edges = self.heap.snapshot.edges.targets_of(object).len() as u64 + n_nodes;
            let own = own_bytes(self.heap, object);
            writeln!(
                out,
                ",{},{name},{},{own},{n_edges},{},0",
                node_type(self.heap, object),
                self.ids[object as usize],
                traces.node_of(object)
            )?;
            let mut rest = self.heap.bytes(object) - own;
            for _ in 0..n_nodes {
                let part = rest.min(u64::from(u32::MAX));
                rest -= part;
                extra.push(part);
            }
        }
        // Nodes of extra memory have even IDs; objects have odd IDs.
        for (at, part) in extra.iter().enumerate() {
            let id = 2 * (at + 1);
            writeln!(out, ",{NATIVE},{},{id},{part},0,0,0", self.memory)?;
        }
        Ok(())
    }

    /// The name of a node: the stored value of the object, or else its kind, followed by its own name if it has one.
    fn node_name(&mut self, object: u32) -> u32 {
        let heap = self.heap;
        let kind = heap.kinds.of(object);
        match heap.snapshot.value_of(object) {
            Some(value) => self.texts.number_of(value),
            None => match heap.own_name(object) {
                Some(name) => self
                    .texts
                    .number_of(&format!("{} {name}", heap.kinds.label(kind))),
                None => self.kind_texts[kind as usize],
            },
        }
    }

    fn write_edges(&self, out: &mut dyn Write, nodes: &[Synthetic]) -> io::Result<()> {
        let mut comma = "";
        for &(edge_type, name, node) in nodes.iter().flat_map(|node| &node.edges) {
            writeln!(out, "{comma}{edge_type},{name},{}", Export::position(node))?;
            comma = ",";
        }
        let mut next_extra = N_SYNTHETIC + self.heap.n_objects() as u32;
        for object in 0..self.heap.n_objects() as u32 {
            for (target, label) in self.heap.snapshot.edges.of(object) {
                let (edge_type, name) = if self.heap.only_runs_in(object, target) {
                    (WEAK, self.weak)
                } else {
                    self.edge(label)
                };
                let position = Export::position(N_SYNTHETIC + target);
                writeln!(out, "{comma}{edge_type},{name},{position}")?;
                comma = ",";
            }
            for _ in 0..self.large.get(&object).copied().unwrap_or(0) {
                let position = Export::position(next_extra);
                writeln!(out, "{comma}{INTERNAL},{},{position}", self.memory)?;
                comma = ",";
                next_extra += 1;
            }
        }
        Ok(())
    }

    fn edge(&self, label: Label) -> (u32, u32) {
        let number = label.number();
        let name = self.name_texts.get(number as usize).copied().unwrap_or(0);
        match label.edge_type() {
            EdgeType::Attribute | EdgeType::Slot | EdgeType::Key => (PROPERTY, name),
            EdgeType::Cell | EdgeType::Local => (CONTEXT, name),
            EdgeType::Internal => (INTERNAL, name),
            EdgeType::Index | EdgeType::Element | EdgeType::NumberKey | EdgeType::Item => {
                (ELEMENT, number)
            }
            EdgeType::Weak => (WEAK, self.weak),
            EdgeType::Referent
            | EdgeType::KeyOf
            | EdgeType::Stack
            | EdgeType::DictOf
            | EdgeType::Type => (HIDDEN, number),
        }
    }
}

fn root_group(category: RootCategory) -> usize {
    match category {
        RootCategory::Interpreter => 0,
        RootCategory::Module => 1,
        RootCategory::Type => 2,
        RootCategory::Frame => 3,
        RootCategory::Thread => 4,
        RootCategory::C => 5,
    }
}

/// The size in the object's own node; the rest is in additional nodes.
fn own_bytes(heap: &Heap, object: u32) -> u64 {
    heap.snapshot.objects.sizes[object as usize].min(u64::from(u32::MAX))
}

fn node_type(heap: &Heap, object: u32) -> u32 {
    let one = heap.snapshot.type_of(object);
    match (one.module.as_str(), one.name.as_str()) {
        ("builtins", "str") => STRING,
        ("builtins", "int" | "float" | "complex" | "bool") => NUMBER,
        ("builtins", "code") => CODE,
        ("builtins", "function" | "builtin_function_or_method" | "method") => CLOSURE,
        ("builtins", "bytes" | "bytearray" | "memoryview")
        | ("numpy", "ndarray")
        | ("array", "array") => NATIVE,
        _ => OBJECT,
    }
}

/// Odd 32-bit numbers derived from addresses: an address has the same number in every snapshot, unless two distant
/// addresses collide. Then the later one gets another number.
fn ids(addresses: &[u64]) -> Vec<u32> {
    const N_IDS: u64 = (1 << 31) - 64;
    let mut taken: FxHashSet<u64> = FxHashSet::default();
    let ids = addresses.iter().map(|&address| {
        let mut position = (address >> 3) % N_IDS;
        while !taken.insert(position) {
            position = (position + 1) % N_IDS;
        }
        // The first few IDs belong to nodes that are not objects.
        (position as u32 + 32) * 2 + 1
    });
    ids.collect()
}
