//! A chart for terminals: curves as braille dots, two by four per character, with calls as bars below.

use std::io::{self, Write};

use heaptide_analysis::model::chart::{Bracket, Chart};

use super::axis::Axis;
use super::labels;
use crate::text::Style;
use crate::text::controls::is_interpreted;

/// Columns for the marks of the left axis, and its line.
const GUTTER: usize = 9;
const MIN_WIDTH: usize = 30;
const MIN_HEIGHT: usize = 4;
const MAX_CALL_ROWS: usize = 12;
/// Codes of standard colours; the first is for the first curve.
const COLOURS: [u8; 8] = [36, 33, 32, 35, 34, 96, 93, 92];
const RED: u8 = 31;

/// `width` and `height` are in characters; the legend and notes need additional lines.
pub fn chart(
    out: &mut dyn Write,
    chart: &Chart,
    width: usize,
    height: usize,
    style: Style,
) -> io::Result<()> {
    let columns = width.max(MIN_WIDTH) - GUTTER;
    let rows = height.max(MIN_HEIGHT);
    let x_axis = Axis::of_seconds(chart.from_s, chart.to_s, (columns / 12).clamp(2, 10));
    let y_axis = Axis::of_bytes(chart.top_bytes, (rows / 3).clamp(2, 8));
    let mut canvas = Canvas::new(columns, rows);
    if let Some(limit) = chart.limit {
        canvas.rule(y_axis.position(limit as f64), RED);
    }
    for (number, series) in chart.series.iter().enumerate().rev() {
        let colour = colour_of(number);
        let point = |&(x, y): &(f64, u64)| (x_axis.position(x), y_axis.position(y as f64));
        canvas.curve(&series.points.iter().map(point).collect::<Vec<_>>(), colour);
        if let Some(trend) = &series.trend {
            let end = |(x, y): (f64, f64)| (x_axis.position(x), y_axis.position(y.max(0.0)));
            canvas.dotted(end(trend.from), end(trend.to), colour);
        }
    }
    if let Some((x, y)) = chart.peak {
        canvas.letter(x_axis.position(x), y_axis.position(y as f64), '◆', RED);
    }

    let paint = Paint(style);
    writeln!(out, "{}", paint.bold(&shortened(&chart.title, width)))?;
    for row in 0..rows {
        let mark = y_axis
            .marks
            .iter()
            .find(|mark| row_of(y_axis.position_of_mark(**mark), rows) == row);
        match mark {
            Some(&mark) => write!(out, "{:>7} ┤", y_axis.label(mark))?,
            None => write!(out, "{:>7} │", "")?,
        }
        canvas.row(out, row, &paint)?;
        writeln!(out)?;
    }
    x_labels(out, &x_axis, y_axis.unit, columns)?;
    calls(out, chart, &x_axis, columns, &paint)?;
    legend(out, chart, &paint, width)
}

fn colour_of(number: usize) -> u8 {
    COLOURS[number % COLOURS.len()]
}

fn row_of(share: f64, rows: usize) -> usize {
    let from_top = (1.0 - share.clamp(0.0, 1.0)) * rows as f64;
    (from_top as usize).min(rows - 1)
}

fn x_labels(out: &mut dyn Write, axis: &Axis, y_unit: &str, columns: usize) -> io::Result<()> {
    let (mut line, mut labels) = (vec!['─'; columns], vec![' '; columns]);
    let mut free = 0;
    for &mark in &axis.marks {
        let column = ((axis.position_of_mark(mark) * columns as f64) as usize).min(columns - 1);
        line[column] = '┬';
        let label = format!("{} {}", axis.label(mark), axis.unit);
        let start = column
            .saturating_sub(label.len() / 2)
            .min(columns.saturating_sub(label.len()));
        if start < free || label.len() > columns {
            continue;
        }
        for (at, letter) in label.chars().enumerate() {
            labels[start + at] = letter;
        }
        free = start + label.len() + 1;
    }
    let text = |letters: Vec<char>| letters.into_iter().collect::<String>();
    writeln!(out, "{y_unit:>7} └{}", text(line))?;
    writeln!(out, "{:>9}{}", "", text(labels).trim_end())
}

