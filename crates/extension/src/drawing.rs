//! Draws object graphs that Python collected, through the report crate.

use heaptide_report::object_graph::{self, BoxRole, Graph, Node};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::text::{Text, strings};

/// Lines of text, role, row, whether the object has a finalizer, attributes for dot.
type Box = (Vec<Text>, String, i32, bool, Vec<(Text, Text)>);

/// Returns the graph as `svg`, `html` or `dot`; only a page shows the title.
#[pyfunction]
#[pyo3(signature = (boxes, arrows, *, form, title))]
pub fn draw_graph(
    boxes: Vec<Box>,
    arrows: Vec<(usize, usize, Text)>,
    form: &str,
    title: Text,
) -> PyResult<String> {
    let graph = graph(boxes, arrows)?;
    let mut out = Vec::new();
    match form {
        "svg" => object_graph::svg(&mut out, &graph)?,
        "html" => object_graph::page(&mut out, &graph, &title.0)?,
        "dot" => object_graph::dot(&mut out, &graph)?,
        other => return Err(PyValueError::new_err(format!("no form {other}"))),
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Returns the graph as PNG.
#[pyfunction]
pub fn draw_graph_png(
    py: Python<'_>,
    boxes: Vec<Box>,
    arrows: Vec<(usize, usize, Text)>,
) -> PyResult<Bound<'_, PyBytes>> {
    let graph = graph(boxes, arrows)?;
    let mut out = Vec::new();
    py.detach(|| object_graph::png(&mut out, &graph))?;
    Ok(PyBytes::new(py, &out))
}

fn graph(boxes: Vec<Box>, arrows: Vec<(usize, usize, Text)>) -> PyResult<Graph> {
    let nodes = boxes
        .into_iter()
        .map(|(lines, role, row, has_finalizer, attributes)| {
            let found = BoxRole::ALL.into_iter().find(|one| one.word() == role);
            Ok(Node {
                lines: strings(lines),
                role: found.ok_or_else(|| PyValueError::new_err(format!("no role {role}")))?,
                row,
                has_finalizer,
                attributes: attributes
                    .into_iter()
                    .map(|(name, value)| (name.0, value.0))
                    .collect(),
            })
        });
    Ok(Graph {
        nodes: nodes.collect::<PyResult<_>>()?,
        edges: arrows
            .into_iter()
            .map(|(from, to, label)| (from, to, label.0))
            .collect(),
    })
}
