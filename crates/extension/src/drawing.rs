//! Graphs that Python found, drawn by the report.

use heaptide_report::object_graph::{self, Graph, Kind, Node};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Lines, what it is, row, whether it has a finalizer, attributes for dot.
type Box = (Vec<String>, String, i32, bool, Vec<(String, String)>);

/// The graph as `svg`, `html` or `dot`; the title is for a page alone.
#[pyfunction]
#[pyo3(signature = (boxes, arrows, *, form, title))]
pub fn draw_graph(
    boxes: Vec<Box>,
    arrows: Vec<(usize, usize, String)>,
    form: &str,
    title: &str,
) -> PyResult<String> {
    let nodes = boxes
        .into_iter()
        .map(|(lines, kind, row, has_finalizer, attributes)| {
            let found = Kind::ALL.into_iter().find(|one| one.word() == kind);
            Ok(Node {
                lines,
                kind: found.ok_or_else(|| PyValueError::new_err(format!("no kind {kind}")))?,
                row,
                has_finalizer,
                attributes,
            })
        });
    let graph = Graph {
        nodes: nodes.collect::<PyResult<_>>()?,
        edges: arrows,
    };
    let mut out = Vec::new();
    match form {
        "svg" => object_graph::svg(&mut out, &graph)?,
        "html" => object_graph::page(&mut out, &graph, title)?,
        "dot" => object_graph::dot(&mut out, &graph)?,
        other => return Err(PyValueError::new_err(format!("no form {other}"))),
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}
