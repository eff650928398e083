//! The picture as SVG, light and dark. A shortened text has its whole text in a tooltip.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::layout::{
    CHARACTER, Heading, LABEL_CHARACTER, LINE, Layout, MARGIN, PADDING, Rect, Step, layout,
};
use super::{Arrow, BoxRole, Graph, MAX_LINE};
use crate::markup::escaped;
use crate::text::shorten;

/// Colours of lines, light and dark. Lines of neighbouring boxes differ, so that they are easier to follow.
pub(super) const STROKES: [(&str, &str); 6] = [
    ("#475569", "#a3b3c2"),
    ("#0f766e", "#5eead4"),
    ("#6d28d9", "#c4b5fd"),
    ("#a16207", "#eab308"),
    ("#1d4ed8", "#93c5fd"),
    ("#be185d", "#f9a8d4"),
];
pub(super) const PAPER: (&str, &str) = ("#ffffff", "#13181a");
pub(super) const LEGEND_HEIGHT: f64 = 24.0;
pub(super) const SWATCH: f64 = 12.0;

/// Writes the SVG.
pub fn svg(out: &mut dyn Write, graph: &Graph) -> io::Result<()> {
    let arrows = graph.arrows();
    let shown: Vec<String> = arrows.iter().map(Arrow::shown).collect();
    let layout = layout(graph, &arrows, &shown);
    let legend = legend(graph);
    let legend_width: f64 = legend.iter().map(|(_, text, _)| swatch_width(text)).sum();
    let width = layout.width.max(legend_width + 2.0 * MARGIN).ceil();
    let legend_top = layout.height;
    let height = if legend.is_empty() {
        layout.height
    } else {
        layout.height + LEGEND_HEIGHT
    };
    let height = height.ceil();
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"monospace\" font-size=\"12\">"
    )?;
    writeln!(out, "<style>{}</style>", style())?;
    let paper = PAPER.0;
    writeln!(
        out,
        "<rect class=\"paper\" width=\"{width:.0}\" height=\"{height:.0}\" fill=\"{paper}\"/>"
    )?;
    for (number, arrow) in arrows.iter().enumerate() {
        write_arrow(out, graph, arrow, &shown[number], number, &layout)?;
    }
    for (node, rect) in graph.nodes.iter().zip(&layout.boxes) {
        write_box(out, node, rect)?;
    }
    let mut x = MARGIN;
    for (role, text, border) in legend {
        write_swatch(out, role, text, border, (x, legend_top))?;
        x += swatch_width(text);
    }
    writeln!(out, "</svg>")
}

/// Light colours are attributes of the elements, because not every program applies styles.
fn style() -> String {
    let mut rules = String::from(
        ".arrow:hover path{stroke-width:3}@media(prefers-color-scheme:dark){.paper{fill:",
    );
    rules.push_str(PAPER.1);
    rules.push('}');
    for role in BoxRole::ALL {
        let [_, (fill, text)] = role.colours();
        let name = role.word();
        let _ = write!(
            rules,
            ".{name} rect{{fill:{fill};stroke:{text}}}.{name} text{{fill:{text}}}"
        );
    }
    for (at, (_, colour)) in STROKES.iter().enumerate() {
        let _ = write!(
            rules,
            ".s{at} .line{{stroke:{colour}}}.s{at} .tip,.s{at} text{{fill:{colour}}}"
        );
    }
    rules.push('}');
    rules
}

fn write_arrow(
    out: &mut dyn Write,
    graph: &Graph,
    arrow: &Arrow,
    shown: &str,
    number: usize,
    layout: &Layout,
) -> io::Result<()> {
    let Some(line) = &layout.lines[number] else {
        return Ok(());
    };
    // Two lines that end next to each other differ in at least one box, so they usually get different colours.
    let stroke = (arrow.from + arrow.to) % STROKES.len();
    let colour = STROKES[stroke].0;
    let end = |node: usize| graph.nodes[node].lines.join(" ");
    writeln!(
        out,
        "<g class=\"arrow s{stroke}\"><title>{}</title><path class=\"line\" d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.2\"/><path class=\"tip\" d=\"{}\" fill=\"{colour}\"/>",
        escaped(&format!(
            "{} → {}\n{}",
            end(arrow.from),
            end(arrow.to),
            arrow.labels.join("\n")
        )),
        path(line.start, &line.steps),
        tip(line.tip, line.heading),
    )?;
    if let Some(rect) = &layout.labels[number] {
        let text_width = shorten::width(shown) as f64 * LABEL_CHARACTER;
        writeln!(
            out,
            "<rect class=\"paper\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"{colour}\"{}>{}</text>",
            rect.x,
            rect.y,
            rect.width,
            rect.height,
            PAPER.0,
            rect.x + (rect.width - text_width) / 2.0,
            rect.y + 12.0,
            fitted(text_width),
            escaped(shown)
        )?;
    }
    writeln!(out, "</g>")
}

