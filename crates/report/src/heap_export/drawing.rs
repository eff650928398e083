//! Pictures of a few objects: rows of boxes with arrows, as SVG, as a page around it, or as dot for other programs.

use std::io::{self, Write};

use heaptide_analysis::heap::Heap;
use heaptide_analysis::heap::picture::{Picture, Role};

const CHARACTER: f64 = 7.3;
const LINE: f64 = 16.0;
const PADDING: f64 = 8.0;
const GAP: f64 = 26.0;
const ROW_GAP: f64 = 64.0;
const MARGIN: f64 = 20.0;
/// Longer lines are cut in boxes; their whole text is in the title.
const MAX_CHARACTERS: usize = 40;
/// Passes over the rows that put boxes near those they are connected with.
const N_SWEEPS: usize = 6;

fn colours(role: Role) -> (&'static str, &'static str) {
    match role {
        Role::Start => ("#fde8e8", "#9b1c1c"),
        Role::Module => ("#dcfce7", "#14532d"),
        Role::Frame => ("#fef3c7", "#78350f"),
        Role::Other => ("#eef2f7", "#1f2933"),
        Role::More(_) => ("#ffffff", "#b91c1c"),
    }
}

/// Dot text.
pub fn dot(out: &mut dyn Write, heap: &Heap, picture: &Picture) -> io::Result<()> {
    writeln!(out, "digraph ObjectGraph {{")?;
    writeln!(
        out,
        "  node [shape=box, style=filled, fontname=\"monospace\"];"
    )?;
    for (at, one) in picture.boxes.iter().enumerate() {
        let (fill, text) = colours(one.role);
        let lines: Vec<String> = picture
            .lines(heap, at)
            .iter()
            .map(|line| escaped(line))
            .collect();
        writeln!(
            out,
            "  o{at} [label=\"{}\", fillcolor=\"{fill}\", fontcolor=\"{text}\"];",
            lines.join("\\n")
        )?;
    }
    for (from, to, label) in &picture.arrows {
        writeln!(out, "  o{from} -> o{to} [label=\"{}\"];", escaped(label))?;
    }
    writeln!(out, "}}")
}

fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace(['\n', '\r'], " ")
}

/// A box with its place.
struct Placed {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
    lines: Vec<String>,
}

/// An SVG picture.
pub fn svg(out: &mut dyn Write, heap: &Heap, picture: &Picture) -> io::Result<()> {
    let (placed, width, height) = layout(heap, picture);
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"monospace\" font-size=\"12\">"
    )?;
    writeln!(
        out,
        "<defs><marker id=\"arrow\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto-start-reverse\"><path d=\"M0 0L10 5L0 10z\" fill=\"#64748b\"/></marker></defs>"
    )?;
    writeln!(
        out,
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
    )?;
    for (from, to, label) in &picture.arrows {
        let (a, b) = (&placed[*from], &placed[*to]);
        let is_down = a.y <= b.y;
        let (x1, x2) = (a.x + a.width / 2.0, b.x + b.width / 2.0);
        let (y1, y2) = if is_down {
            (a.y + a.height, b.y)
        } else {
            (a.y, b.y + b.height)
        };
        let middle = (y1 + y2) / 2.0;
        writeln!(
            out,
            "<path d=\"M{x1:.1} {y1:.1}C{x1:.1} {middle:.1} {x2:.1} {middle:.1} {x2:.1} {y2:.1}\" fill=\"none\" stroke=\"#64748b\" marker-end=\"url(#arrow)\"/>"
        )?;
        if !label.is_empty() {
            writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"11\" fill=\"#334155\" stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\">{}</text>",
                (x1 + x2) / 2.0,
                middle + 4.0,
                markup(&cut(label))
            )?;
        }
    }
    for (at, place) in placed.iter().enumerate() {
        let (fill, text) = colours(picture.boxes[at].role);
        writeln!(
            out,
            "<g><title>{}</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"4\" fill=\"{fill}\" stroke=\"{text}\"/>",
            markup(&place.lines.join("\n")),
            place.x,
            place.y,
            place.width,
            place.height
        )?;
        for (row, line) in place.lines.iter().enumerate() {
            writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{text}\">{}</text>",
                place.x + PADDING,
                place.y + PADDING + LINE * (row as f64 + 0.75),
                markup(&cut(line))
            )?;
        }
        writeln!(out, "</g>")?;
    }
    writeln!(out, "</svg>")
}