/// Bars below the axis: each call at its time, in the row of its level or the first free row.
fn calls(
    out: &mut dyn Write,
    chart: &Chart,
    axis: &Axis,
    columns: usize,
    paint: &Paint,
) -> io::Result<()> {
    let mut rows: Vec<Vec<(usize, usize, &Bracket)>> = Vec::new();
    let mut n_hidden = 0;
    for bracket in &chart.brackets {
        let column = |x: f64| {
            ((axis.position(x).clamp(0.0, 1.0) * columns as f64) as usize).min(columns - 1)
        };
        let (begin, end) = (column(bracket.begin.0), column(bracket.end.0));
        // The clock may be set back during a call.
        let (from, to) = (begin.min(end), begin.max(end));
        let is_free = |row: &Vec<(usize, usize, &Bracket)>| {
            row.iter().all(|taken| taken.1 < from || taken.0 > to)
        };
        let row = if chart.is_flame {
            bracket.level as usize
        } else {
            rows.iter().position(is_free).unwrap_or(rows.len())
        };
        if row >= MAX_CALL_ROWS {
            n_hidden += 1;
            continue;
        }
        if rows.len() <= row {
            rows.resize_with(row + 1, Vec::new);
        }
        if is_free(&rows[row]) {
            rows[row].push((from, to, bracket));
        } else {
            n_hidden += 1;
        }
    }
    for row in &mut rows {
        row.sort_by_key(|taken| taken.0);
        write!(out, "{:>9}", "")?;
        let mut at = 0;
        for &(from, to, bracket) in row.iter() {
            write!(out, "{:1$}", "", from - at)?;
            let bar = bar(&labels::call(bracket), to - from + 1, chart.is_flame);
            write!(
                out,
                "{}",
                paint.coloured(&bar, colour_of(bracket.number + 1))
            )?;
            at = to + 1;
        }
        writeln!(out)?;
    }
    if n_hidden > 0 {
        writeln!(out, "{:>9}{n_hidden} more calls do not fit here", "")?;
    }
    Ok(())
}

/// `├work 1.20 s──┤`, shortened to the width.
fn bar(text: &str, len: usize, is_solid: bool) -> String {
    let (open, fill, close) = if is_solid {
        ('▕', ' ', '▏')
    } else {
        ('├', '─', '┤')
    };
    match len {
        1 => "│".to_owned(),
        2 => [open, close].iter().collect(),
        _ => {
            let inner = len - 2;
            let shown: String = text.chars().take(inner).collect();
            let rest = inner - shown.chars().count();
            let rest: String = std::iter::repeat_n(fill, rest).collect();
            format!("{open}{shown}{rest}{close}")
        }
    }
}

fn legend(out: &mut dyn Write, chart: &Chart, paint: &Paint, width: usize) -> io::Result<()> {
    for (number, series) in chart.series.iter().enumerate() {
        let text = shortened(&labels::label(series), width.saturating_sub(3));
        writeln!(out, "{} {text}", paint.coloured("━━", colour_of(number)))?;
    }
    if let Some(peak) = chart.peak {
        let text = format!("{} ({})", labels::peak(peak), labels::backend(chart));
        writeln!(out, "{}  {text}", paint.coloured("◆", RED))?;
    }
    if let Some(limit) = chart.limit {
        writeln!(
            out,
            "{} {}",
            paint.coloured("╌╌", RED),
            labels::limit(limit)
        )?;
    }
    for note in &chart.notes {
        writeln!(out, "{}", labels::note(note))?;
    }
    Ok(())
}

/// Shortens a text and replaces control characters: command lines may be long and contain them.
fn shortened(text: &str, width: usize) -> String {
    let clean = |letter: char| {
        if is_interpreted(letter) || letter == '\n' {
            ' '
        } else {
            letter
        }
    };
    if text.chars().count() <= width {
        return text.chars().map(clean).collect();
    }
    let kept = text.chars().take(width.saturating_sub(1)).map(clean);
    kept.chain(['…']).collect()
}

struct Paint(Style);

impl Paint {
    fn coloured(&self, text: &str, colour: u8) -> String {
        self.0.paint(&colour.to_string(), text)
    }

    fn bold(&self, text: &str) -> String {
        self.coloured(text, 1)
    }
}

/// A grid of characters, each with braille dots or a letter.
struct Canvas {
    columns: usize,
    rows: usize,
    dots: Vec<u8>,
    letters: Vec<Option<char>>,
    colours: Vec<u8>,
}

impl Canvas {
    fn new(columns: usize, rows: usize) -> Canvas {
        let n = columns * rows;
        Canvas {
            columns,
            rows,
            dots: vec![0; n],
            letters: vec![None; n],
            colours: vec![0; n],
        }
    }

    fn dot(&mut self, x: usize, y: usize, colour: u8) {
        /// Bits of the braille block, by row and column.
        const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        let cell = y / 4 * self.columns + x / 2;
        if x / 2 < self.columns && y / 4 < self.rows {
            self.dots[cell] |= BITS[y % 4][x % 2];
            self.colours[cell] = colour;
        }
    }

    /// Coordinates are shares of the axes; `y` counts from the bottom.
    fn position(&self, (x, y): (f64, f64)) -> (i64, i64) {
        let (width, height) = (self.columns * 2 - 1, self.rows * 4 - 1);
        let x = (x.clamp(0.0, 1.0) * width as f64).round();
        let y = ((1.0 - y.clamp(0.0, 1.0)) * height as f64).round();
        (x as i64, y as i64)
    }

    fn curve(&mut self, points: &[(f64, f64)], colour: u8) {
        for pair in points.windows(2) {
            self.line(self.position(pair[0]), self.position(pair[1]), 1, colour);
        }
        if let [only] = points {
            let at = self.position(*only);
            self.dot(at.0 as usize, at.1 as usize, colour);
        }
    }

