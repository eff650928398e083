//! A scene as PNG, drawn at twice its size.

use std::io::{self, Write};

use heaptide_analysis::model::chart::Chart;

use super::scene::{Anchor, Scene, Shape, scene};
use crate::raster::{Colour, Image, TextSize};

/// The enlargement, which makes pictures sharp on high-resolution screens.
const SCALE: f64 = 2.0;
const AREA_OPACITY: f64 = 0.12;
/// Lengths of dashes and gaps in pixels.
const DASH: (f64, f64) = (6.0, 4.0);

pub fn png(out: &mut dyn Write, chart: &Chart) -> io::Result<()> {
    paint(&scene(chart)).write_png(out)
}

fn paint(scene: &Scene) -> Image {
    let size = |pixels: f64| (pixels * SCALE) as usize;
    let mut image = Image::new(size(scene.width), size(scene.height));
    for shape in &scene.shapes {
        draw(&mut image, shape);
    }
    image
}

fn draw(image: &mut Image, shape: &Shape) {
    match shape {
        Shape::Area {
            points,
            floor,
            colour,
        } => area(image, &scaled(points), floor * SCALE, *colour),
        Shape::Line {
            points,
            colour,
            width,
            is_dashed,
            ..
        } => {
            let points = scaled(points);
            let strokes = if *is_dashed {
                dashed(&points)
            } else {
                vec![points]
            };
            image.strokes(&strokes, width * SCALE, *colour);
        }
        Shape::Box {
            x,
            y,
            width,
            height,
            colour,
            ..
        } => image.fill(x * SCALE, y * SCALE, width * SCALE, height * SCALE, *colour),
        Shape::Text {
            x,
            y,
            text,
            anchor,
            colour,
            is_title,
            ..
        } => write(
            image,
            (x * SCALE, y * SCALE),
            text,
            *anchor,
            *colour,
            *is_title,
        ),
    }
}

fn area(image: &mut Image, points: &[(f64, f64)], floor: f64, colour: Colour) {
    for pair in points.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        for column in x0.ceil() as usize..x1.ceil() as usize {
            let share = (column as f64 - x0) / (x1 - x0).max(f64::MIN_POSITIVE);
            let top = y0 + (y1 - y0) * share.clamp(0.0, 1.0);
            for row in top.max(0.0).round() as usize..floor.max(0.0) as usize {
                image.blend(column, row, colour, AREA_OPACITY);
            }
        }
    }
}

fn write(
    image: &mut Image,
    (x, y): (f64, f64),
    text: &str,
    anchor: Anchor,
    colour: Colour,
    is_title: bool,
) {
    let size = if is_title {
        TextSize::Title
    } else {
        TextSize::Normal
    };
    let width = (text.chars().count() * size.advance()) as f64;
    let left = match anchor {
        Anchor::Start => x,
        Anchor::Middle => x - width / 2.0,
        Anchor::End => x - width,
    };
    image.text(left, y, text, size, colour);
}

fn scaled(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points.iter().map(|(x, y)| (x * SCALE, y * SCALE)).collect()
}

/// Splits a line into dashes.
fn dashed(points: &[(f64, f64)]) -> Vec<Vec<(f64, f64)>> {
    let (stroke, gap) = (DASH.0 * SCALE, DASH.1 * SCALE);
    let mut strokes = Vec::new();
    for pair in points.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        let length = (x1 - x0).hypot(y1 - y0);
        let at = |along: f64| {
            let share = along.min(length) / length;
            (x0 + (x1 - x0) * share, y0 + (y1 - y0) * share)
        };
        let mut along = 0.0;
        while along < length {
            strokes.push(vec![at(along), at(along + stroke)]);
            along += stroke + gap;
        }
    }
    strokes
}
