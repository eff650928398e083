//! A scene as PNG, drawn with two dots per pixel and with a bitmap font.
//!
//! An SVG library would bring a font engine and megabytes of code; four sorts of shapes do not need it.

use std::io::{self, Write};

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use heaptide_analysis::model::chart::Chart;
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};

use super::scene::{Anchor, Colour, Scene, Shape, scene};

/// Dots per pixel, so that pictures are sharp on high-resolution screens.
const SCALE: f64 = 2.0;
const AREA_OPACITY: f64 = 0.12;
/// Lengths of dashes and gaps in pixels.
const DASH: (f64, f64) = (6.0, 4.0);

pub fn png(out: &mut dyn Write, chart: &Chart) -> io::Result<()> {
    let image = paint(&scene(chart));
    write_png(out, &image)
}

struct Image {
    width: usize,
    height: usize,
    /// Red, green, blue.
    dots: Vec<u8>,
}

fn paint(scene: &Scene) -> Image {
    let (width, height) = (
        (scene.width * SCALE) as usize,
        (scene.height * SCALE) as usize,
    );
    let mut image = Image {
        width,
        height,
        dots: vec![0xff; width * height * 3],
    };
    for shape in &scene.shapes {
        image.shape(shape);
    }
    image
}

impl Image {
    fn shape(&mut self, shape: &Shape) {
        match shape {
            Shape::Area {
                points,
                floor,
                colour,
            } => self.area(&scaled(points), floor * SCALE, *colour),
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
                self.strokes(&strokes, width * SCALE, *colour);
            }
            Shape::Box {
                x,
                y,
                width,
                height,
                colour,
                ..
            } => self.fill(x * SCALE, y * SCALE, width * SCALE, height * SCALE, *colour),
            Shape::Text {
                x,
                y,
                text,
                anchor,
                colour,
                is_title,
                ..
            } => self.text((x * SCALE, y * SCALE), text, *anchor, *colour, *is_title),
        }
    }

    /// Blends a colour over a dot. Dots outside the picture are ignored.
    fn blend(&mut self, x: usize, y: usize, colour: Colour, opacity: f64) {
        if x >= self.width || y >= self.height {
            return;
        }
        let at = (y * self.width + x) * 3;
        for (part, shift) in [16, 8, 0].into_iter().enumerate() {
            let (old, new) = (
                f64::from(self.dots[at + part]),
                f64::from(colour >> shift & 0xff),
            );
            self.dots[at + part] = (old + (new - old) * opacity).round() as u8;
        }
    }

    fn fill(&mut self, x: f64, y: f64, width: f64, height: f64, colour: Colour) {
        for row in y.max(0.0).round() as usize..(y + height).max(0.0).round() as usize {
            for column in x.max(0.0).round() as usize..(x + width).max(0.0).round() as usize {
                self.blend(column, row, colour, 1.0);
            }
        }
    }

    fn area(&mut self, points: &[(f64, f64)], floor: f64, colour: Colour) {
        for pair in points.windows(2) {
            let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
            for column in x0.ceil() as usize..x1.ceil() as usize {
                let share = (column as f64 - x0) / (x1 - x0).max(f64::MIN_POSITIVE);
                let top = y0 + (y1 - y0) * share.clamp(0.0, 1.0);
                for row in top.max(0.0).round() as usize..floor.max(0.0) as usize {
                    self.blend(column, row, colour, AREA_OPACITY);
                }
            }
        }
    }

    /// Blends all strokes of a line at once: where two meet, the colour must not be blended twice.
    fn strokes(&mut self, strokes: &[Vec<(f64, f64)>], width: f64, colour: Colour) {
        let mut cover = Cover::around(strokes, width / 2.0, (self.width, self.height));
        for pair in strokes.iter().flat_map(|stroke| stroke.windows(2)) {
            cover.segment(pair[0], pair[1], width / 2.0);
        }
        for (at, &covered) in cover
            .dots
            .iter()
            .enumerate()
            .filter(|(_, covered)| **covered > 0)
        {
            let (x, y) = (cover.left + at % cover.width, cover.top + at / cover.width);
            self.blend(x, y, colour, f64::from(covered) / 255.0);
        }
    }

    fn text(
        &mut self,
        (x, y): (f64, f64),
        text: &str,
        anchor: Anchor,
        colour: Colour,
        is_title: bool,
    ) {
        let size = if is_title {
            RasterHeight::Size32
        } else {
            RasterHeight::Size24
        };
        let advance = get_raster_width(FontWeight::Regular, size);
        let width = (text.chars().count() * advance) as f64;
        let left = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - width / 2.0,
            Anchor::End => x - width,
        };
        // The baseline is at four fifths of the character box.
        let top = y - size.val() as f64 * 0.8;
        for (number, letter) in text.chars().enumerate() {
            let Some(raster) = get_raster(letter, FontWeight::Regular, size)
                .or_else(|| get_raster('?', FontWeight::Regular, size))
            else {
                continue;
            };
            let left = left + (number * advance) as f64;
            for (row, dots) in raster.rows().enumerate() {
                for (column, &dot) in dots.iter().enumerate().filter(|(_, dot)| **dot > 0) {
                    let (x, y) = (left + column as f64, top + row as f64);
                    if x >= 0.0 && y >= 0.0 {
                        self.blend(x as usize, y as usize, colour, f64::from(dot) / 255.0);
                    }
                }
            }
        }
    }
}