/// A page around the picture; it asks no network for anything.
pub fn page(out: &mut dyn Write, heap: &Heap, picture: &Picture) -> io::Result<()> {
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"><title>Objects</title><style>body{{margin:0;font-family:sans-serif}}</style></head><body>"
    )?;
    svg(out, heap, picture)?;
    writeln!(out, "</body></html>")
}

fn cut(text: &str) -> String {
    if text.chars().count() <= MAX_CHARACTERS {
        return text.to_owned();
    }
    let kept: String = text.chars().take(MAX_CHARACTERS - 1).collect();
    format!("{kept}…")
}

fn markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Not allowed in XML at all.
            control if control < ' ' && control != '\n' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

/// Places of boxes, and the size of the whole. Who refers stands above what is referred to.
fn layout(heap: &Heap, picture: &Picture) -> (Vec<Placed>, f64, f64) {
    let is_upward = picture
        .arrows
        .iter()
        .filter(|(from, to, _)| picture.boxes[*from].row > picture.boxes[*to].row)
        .count()
        * 2
        >= picture.arrows.len();
    let last_row = picture.boxes.iter().map(|one| one.row).max().unwrap_or(0);
    let row_of = |at: usize| {
        let row = picture.boxes[at].row;
        (if is_upward { last_row - row } else { row }) as usize
    };
    let mut placed: Vec<Placed> = (0..picture.boxes.len())
        .map(|at| {
            let lines = picture.lines(heap, at);
            let longest = lines.iter().map(|line| cut(line).chars().count()).max();
            Placed {
                x: 0.0,
                y: 0.0,
                width: longest.unwrap_or(0) as f64 * CHARACTER + 2.0 * PADDING,
                height: lines.len().max(1) as f64 * LINE + 2.0 * PADDING,
                lines,
            }
        })
        .collect();
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); last_row as usize + 1];
    for at in 0..picture.boxes.len() {
        rows[row_of(at)].push(at);
    }
    let mut neighbours: Vec<Vec<usize>> = vec![Vec::new(); picture.boxes.len()];
    for (from, to, _) in &picture.arrows {
        neighbours[*from].push(*to);
        neighbours[*to].push(*from);
    }
    place_rows(&rows, &mut placed);
    for sweep in 0..N_SWEEPS {
        for at in 0..rows.len() {
            let row = if sweep % 2 == 0 {
                at
            } else {
                rows.len() - 1 - at
            };
            let mut wanted: Vec<(f64, usize)> = rows[row]
                .iter()
                .map(|&one| {
                    let near = &neighbours[one];
                    let centre = |other: usize| placed[other].x + placed[other].width / 2.0;
                    let sum: f64 = near.iter().map(|&other| centre(other)).sum();
                    let mean = if near.is_empty() {
                        centre(one)
                    } else {
                        sum / near.len() as f64
                    };
                    (mean, one)
                })
                .collect();
            wanted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            rows[row] = wanted.into_iter().map(|(_, one)| one).collect();
        }
        place_rows(&rows, &mut placed);
    }
    let width = placed
        .iter()
        .map(|one| one.x + one.width)
        .fold(0.0, f64::max);
    let height = placed
        .iter()
        .map(|one| one.y + one.height)
        .fold(0.0, f64::max);
    (placed, width + MARGIN, height + MARGIN)
}

/// Rows below each other, each in the middle of the widest.
fn place_rows(rows: &[Vec<usize>], placed: &mut [Placed]) {
    let width = |row: &Vec<usize>| {
        let boxes: f64 = row.iter().map(|&one| placed[one].width).sum();
        boxes + GAP * row.len().saturating_sub(1) as f64
    };
    let widths: Vec<f64> = rows.iter().map(width).collect();
    let widest = widths.iter().copied().fold(0.0, f64::max);
    let mut y = MARGIN;
    for (row, width) in rows.iter().zip(widths) {
        let mut x = MARGIN + (widest - width) / 2.0;
        let mut tallest = 0.0f64;
        for &one in row {
            placed[one].x = x;
            placed[one].y = y;
            x += placed[one].width + GAP;
            tallest = tallest.max(placed[one].height);
        }
        y += tallest + ROW_GAP;
    }
}
