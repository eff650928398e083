//! A bitmap picture: boxes, lines, triangles and text in a bitmap font, written as PNG.
//!
//! These few shapes do not need an SVG library, which would add a font engine and megabytes of code.

use std::io::{self, Write};

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};

/// Red, green and blue, as in `0xff8000`.
pub type Colour = u32;

/// The size of a text, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextSize {
    Small,
    Normal,
    Title,
}

impl TextSize {
    fn height(self) -> RasterHeight {
        match self {
            TextSize::Small => RasterHeight::Size20,
            TextSize::Normal => RasterHeight::Size24,
            TextSize::Title => RasterHeight::Size32,
        }
    }

    /// The width of a character, in pixels.
    pub fn advance(self) -> usize {
        get_raster_width(FontWeight::Regular, self.height())
    }
}

pub struct Image {
    width: usize,
    height: usize,
    /// Red, green, blue.
    pixels: Vec<u8>,
}

impl Image {
    /// A white picture.
    pub fn new(width: usize, height: usize) -> Image {
        Image {
            width,
            height,
            pixels: vec![0xff; width * height * 3],
        }
    }

    /// Blends a colour over a pixel. Pixels outside the picture are ignored.
    pub fn blend(&mut self, x: usize, y: usize, colour: Colour, opacity: f64) {
        if x >= self.width || y >= self.height {
            return;
        }
        let at = (y * self.width + x) * 3;
        for (part, shift) in [16, 8, 0].into_iter().enumerate() {
            let (old, new) = (
                f64::from(self.pixels[at + part]),
                f64::from(colour >> shift & 0xff),
            );
            self.pixels[at + part] = (old + (new - old) * opacity).round() as u8;
        }
    }

    pub fn fill(&mut self, x: f64, y: f64, width: f64, height: f64, colour: Colour) {
        for row in y.max(0.0).round() as usize..(y + height).max(0.0).round() as usize {
            for column in x.max(0.0).round() as usize..(x + width).max(0.0).round() as usize {
                self.blend(column, row, colour, 1.0);
            }
        }
    }

    /// Blends all strokes of a line at once: otherwise the colour would be blended twice where two strokes meet.
    pub fn strokes(&mut self, strokes: &[Vec<(f64, f64)>], width: f64, colour: Colour) {
        let mut coverage = Coverage::around(strokes, width / 2.0, (self.width, self.height));
        for pair in strokes.iter().flat_map(|stroke| stroke.windows(2)) {
            coverage.segment(pair[0], pair[1], width / 2.0);
        }
        for (at, &covered) in coverage
            .pixels
            .iter()
            .enumerate()
            .filter(|(_, covered)| **covered > 0)
        {
            let (x, y) = (
                coverage.left + at % coverage.width,
                coverage.top + at / coverage.width,
            );
            self.blend(x, y, colour, f64::from(covered) / 255.0);
        }
    }

    /// Fills all pixels whose centre lies in the triangle.
    pub fn triangle(&mut self, corners: [(f64, f64); 3], colour: Colour) {
        let [a, b, c] = corners;
        let side = |p: (f64, f64), q: (f64, f64), at: (f64, f64)| {
            (q.0 - p.0) * (at.1 - p.1) - (q.1 - p.1) * (at.0 - p.0)
        };
        let range = |values: [f64; 3], end: usize| {
            let low = values
                .iter()
                .copied()
                .fold(f64::INFINITY, f64::min)
                .max(0.0);
            let high = values.iter().copied().fold(0.0, f64::max);
            low as usize..(high.ceil() as usize).min(end)
        };
        for y in range([a.1, b.1, c.1], self.height) {
            for x in range([a.0, b.0, c.0], self.width) {
                let at = (x as f64 + 0.5, y as f64 + 0.5);
                let sides = [side(a, b, at), side(b, c, at), side(c, a, at)];
                if sides.iter().all(|&one| one >= 0.0) || sides.iter().all(|&one| one <= 0.0) {
                    self.blend(x, y, colour, 1.0);
                }
            }
        }
    }

