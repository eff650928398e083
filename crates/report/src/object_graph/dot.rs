//! The graph as dot text for Graphviz.

use std::io::{self, Write};

use super::Graph;

/// Writes dot text.
pub fn dot(out: &mut dyn Write, graph: &Graph) -> io::Result<()> {
    writeln!(out, "digraph ObjectGraph {{")?;
    writeln!(
        out,
        "  node [shape=box, style=filled, fontname=\"monospace\"];"
    )?;
    for (at, node) in graph.nodes.iter().enumerate() {
        let [(fill, text), _] = node.role.colours();
        let lines: Vec<String> = node.lines.iter().map(|line| escaped(line)).collect();
        write!(
            out,
            "  o{at} [label=\"{}\", fillcolor=\"{fill}\", fontcolor=\"{text}\"",
            lines.join("\\n")
        )?;
        if node.has_finalizer {
            write!(out, ", shape=\"doubleoctagon\"")?;
        }
        for (name, value) in &node.attributes {
            write!(out, ", {name}=\"{}\"", escaped(value))?;
        }
        writeln!(out, "];")?;
    }
    for (from, to, label) in &graph.edges {
        let label = match label.as_str() {
            "" => String::new(),
            label => format!(" [label=\"{}\"]", escaped(label)),
        };
        writeln!(out, "  o{from} -> o{to}{label};")?;
    }
    writeln!(out, "}}")
}

fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    let text = text.replace('\0', "\\\\0");
    text.replace(['\n', '\r'], " ")
}
