//! A scene as SVG: each shape is one line of text.

use std::fmt::Write as _;
use std::io::{self, Write};

use heaptide_analysis::model::chart::Chart;

use super::scene::{Anchor, Scene, Shape, scene};
use crate::markup::escaped;

pub fn svg(out: &mut dyn Write, chart: &Chart) -> io::Result<()> {
    let text = render(&scene(chart));
    out.write_all(text.as_bytes())
}

/// The picture as text. Curves and their names have the number of their series, for scripts.
pub fn render(scene: &Scene) -> String {
    let (width, height) = (scene.width, scene.height);
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-sans-serif, system-ui, 'DejaVu Sans', sans-serif\" font-size=\"12\" role=\"img\">"
    );
    let _ = writeln!(
        text,
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
    );
    for shape in &scene.shapes {
        self::shape(&mut text, shape);
    }
    text.push_str("</svg>\n");
    text
}

fn shape(out: &mut String, shape: &Shape) {
    match shape {
        Shape::Area {
            points,
            floor,
            colour,
        } => {
            let (Some(first), Some(last)) = (points.first(), points.last()) else {
                return;
            };
            let _ = writeln!(
                out,
                "<path class=\"area\" d=\"M{:.1} {floor:.1}L{}L{:.1} {floor:.1}Z\" fill=\"#{colour:06x}\" fill-opacity=\"0.12\"/>",
                first.0,
                path(points),
                last.0
            );
        }
        Shape::Line {
            points,
            colour,
            width,
            is_dashed,
            series,
        } => {
            let dashes = if *is_dashed {
                " stroke-dasharray=\"6 4\""
            } else {
                ""
            };
            let _ = writeln!(
                out,
                "<polyline{} points=\"{}\" fill=\"none\" stroke=\"#{colour:06x}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"{dashes}/>",
                series_attribute(*series),
                path(points)
            );
        }
        Shape::Box {
            x,
            y,
            width,
            height,
            colour,
            title,
        } => {
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\" fill=\"#{colour:06x}\"><title>{}</title></rect>",
                escaped(title)
            );
        }
        Shape::Text {
            x,
            y,
            text,
            anchor,
            colour,
            is_title,
            series,
        } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let title = if *is_title {
                " font-size=\"16\" font-weight=\"600\""
            } else {
                ""
            };
            let _ = writeln!(
                out,
                "<text{} x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#{colour:06x}\"{title}>{}</text>",
                series_attribute(*series),
                escaped(text)
            );
        }
    }
}

fn series_attribute(series: Option<usize>) -> String {
    series.map_or(String::new(), |number| format!(" data-series=\"{number}\""))
}

fn path(points: &[(f64, f64)]) -> String {
    let coordinates: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{x:.1} {y:.1}"))
        .collect();
    coordinates.join(" ")
}