fn path(start: (f64, f64), steps: &[Step]) -> String {
    let (mut x, mut y) = start;
    let mut text = format!("M{x:.1} {y:.1}");
    for step in steps {
        let _ = match *step {
            Step::Straight(to) => {
                y = to;
                write!(text, "V{to:.1}")
            }
            Step::Swing(to_x, to_y) => {
                let middle = (y + to_y) / 2.0;
                let from_x = std::mem::replace(&mut x, to_x);
                y = to_y;
                write!(
                    text,
                    "C{from_x:.1} {middle:.1} {to_x:.1} {middle:.1} {to_x:.1} {to_y:.1}"
                )
            }
            Step::Turn(to) => {
                let from_x = std::mem::replace(&mut x, to);
                let low = y + 14.0;
                write!(
                    text,
                    "C{from_x:.1} {low:.1} {to:.1} {low:.1} {to:.1} {y:.1}"
                )
            }
            Step::Loop(down) => {
                let out = x + 24.0;
                let from_y = y;
                y += down;
                write!(text, "C{out:.1} {from_y:.1} {out:.1} {y:.1} {x:.1} {y:.1}")
            }
        };
    }
    text
}

fn tip((x, y): (f64, f64), heading: Heading) -> String {
    let (a, b) = match heading {
        Heading::Down => ((x - 3.5, y - 8.0), (x + 3.5, y - 8.0)),
        Heading::Up => ((x - 3.5, y + 8.0), (x + 3.5, y + 8.0)),
        Heading::Left => ((x + 8.0, y - 3.5), (x + 8.0, y + 3.5)),
    };
    format!(
        "M{x:.1} {y:.1}L{:.1} {:.1}L{:.1} {:.1}z",
        a.0, a.1, b.0, b.1
    )
}

fn write_box(out: &mut dyn Write, node: &super::Node, rect: &Rect) -> io::Result<()> {
    let [(fill, text), _] = node.role.colours();
    let border = if node.has_finalizer {
        " stroke-width=\"3\""
    } else {
        ""
    };
    writeln!(
        out,
        "<g class=\"{}\"><title>{}</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"4\" fill=\"{fill}\" stroke=\"{text}\"{border}/>",
        node.role.word(),
        escaped(&node.lines.join("\n")),
        rect.x,
        rect.y,
        rect.width,
        rect.height
    )?;
    for (row, line) in node.lines.iter().enumerate() {
        let line = shorten::middle(line, MAX_LINE);
        let width = shorten::width(&line) as f64 * CHARACTER;
        writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{text}\"{}>{}</text>",
            rect.x + (rect.width - width) / 2.0,
            rect.y + PADDING + LINE * (row as f64 + 0.75),
            fitted(width),
            escaped(&line)
        )?;
    }
    writeln!(out, "</g>")
}

/// Fixes the width of the text for any font.
fn fitted(width: f64) -> String {
    if width > 0.0 {
        format!(
            " textLength=\"{width:.1}\" lengthAdjust=\"spacingAndGlyphs\" xml:space=\"preserve\""
        )
    } else {
        String::new()
    }
}

/// The colours in the picture and their meaning, and whether the meaning belongs to the border.
pub(super) fn legend(graph: &Graph) -> Vec<(BoxRole, &'static str, bool)> {
    let mut legend: Vec<(BoxRole, &str, bool)> = BoxRole::ALL
        .iter()
        .filter(|role| graph.nodes.iter().any(|node| node.role == **role))
        .filter_map(|role| Some((*role, role.legend()?, false)))
        .collect();
    if graph.nodes.iter().any(|node| node.has_finalizer) {
        legend.push((BoxRole::Object, "has __del__", true));
    }
    legend
}

pub(super) fn swatch_width(text: &str) -> f64 {
    SWATCH + 6.0 + shorten::width(text) as f64 * LABEL_CHARACTER + 18.0
}

fn write_swatch(
    out: &mut dyn Write,
    role: BoxRole,
    text: &str,
    is_border: bool,
    (x, y): (f64, f64),
) -> io::Result<()> {
    let [(fill, colour), _] = role.colours();
    let border = if is_border { " stroke-width=\"3\"" } else { "" };
    let width = shorten::width(text) as f64 * LABEL_CHARACTER;
    writeln!(
        out,
        "<g class=\"{}\"><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{SWATCH}\" height=\"{SWATCH}\" rx=\"2\" fill=\"{fill}\" stroke=\"{colour}\"{border}/><text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"{colour}\"{}>{text}</text></g>",
        role.word(),
        x + SWATCH + 6.0,
        y + 10.0,
        fitted(width)
    )
}
