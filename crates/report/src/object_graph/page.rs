//! A page around the picture, with panning and zooming. One file without network requests.

use std::io::{self, Write};

use super::Graph;
use super::svg::svg;
use crate::markup::{escaped, fill};

const PAGE: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("page.js");
/// The hash of the script. The page allows no other script. A test compares it with the hash that browsers compute.
const SCRIPT_HASH: &str = "fOzd53SXNLBW4N20NG+ZpwE3yC+yS6xL8WdJQNgi8+g=";

pub fn page(out: &mut dyn Write, graph: &Graph, title: &str) -> io::Result<()> {
    let mut picture: Vec<u8> = Vec::new();
    svg(&mut picture, graph)?;
    let picture = String::from_utf8_lossy(&picture);
    let title = escaped(title);
    let contents = [
        ("HASH", SCRIPT_HASH),
        ("TITLE", &title),
        ("HEADING", &title),
        ("PICTURE", picture.trim_end()),
        ("SCRIPT", SCRIPT.trim_end()),
    ];
    fill(out, PAGE, &contents)
}
