//! A chart as shapes with coordinates and colours, for SVG and PNG. Lengths are in screen pixels.

use heaptide_analysis::model::chart::{Bracket, Chart};

use super::axis::Axis;
use super::labels;

pub use crate::raster::Colour;

const INK: Colour = 0x1f2937;
const FAINT: Colour = 0x6b7280;
const GRID: Colour = 0xe5e7eb;
const RED: Colour = 0xdc2626;
/// The first colour is for the first curve.
const CURVES: [Colour; 11] = [
    0x2563eb, 0xd97706, 0x059669, 0xdb2777, 0x7c3aed, 0x0891b2, 0x65a30d, 0xea580c, 0x475569,
    0xbe123c, 0x0d9488,
];
const CALLS: [Colour; 6] = [0x0e7490, 0xa16207, 0x15803d, 0x9d174d, 0x6d28d9, 0x9a3412];

const WIDTH: f64 = 1100.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 54.0;
const PLOT_HEIGHT: f64 = 360.0;
const ROW: f64 = 20.0;
/// The largest width of a character.
pub const LETTER: f64 = 7.2;
const MAX_CALLS_IN_LEGEND: usize = 10;
const MAX_LEVELS: u32 = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Clone, Debug)]
pub enum Shape {
    /// The area between the points and a straight floor.
    Area {
        points: Vec<(f64, f64)>,
        floor: f64,
        colour: Colour,
    },
    Line {
        points: Vec<(f64, f64)>,
        colour: Colour,
        width: f64,
        is_dashed: bool,
        /// The number of its curve.
        series: Option<usize>,
    },
    Box {
        x: f64,
        y: f64,
        width: f64,
        height: f64,
        colour: Colour,
        /// The tooltip.
        title: String,
    },
    Text {
        x: f64,
        /// The baseline.
        y: f64,
        text: String,
        anchor: Anchor,
        colour: Colour,
        is_title: bool,
        series: Option<usize>,
    },
}

pub struct Scene {
    pub width: f64,
    pub height: f64,
    pub shapes: Vec<Shape>,
}

pub fn curve_colour(number: usize) -> Colour {
    CURVES[number % CURVES.len()]
}

pub fn scene(chart: &Chart) -> Scene {
    let x_axis = Axis::of_seconds(chart.from_s, chart.to_s, 10);
    let y_axis = Axis::of_bytes(chart.top_bytes, 6);
    let mut drawing = Drawing {
        shapes: Vec::new(),
        width: WIDTH - LEFT - RIGHT,
        x_axis,
        y_axis,
    };
    drawing.title(chart);
    drawing.axes();
    drawing.curves(chart);
    let mut bottom = TOP + PLOT_HEIGHT + 48.0;
    if chart.is_flame {
        bottom = drawing.flames(&chart.brackets, bottom);
    } else {
        drawing.brackets(&chart.brackets);
    }
    drawing.marks(chart);
    let height = drawing.legend(chart, bottom);
    Scene {
        width: WIDTH,
        height,
        shapes: drawing.shapes,
    }
}

struct Drawing {
    shapes: Vec<Shape>,
    width: f64,
    x_axis: Axis,
    y_axis: Axis,
}