/// The share of each dot that a line covers, within the bounding box of the line.
struct Cover {
    left: usize,
    top: usize,
    width: usize,
    height: usize,
    dots: Vec<u8>,
}

impl Cover {
    fn around(strokes: &[Vec<(f64, f64)>], radius: f64, (width, height): (usize, usize)) -> Cover {
        let points = || strokes.iter().flatten();
        let range = |values: &mut dyn Iterator<Item = f64>, end: usize| {
            let widen = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
            let (low, high) = values.fold((f64::INFINITY, 0.0), widen);
            let low = ((low - radius - 1.0).max(0.0) as usize).min(end);
            let high = ((high + radius + 2.0).max(0.0) as usize).min(end);
            (low, high.saturating_sub(low))
        };
        let (left, width) = range(&mut points().map(|point| point.0), width);
        let (top, height) = range(&mut points().map(|point| point.1), height);
        Cover {
            left,
            top,
            width,
            height,
            dots: vec![0; width * height],
        }
    }

    fn segment(&mut self, from: (f64, f64), to: (f64, f64), radius: f64) {
        let reach = radius + 1.0;
        let range = |a: f64, b: f64, start: usize, len: usize| {
            let low = ((a.min(b) - reach).max(0.0) as usize).saturating_sub(start);
            let high = ((a.max(b) + reach).max(0.0) as usize + 1).saturating_sub(start);
            low.min(len)..high.min(len)
        };
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx * dx + dy * dy;
        for y in range(from.1, to.1, self.top, self.height) {
            for x in range(from.0, to.0, self.left, self.width) {
                // The distance from the middle of the dot to the nearest point of the segment.
                let px = (self.left + x) as f64 + 0.5 - from.0;
                let py = (self.top + y) as f64 + 0.5 - from.1;
                let along = if length > 0.0 {
                    ((px * dx + py * dy) / length).clamp(0.0, 1.0)
                } else {
                    0.0
                };
                let distance = (px - along * dx).hypot(py - along * dy);
                let covered = (radius + 0.5 - distance).clamp(0.0, 1.0);
                let dot = &mut self.dots[y * self.width + x];
                *dot = (*dot).max((covered * 255.0) as u8);
            }
        }
    }
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

fn write_png(out: &mut dyn Write, image: &Image) -> io::Result<()> {
    out.write_all(b"\x89PNG\r\n\x1a\n")?;
    let mut head = Vec::new();
    head.extend((image.width as u32).to_be_bytes());
    head.extend((image.height as u32).to_be_bytes());
    // Eight bits, RGB, default methods, not interlaced.
    head.extend([8, 2, 0, 0, 0]);
    part(out, b"IHDR", &head)?;
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::new(7));
    for row in image.dots.chunks(image.width * 3) {
        // Filter type 0 of each row: none.
        packer.write_all(&[0])?;
        packer.write_all(row)?;
    }
    part(out, b"IDAT", &packer.finish()?)?;
    part(out, b"IEND", &[])
}

fn part(out: &mut dyn Write, name: &[u8; 4], data: &[u8]) -> io::Result<()> {
    let mut sum = Crc::new();
    sum.update(name);
    sum.update(data);
    out.write_all(&(data.len() as u32).to_be_bytes())?;
    out.write_all(name)?;
    out.write_all(data)?;
    out.write_all(&sum.sum().to_be_bytes())
}
