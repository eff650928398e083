//! Draws object graphs that Python collected, through the report crate.

use heaptide_report::object_graph::{self, Graph, Kind, Node};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Lines of text, kind, row, whether the object has a finalizer, attributes for dot.
type Box = (Vec<String>, String, i32, bool, Vec<(String, String)>);

/// Returns the graph as `svg`, `html` or `dot`; only a page shows the title.
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