impl Drawing {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + self.x_axis.position(seconds).clamp(0.0, 1.0) * self.width
    }

    fn y(&self, bytes: f64) -> f64 {
        TOP + (1.0 - self.y_axis.position(bytes).clamp(0.0, 1.0)) * PLOT_HEIGHT
    }

    fn text(&mut self, x: f64, y: f64, text: String, anchor: Anchor, colour: Colour) {
        self.shapes.push(Shape::Text {
            x,
            y,
            text,
            anchor,
            colour,
            is_title: false,
            series: None,
        });
    }

    fn line(&mut self, points: Vec<(f64, f64)>, colour: Colour, width: f64, is_dashed: bool) {
        self.shapes.push(Shape::Line {
            points,
            colour,
            width,
            is_dashed,
            series: None,
        });
    }

    fn title(&mut self, chart: &Chart) {
        self.shapes.push(Shape::Text {
            x: LEFT,
            y: 26.0,
            text: shortened(&chart.title, (self.width / 9.6) as usize),
            anchor: Anchor::Start,
            colour: INK,
            is_title: true,
            series: None,
        });
        let text = format!("{} in {}", labels::backend(chart), self.y_axis.unit);
        self.text(LEFT, 45.0, text, Anchor::Start, FAINT);
    }

    fn axes(&mut self) {
        let (right, bottom) = (LEFT + self.width, TOP + PLOT_HEIGHT);
        for mark in self.y_axis.marks.clone() {
            let y = TOP + (1.0 - self.y_axis.position_of_mark(mark)) * PLOT_HEIGHT;
            let label = self.y_axis.label(mark);
            self.line(vec![(LEFT, y), (right, y)], GRID, 1.0, false);
            self.text(LEFT - 8.0, y + 4.0, label, Anchor::End, FAINT);
        }
        for mark in self.x_axis.marks.clone() {
            let x = LEFT + self.x_axis.position_of_mark(mark) * self.width;
            let label = format!("{} {}", self.x_axis.label(mark), self.x_axis.unit);
            self.line(vec![(x, bottom), (x, bottom + 5.0)], FAINT, 1.0, false);
            // The outermost labels must stay inside the picture.
            let half = label.chars().count() as f64 * LETTER / 2.0;
            let x = x.min(WIDTH - 4.0 - half);
            self.text(x, bottom + 20.0, label, Anchor::Middle, FAINT);
        }
        self.line(vec![(LEFT, bottom), (right, bottom)], FAINT, 1.0, false);
    }

    fn curves(&mut self, chart: &Chart) {
        for (number, series) in chart.series.iter().enumerate().rev() {
            let points: Vec<(f64, f64)> = series
                .points
                .iter()
                .map(|&(x, y)| (self.x(x), self.y(y as f64)))
                .collect();
            let colour = curve_colour(number);
            if number == 0 {
                self.shapes.push(Shape::Area {
                    points: points.clone(),
                    floor: TOP + PLOT_HEIGHT,
                    colour,
                });
            }
            self.shapes.push(Shape::Line {
                points,
                colour,
                width: if number == 0 { 2.0 } else { 1.5 },
                is_dashed: false,
                series: Some(number),
            });
            if let Some(trend) = &series.trend {
                let end = |(x, y): (f64, f64)| (self.x(x), self.y(y));
                let points = vec![end(trend.from), end(trend.to)];
                self.line(points, colour, 1.0, true);
            }
        }
    }

    /// Brackets at the times when a function was entered and left, at the memory sizes of these times.
    fn brackets(&mut self, brackets: &[Bracket]) {
        let (high, wide) = (PLOT_HEIGHT / 30.0, 7.0);
        for bracket in brackets {
            let colour = CALLS[bracket.number % CALLS.len()];
            for ((seconds, bytes), wide) in [(bracket.begin, wide), (bracket.end, -wide)] {
                let is_inside = (0.0..=1.0).contains(&self.x_axis.position(seconds));
                if is_inside {
                    let (x, y) = (self.x(seconds), self.y(bytes as f64));
                    let points = vec![
                        (x + wide, y - high),
                        (x, y - high),
                        (x, y + high),
                        (x + wide, y + high),
                    ];
                    self.line(points, colour, 2.0, false);
                }
            }
        }
    }

    /// Draws bars below the axis, callers above callees. Returns the y coordinate of their end.
    fn flames(&mut self, brackets: &[Bracket], top: f64) -> f64 {
        let mut deepest = None;
        for bracket in brackets.iter().filter(|bracket| bracket.level < MAX_LEVELS) {
            let (begin, end) = (self.x(bracket.begin.0), self.x(bracket.end.0));
            let (from, to) = (begin.min(end), begin.max(end));
            let y = top + f64::from(bracket.level) * ROW;
            let width = (to - from).max(1.0);
            let label = labels::call(bracket);
            self.shapes.push(Shape::Box {
                x: from,
                y: y - 14.0,
                width,
                height: ROW - 2.0,
                colour: CALLS[bracket.number % CALLS.len()],
                title: label.clone(),
            });
            let n_letters = ((width - 8.0) / LETTER).max(0.0) as usize;
            if n_letters >= 3 {
                self.text(
                    from + 4.0,
                    y,
                    shortened(&label, n_letters),
                    Anchor::Start,
                    0xffffff,
                );
            }
            deepest = deepest.max(Some(bracket.level));
        }
        deepest.map_or(top, |level| top + f64::from(level + 1) * ROW + 8.0)
    }

    fn marks(&mut self, chart: &Chart) {
        let (right, bottom) = (LEFT + self.width, TOP + PLOT_HEIGHT);
        let mut texts = Vec::new();
        if let Some(limit) = chart.limit {
            let y = self.y(limit as f64);
            self.line(vec![(LEFT, y), (right, y)], RED, 1.5, false);
            texts.push(labels::limit(limit));
        }
        if let Some((seconds, bytes)) = chart.peak {
            let (x, y) = (self.x(seconds), self.y(bytes as f64));
            self.line(vec![(x, TOP), (x, bottom)], RED, 1.0, true);
            self.line(vec![(LEFT, y), (right, y)], RED, 1.0, true);
            texts.push(labels::peak((seconds, bytes)));
        }
        // The texts are above the plot: within it, they would cover curves.
        if !texts.is_empty() {
            self.text(right, 45.0, texts.join(", "), Anchor::End, RED);
        }
    }

    /// Returns the height of the picture.
    fn legend(&mut self, chart: &Chart, top: f64) -> f64 {
        let mut y = top;
        let mut entries: Vec<(Colour, String, Option<usize>)> = chart
            .series
            .iter()
            .enumerate()
            .map(|(number, series)| (curve_colour(number), labels::label(series), Some(number)))
            .collect();
        if !chart.is_flame {
            let calls = chart.brackets.iter().take(MAX_CALLS_IN_LEGEND);
            entries.extend(
                calls.map(|call| (CALLS[call.number % CALLS.len()], labels::call(call), None)),
            );
        }
        // Two columns, unless a text would have to be cut.
        let n_letters_of = |column: f64| ((column - 40.0) / LETTER) as usize;
        let n_longest = entries.iter().map(|entry| entry.1.chars().count()).max();
        let fits_half = n_longest.unwrap_or(0) <= n_letters_of(self.width / 2.0);
        let n_columns = if fits_half { 2 } else { 1 };
        let column = self.width / n_columns as f64;
        let n_letters = n_letters_of(column);
        for row in entries.chunks(n_columns) {
            for (column_number, (colour, label, series)) in row.iter().enumerate() {
                let x = LEFT + column_number as f64 * column;
                self.shapes.push(Shape::Line {
                    points: vec![(x, y - 4.0), (x + 22.0, y - 4.0)],
                    colour: *colour,
                    width: 3.0,
                    is_dashed: false,
                    series: None,
                });
                self.shapes.push(Shape::Text {
                    x: x + 30.0,
                    y,
                    text: shortened(label, n_letters),
                    anchor: Anchor::Start,
                    colour: INK,
                    is_title: false,
                    series: *series,
                });
            }
            y += ROW;
        }
        let n_more = chart.brackets.len().saturating_sub(MAX_CALLS_IN_LEGEND);
        if n_more > 0 && !chart.is_flame {
            self.text(
                LEFT,
                y,
                format!("and {n_more} more calls"),
                Anchor::Start,
                FAINT,
            );
            y += ROW;
        }
        for note in &chart.notes {
            self.text(LEFT, y, labels::note(note), Anchor::Start, RED);
            y += ROW;
        }
        y
    }
}

/// Shortens a text and replaces control characters.
fn shortened(text: &str, n_letters: usize) -> String {
    let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
    if text.chars().count() <= n_letters {
        return text.chars().map(clean).collect();
    }
    let kept: String = text
        .chars()
        .take(n_letters.saturating_sub(2))
        .map(clean)
        .collect();
    format!("{kept}..")
}
