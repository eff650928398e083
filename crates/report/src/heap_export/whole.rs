//! A whole snapshot as JSON, one object per line, or as one large dot graph.

use std::io::{self, Write};

use heaptide_analysis::heap::{Heap, labels};

use crate::json::write_text;

/// Everything in the snapshot: `{"format", "pid", …, "roots": […], "objects": […]}`. References use object numbers.
pub fn whole_json(out: &mut dyn Write, heap: &Heap) -> io::Result<()> {
    let snapshot = &heap.snapshot;
    let header = &snapshot.header;
    write!(
        out,
        "{{\"format\": 1, \"pid\": {}, \"taken_unix_ns\": {}, \"python_version\": {}, \"num_objects\": {}, \"bytes\": {},\n\"roots\": [",
        header.pid,
        header.taken_unix_ns,
        header.python_version,
        heap.n_objects(),
        snapshot.total_bytes()
    )?;
    for (at, root) in snapshot.roots.iter().enumerate() {
        out.write_all(if at == 0 { b"\n" } else { b",\n" })?;
        write!(out, "{{\"object\": {}, \"text\": ", root.object)?;
        write_text(out, &labels::root(snapshot, root))?;
        out.write_all(b"}")?;
    }
    out.write_all(b"],\n\"objects\": [")?;
    let reachable = &heap.dominators().reachable;
    for object in 0..heap.n_objects() as u32 {
        out.write_all(if object == 0 { b"\n" } else { b",\n" })?;
        write!(
            out,
            "{{\"number\": {object}, \"address\": \"{}\", \"kind\": ",
            heap.address(object)
        )?;
        write_text(out, heap.kind(object))?;
        write!(
            out,
            ", \"bytes\": {}, \"retained_bytes\": {}, \"reachable\": {}",
            heap.bytes(object),
            heap.retained()[object as usize],
            reachable.contains(object)
        )?;
        if let Some(value) = snapshot.value_of(object) {
            out.write_all(b", \"value\": ")?;
            write_text(out, value)?;
        }
        if let Some((file, line)) = heap.site(object) {
            out.write_all(b", \"allocated_at\": ")?;
            write_text(out, &format!("{file}:{line}"))?;
        }
        out.write_all(b", \"references\": [")?;
        for (at, (target, label)) in snapshot.edges.of(object).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(out, "{comma}[{target}, ")?;
            write_text(out, &labels::reference(snapshot, label))?;
            out.write_all(b"]")?;
        }
        out.write_all(b"]}")?;
    }
    out.write_all(b"\n]}\n")
}

/// Every object and every reference; for programs that draw large graphs.
pub fn whole_dot(out: &mut dyn Write, heap: &Heap) -> io::Result<()> {
    let escaped = |text: &str| {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        text.replace(['\n', '\r'], " ")
    };
    writeln!(out, "digraph ObjectGraph {{\n  node [shape=box];")?;
    for object in 0..heap.n_objects() as u32 {
        let label = format!("{} {}", heap.kind(object), heap.sample(object));
        writeln!(out, "  o{object} [label=\"{}\"];", escaped(&label))?;
    }
    for object in 0..heap.n_objects() as u32 {
        for (target, label) in heap.snapshot.edges.of(object) {
            let label = labels::reference(&heap.snapshot, label);
            writeln!(
                out,
                "  o{object} -> o{target} [label=\"{}\"];",
                escaped(&label)
            )?;
        }
    }
    writeln!(out, "}}")
}
