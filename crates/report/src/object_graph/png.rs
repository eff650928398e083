//! The picture as PNG, in light colours and at twice its size. Boxes, arrows and labels are those of the SVG.

use std::io::{self, Write};

use super::layout::{
    CHARACTER, Heading, LABEL_CHARACTER, LINE, Line, MARGIN, PADDING, Rect, Step, layout,
};
use super::svg::{LEGEND_HEIGHT, PAPER, STROKES, SWATCH, legend, swatch_width};
use super::{Arrow, Graph, MAX_LINE, Node};
use crate::raster::{Colour, Image, TextSize};
use crate::text::shorten;

const SCALE: f64 = 2.0;
/// A larger picture would need gigabytes; the SVG has no such limit.
const MAX_PIXELS: f64 = 200e6;
/// The number of straight pieces of a bend.
const PIECES: u32 = 16;
const LINE_WIDTH: f64 = 1.2;

/// Writes the PNG.
pub fn png(out: &mut dyn Write, graph: &Graph) -> io::Result<()> {
    let arrows = graph.arrows();
    let shown: Vec<String> = arrows.iter().map(Arrow::shown).collect();
    let layout = layout(graph, &arrows, &shown);
    let legend = legend(graph);
    let legend_width: f64 = legend.iter().map(|(_, text, _)| swatch_width(text)).sum();
    let width = layout.width.max(legend_width + 2.0 * MARGIN);
    let height = layout.height
        + if legend.is_empty() {
            0.0
        } else {
            LEGEND_HEIGHT
        };
    if width * height * SCALE * SCALE > MAX_PIXELS {
        return Err(io::Error::other(format!(
            "the picture is too large for a PNG ({width:.0} × {height:.0} pixels): choose a name that ends in .svg"
        )));
    }
    let mut image = Image::new((width * SCALE) as usize, (height * SCALE) as usize);
    for (number, arrow) in arrows.iter().enumerate() {
        let colour = colour(STROKES[(arrow.from + arrow.to) % STROKES.len()].0);
        if let Some(line) = &layout.lines[number] {
            draw_line(&mut image, line, colour);
        }
        if let Some(rect) = &layout.labels[number] {
            fill(&mut image, rect, self::colour(PAPER.0));
            let text_width = shorten::width(&shown[number]) as f64 * LABEL_CHARACTER;
            let left = rect.x + (rect.width - text_width) / 2.0;
            text(
                &mut image,
                left,
                rect.y + 12.0,
                &shown[number],
                TextSize::Small,
                LABEL_CHARACTER,
                colour,
            );
        }
    }
    for (node, rect) in graph.nodes.iter().zip(&layout.boxes) {
        draw_box(&mut image, node, rect);
    }
    let mut x = MARGIN;
    for (role, meaning, is_border) in legend {
        let [(inside, ink), _] = role.colours();
        let rect = Rect {
            x,
            y: layout.height,
            width: SWATCH,
            height: SWATCH,
        };
        framed(&mut image, &rect, colour(inside), colour(ink), is_border);
        let left = x + SWATCH + 6.0;
        text(
            &mut image,
            left,
            layout.height + 10.0,
            meaning,
            TextSize::Small,
            LABEL_CHARACTER,
            colour(ink),
        );
        x += swatch_width(meaning);
    }
    image.write_png(out)
}

/// Parses a colour of the form `#ff8000`.
fn colour(text: &str) -> Colour {
    Colour::from_str_radix(text.trim_start_matches('#'), 16).unwrap_or(0)
}

fn fill(image: &mut Image, rect: &Rect, colour: Colour) {
    let Rect {
        x,
        y,
        width,
        height,
    } = *rect;
    image.fill(x * SCALE, y * SCALE, width * SCALE, height * SCALE, colour);
}

