//! A page around the picture, with panning and zooming. One file without network requests.

use std::io::{self, Write};

use serde_json::json;

use super::Graph;
use super::svg::svg;
use crate::html::{GRAPH, embed};

pub fn page(out: &mut dyn Write, graph: &Graph, title: &str) -> io::Result<()> {
    let mut picture: Vec<u8> = Vec::new();
    svg(&mut picture, graph)?;
    let picture = String::from_utf8_lossy(&picture);
    let data = json!({
        "head": { "format": 1, "title": title },
        "svg": picture,
    });
    embed(out, GRAPH, &data)
}