    /// Writes text whose first character begins at `left`, on a baseline.
    pub fn text(&mut self, left: f64, baseline: f64, text: &str, size: TextSize, colour: Colour) {
        let height = size.height();
        // The baseline is at four fifths of the character box.
        let top = baseline - height.val() as f64 * 0.8;
        for (number, letter) in text.chars().enumerate() {
            let left = left + (number * size.advance()) as f64;
            if letter == '…' {
                self.ellipsis(left, baseline, size, colour);
                continue;
            }
            let Some(raster) = glyph(letter, height) else {
                continue;
            };
            for (row, pixels) in raster.rows().enumerate() {
                for (column, &pixel) in pixels.iter().enumerate().filter(|(_, pixel)| **pixel > 0) {
                    let (x, y) = (left + column as f64, top + row as f64);
                    if x >= 0.0 && y >= 0.0 {
                        self.blend(x as usize, y as usize, colour, f64::from(pixel) / 255.0);
                    }
                }
            }
        }
    }

    /// Draws `…`, which shortened texts contain and the font lacks.
    fn ellipsis(&mut self, left: f64, baseline: f64, size: TextSize, colour: Colour) {
        let gap = size.advance() as f64 / 3.0;
        for n in 0..3 {
            self.fill(
                left + gap * f64::from(n) + 1.0,
                baseline - 2.0,
                2.0,
                2.0,
                colour,
            );
        }
    }

    pub fn write_png(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"\x89PNG\r\n\x1a\n")?;
        let mut head = Vec::new();
        head.extend((self.width as u32).to_be_bytes());
        head.extend((self.height as u32).to_be_bytes());
        // Eight bits, RGB, default methods, not interlaced.
        head.extend([8, 2, 0, 0, 0]);
        write_chunk(out, b"IHDR", &head)?;
        let mut packer = ZlibEncoder::new(Vec::new(), Compression::new(7));
        for row in self.pixels.chunks(self.width * 3) {
            // Filter type 0 of each row: none.
            packer.write_all(&[0])?;
            packer.write_all(row)?;
        }
        write_chunk(out, b"IDAT", &packer.finish()?)?;
        write_chunk(out, b"IEND", &[])
    }
}

fn glyph(letter: char, height: RasterHeight) -> Option<noto_sans_mono_bitmap::RasterizedChar> {
    let letter = match letter {
        '↑' => '^',
        '↓' => 'v',
        '→' => '>',
        other => other,
    };
    get_raster(letter, FontWeight::Regular, height)
        .or_else(|| get_raster('?', FontWeight::Regular, height))
}

/// The share of each pixel that a line covers, within the bounding box of the line.
struct Coverage {
    left: usize,
    top: usize,
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Coverage {
    fn around(
        strokes: &[Vec<(f64, f64)>],
        radius: f64,
        (width, height): (usize, usize),
    ) -> Coverage {
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
        Coverage {
            left,
            top,
            width,
            height,
            pixels: vec![0; width * height],
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
                // The distance from the centre of the pixel to the nearest point of the segment.
                let px = (self.left + x) as f64 + 0.5 - from.0;
                let py = (self.top + y) as f64 + 0.5 - from.1;
                let along = if length > 0.0 {
                    ((px * dx + py * dy) / length).clamp(0.0, 1.0)
                } else {
                    0.0
                };
                let distance = (px - along * dx).hypot(py - along * dy);
                let covered = (radius + 0.5 - distance).clamp(0.0, 1.0);
                let pixel = &mut self.pixels[y * self.width + x];
                *pixel = (*pixel).max((covered * 255.0) as u8);
            }
        }
    }
}

fn write_chunk(out: &mut dyn Write, name: &[u8; 4], data: &[u8]) -> io::Result<()> {
    let mut sum = Crc::new();
    sum.update(name);
    sum.update(data);
    out.write_all(&(data.len() as u32).to_be_bytes())?;
    out.write_all(name)?;
    out.write_all(data)?;
    out.write_all(&sum.sum().to_be_bytes())
}