fn framed(image: &mut Image, rect: &Rect, inside: Colour, ink: Colour, is_thick: bool) {
    fill(image, rect, inside);
    let (left, top) = (rect.x, rect.y);
    let (right, bottom) = (rect.x + rect.width, rect.y + rect.height);
    let corners = [
        (left, top),
        (right, top),
        (right, bottom),
        (left, bottom),
        (left, top),
    ];
    let border = corners.map(|(x, y)| (x * SCALE, y * SCALE)).to_vec();
    image.strokes(&[border], if is_thick { 3.0 } else { 1.0 } * SCALE, ink);
}

fn draw_box(image: &mut Image, node: &Node, rect: &Rect) {
    let [(inside, ink), _] = node.role.colours();
    let ink = colour(ink);
    framed(image, rect, colour(inside), ink, node.has_finalizer);
    for (row, line) in node.lines.iter().enumerate() {
        let line = shorten::middle(line, MAX_LINE);
        let width = shorten::width(&line) as f64 * CHARACTER;
        let left = rect.x + (rect.width - width) / 2.0;
        let baseline = rect.y + PADDING + LINE * (row as f64 + 0.75);
        text(
            image,
            left,
            baseline,
            &line,
            TextSize::Normal,
            CHARACTER,
            ink,
        );
    }
}

/// Writes text that the layout has measured with `pitch` pixels per character, each in the middle of its cell.
fn text(
    image: &mut Image,
    left: f64,
    baseline: f64,
    text: &str,
    size: TextSize,
    pitch: f64,
    ink: Colour,
) {
    let inset = (pitch * SCALE - size.advance() as f64) / 2.0;
    let mut column = 0;
    for letter in text.chars() {
        let shown = letter.to_string();
        let x = (left + column as f64 * pitch) * SCALE + inset;
        image.text(x, baseline * SCALE, &shown, size, ink);
        column += shorten::width(&shown);
    }
}

fn draw_line(image: &mut Image, line: &Line, ink: Colour) {
    let points = points(line).into_iter();
    let points: Vec<(f64, f64)> = points.map(|(x, y)| (x * SCALE, y * SCALE)).collect();
    // One stroke per piece: the bounding box of a long line would be most of the picture.
    for piece in points.windows(2) {
        image.strokes(&[piece.to_vec()], LINE_WIDTH * SCALE, ink);
    }
    let (x, y) = line.tip;
    let (a, b) = match line.heading {
        Heading::Down => ((x - 3.5, y - 8.0), (x + 3.5, y - 8.0)),
        Heading::Up => ((x - 3.5, y + 8.0), (x + 3.5, y + 8.0)),
        Heading::Left => ((x + 8.0, y - 3.5), (x + 8.0, y + 3.5)),
    };
    image.triangle([(x, y), a, b].map(|(x, y)| (x * SCALE, y * SCALE)), ink);
}

/// Returns the corners of a line, with bends as short straight pieces. The SVG has the same bends.
fn points(line: &Line) -> Vec<(f64, f64)> {
    let mut points = vec![line.start];
    for step in &line.steps {
        let from = points[points.len() - 1];
        let (first, second, to) = match *step {
            Step::Straight(to) => {
                points.push((from.0, to));
                continue;
            }
            Step::Swing(x, y) => {
                let middle = (from.1 + y) / 2.0;
                ((from.0, middle), (x, middle), (x, y))
            }
            Step::Turn(x) => {
                let low = from.1 + 14.0;
                ((from.0, low), (x, low), (x, from.1))
            }
            Step::Loop(down) => {
                let (out, y) = (from.0 + 24.0, from.1 + down);
                ((out, from.1), (out, y), (from.0, y))
            }
        };
        for piece in 1..=PIECES {
            let t = f64::from(piece) / f64::from(PIECES);
            let u = 1.0 - t;
            let at = |a: f64, b: f64, c: f64, d: f64| {
                u * u * u * a + 3.0 * u * u * t * b + 3.0 * u * t * t * c + t * t * t * d
            };
            points.push((
                at(from.0, first.0, second.0, to.0),
                at(from.1, first.1, second.1, to.1),
            ));
        }
    }
    points
}
