//! A page around the picture, to be moved and enlarged. One file, no request.

use std::io::{self, Write};

use super::Graph;
use super::svg::{markup, svg};

const PAGE: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("page.js");
/// Of the script: the page allows no other. A test compares it with what browsers will compute.
const SCRIPT_HASH: &str = "Ov7OGwJLS920Zr9bEo0HGnPXyOKGJtsvt29fVYvzQiA=";

pub fn page(out: &mut dyn Write, graph: &Graph, title: &str) -> io::Result<()> {
    let mut picture: Vec<u8> = Vec::new();
    svg(&mut picture, graph)?;
    let title = markup(title);
    // The order matters: what was put in is not searched for places any more.
    let places = [
        ("HASH", SCRIPT_HASH.as_bytes()),
        ("TITLE", title.as_bytes()),
        ("HEADING", title.as_bytes()),
        ("PICTURE", picture.trim_ascii_end()),
        ("SCRIPT", SCRIPT.trim_end().as_bytes()),
    ];
    let mut rest = PAGE;
    for (place, content) in places {
        let (before, behind) = rest
            .split_once(place)
            .ok_or_else(|| io::Error::other("this build's page has no place for a picture"))?;
        out.write_all(before.as_bytes())?;
        out.write_all(content)?;
        rest = behind;
    }
    out.write_all(rest.as_bytes())
}