    fn dotted(&mut self, from: (f64, f64), to: (f64, f64), colour: u8) {
        self.line(self.position(from), self.position(to), 3, colour);
    }

    fn line(&mut self, from: (i64, i64), to: (i64, i64), every: i64, colour: u8) {
        let n_steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).max(1);
        for step in (0..=n_steps).step_by(every as usize) {
            let at = |from: i64, to: i64| from + ((to - from) * step * 2 + n_steps) / (2 * n_steps);
            self.dot(at(from.0, to.0) as usize, at(from.1, to.1) as usize, colour);
        }
    }

    /// A line from side to side.
    fn rule(&mut self, y: f64, colour: u8) {
        let row = row_of(y, self.rows);
        for column in 0..self.columns {
            let cell = row * self.columns + column;
            self.letters[cell] = Some('╌');
            self.colours[cell] = colour;
        }
    }

    fn letter(&mut self, x: f64, y: f64, letter: char, colour: u8) {
        let column = ((x.clamp(0.0, 1.0) * self.columns as f64) as usize).min(self.columns - 1);
        let cell = row_of(y, self.rows) * self.columns + column;
        (self.letters[cell], self.dots[cell], self.colours[cell]) = (Some(letter), 0, colour);
    }

    fn row(&self, out: &mut dyn Write, row: usize, paint: &Paint) -> io::Result<()> {
        let cells = row * self.columns..(row + 1) * self.columns;
        let is_empty = |cell: usize| self.dots[cell] == 0 && self.letters[cell].is_none();
        let end = cells
            .clone()
            .rfind(|&cell| !is_empty(cell))
            .map_or(cells.start, |cell| cell + 1);
        let mut run = String::new();
        let mut colour = 0;
        for cell in cells.start..end {
            if self.colours[cell] != colour && !run.is_empty() {
                write!(out, "{}", paint.coloured(&run, colour))?;
                run.clear();
            }
            colour = self.colours[cell];
            run.push(match (self.dots[cell], self.letters[cell]) {
                (0, Some(letter)) => letter,
                (0, None) => ' ',
                (dots, _) => char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' '),
            });
        }
        if run.is_empty() {
            return Ok(());
        }
        write!(out, "{}", paint.coloured(&run, colour))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptide_analysis::model::chart::{Series, SeriesRole};

    fn small() -> Chart {
        let series = Series {
            role: SeriesRole::Sum { n_runs: 2 },
            points: vec![(0.0, 0), (10.0, 100 << 20)],
            peak: Some((10.0, 100 << 20)),
            trend: None,
        };
        Chart {
            title: "job\x1b[2J".into(),
            to_s: 10.0,
            top_bytes: 100 << 20,
            peak: series.peak,
            series: vec![series],
            limit: Some(90 << 20),
            ..Chart::default()
        }
    }

    fn drawn(drawing: &Chart, style: Style) -> String {
        let mut bytes = Vec::new();
        chart(&mut bytes, drawing, 60, 10, style).expect("writing to a vector succeeds");
        String::from_utf8(bytes).expect("letters")
    }

    #[test]
    fn chart_has_its_curve_axes_peak_and_limit() {
        let text = drawn(&small(), Style::Plain);
        for part in [
            "MB",
            "10.0 s",
            "◆",
            "╌",
            "sum of 2",
            "peak 105 MB at 10.0 s",
            "limit 94.4 MB",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(
            text.chars()
                .any(|letter| ('\u{2801}'..='\u{28ff}').contains(&letter))
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 60),
            "{text}"
        );
    }

    #[test]
    fn control_characters_in_a_title_are_replaced() {
        assert!(!drawn(&small(), Style::Plain).contains('\x1b'));
        assert!(!drawn(&small(), Style::Terminal).contains("\x1b[2J"));
    }

    #[test]
    fn calls_are_bars_in_rows_without_overlap() {
        let mut chart = small();
        let call = |name: &str, from: f64, to: f64| Bracket {
            function: name.into(),
            number: 0,
            begin: (from, 0),
            end: (to, 0),
            level: 0,
        };
        chart.brackets = vec![
            call("load", 0.0, 5.0),
            call("inner", 1.0, 4.0),
            call("next", 6.0, 9.0),
        ];
        let text = drawn(&chart, Style::Plain);
        let rows: Vec<&str> = text.lines().filter(|line| line.contains('├')).collect();
        assert_eq!(rows.len(), 2, "{text}");
        assert!(rows[0].contains("load 5.00 s") && rows[0].contains("next 3.00 s"));
        assert!(rows[1].contains("inner 3.00 s"));
    }

    #[test]
    fn empty_chart_and_tiny_terminal_do_not_panic() {
        let mut bytes = Vec::new();
        chart(
            &mut bytes,
            &Chart {
                to_s: 1.0,
                ..Chart::default()
            },
            0,
            0,
            Style::Plain,
        )
        .expect("writing to a vector succeeds");
        assert!(!bytes.is_empty());
    }
}
