//! Tables as wide as the terminal. The first column wraps or is shortened; numbers are never cut.

use std::io::{self, Write};

use super::{Style, shorten};

pub struct Table {
    /// One for each column.
    pub titles: Vec<String>,
    pub rows: Vec<Row>,
    pub first_column: FirstColumn,
}

/// How to show texts that are too long for the first column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstColumn {
    /// On several lines.
    Wraps,
    /// `function at file`, shortened to one line.
    Shortened,
}

pub struct Row {
    pub cells: Vec<String>,
    /// The share of the whole by which each cell is coloured; `None` for no colour.
    pub shares: Vec<Option<f64>>,
}

/// If the first column would get less than this, titles wrap. If that is not enough, the blanks next to the lines are
/// removed.
const COMFORTABLE_CELLS: usize = 40;
/// The smallest width of the first column. Instead of making it narrower, the table becomes wider than the terminal.
const MIN_CELLS: usize = 16;

struct Layout {
    widths: Vec<usize>,
    padding: &'static str,
}

impl Table {
    /// `max_width` is the width of the terminal; `None` for lines of any length.
    pub fn write(
        &self,
        out: &mut dyn Write,
        max_width: Option<usize>,
        style: Style,
    ) -> io::Result<()> {
        let layout = self.layout(max_width);
        let titles: Vec<Vec<String>> = self
            .titles
            .iter()
            .zip(&layout.widths)
            .map(|(title, &width)| wrap(title, width))
            .collect();
        let n_title_lines = titles.iter().map(Vec::len).max().unwrap_or(0);
        layout.rule(out, '┏', '━', '┳', '┓')?;
        for line in 0..n_title_lines {
            // Titles are at the bottom of the heading.
            let cells = titles.iter().map(|title| {
                let skipped = n_title_lines - title.len();
                let text = line.checked_sub(skipped).and_then(|at| title.get(at));
                (
                    text.map_or("", String::as_str),
                    Style::bold as fn(Style, &str) -> String,
                )
            });
            let cells = cells.map(|(text, bold)| (text.to_owned(), bold(style, text)));
            layout.line(out, '┃', &cells.collect::<Vec<_>>())?;
        }
        layout.rule(out, '┡', '━', '╇', '┩')?;
        for row in &self.rows {
            self.write_row(out, &layout, row, style)?;
        }
        layout.rule(out, '└', '─', '┴', '┘')
    }

    /// Leaves out `columns`, in their order, until no line is wider than the terminal.
    pub fn leave_out(&mut self, columns: &[usize], max_width: usize) {
        let mut left_out: Vec<usize> = Vec::new();
        for &column in columns {
            if self.min_width() <= max_width {
                return;
            }
            let at = column - left_out.iter().filter(|&&other| other < column).count();
            left_out.push(column);
            self.titles.remove(at);
            for row in &mut self.rows {
                row.cells.remove(at);
                row.shares.remove(at);
            }
        }
    }

    /// The smallest width of the table in terminal columns.
    fn min_width(&self) -> usize {
        let widths = self.layout(Some(0)).widths;
        widths.iter().sum::<usize>() + widths.len() + 1
    }

    fn write_row(
        &self,
        out: &mut dyn Write,
        layout: &Layout,
        row: &Row,
        style: Style,
    ) -> io::Result<()> {
        let (text, width) = (&row.cells[0], layout.widths[0]);
        let first = match (self.first_column, text.split_once(" at ")) {
            (FirstColumn::Wraps, _) => wrap(text, width),
            (FirstColumn::Shortened, Some((function, file))) => {
                vec![shorten::function_at_file(function, file, width)]
            }
            (FirstColumn::Shortened, None) => vec![shorten::end(text, width)],
        };
        for (line, text) in first.iter().enumerate() {
            let mut cells = vec![(text.clone(), text.clone())];
            for (cell, share) in row.cells.iter().zip(&row.shares).skip(1) {
                let text = if line == 0 { cell.as_str() } else { "" };
                let painted = share.map_or(text.to_owned(), |share| style.share(share, text));
                cells.push((text.to_owned(), painted));
            }
            layout.line(out, '│', &cells)?;
        }
        Ok(())
    }

    fn layout(&self, max_width: Option<usize>) -> Layout {
        let n = self.titles.len();
        let content = |column: usize| {
            let cells = self
                .rows
                .iter()
                .map(|row| shorten::width(&row.cells[column]));
            cells.max().unwrap_or(0)
        };
        let longest_word = |title: &str| {
            let words = title.split(' ').map(|word| word.chars().count());
            words.max().unwrap_or(0)
        };
        let roomy: Vec<usize> = (0..n)
            .map(|at| content(at).max(self.titles[at].chars().count()))
            .collect();
        let tight: Vec<usize> = (0..n)
            .map(|at| content(at).max(longest_word(&self.titles[at])))
            .collect();
        let Some(max_width) = max_width else {
            return Layout {
                widths: roomy,
                padding: " ",
            };
        };
        for (mut widths, padding, least) in [
            (roomy, " ", COMFORTABLE_CELLS),
            (tight.clone(), " ", COMFORTABLE_CELLS),
            (tight, "", MIN_CELLS),
        ] {
            let lines = n + 1 + 2 * padding.len() * n;
            let numbers: usize = widths[1..].iter().sum();
            let left = max_width.saturating_sub(lines + numbers);
            if left >= least.min(widths[0]) || padding.is_empty() {
                widths[0] = left.max(MIN_CELLS);
                return Layout { widths, padding };
            }
        }
        unreachable!("the last layout is always accepted")
    }
}

impl Layout {
    fn rule(
        &self,
        out: &mut dyn Write,
        left: char,
        line: char,
        cross: char,
        right: char,
    ) -> io::Result<()> {
        let pieces = self
            .widths
            .iter()
            .map(|width| line.to_string().repeat(width + 2 * self.padding.len()));
        let pieces: Vec<String> = pieces.collect();
        writeln!(out, "{left}{}{right}", pieces.join(&cross.to_string()))
    }

    /// Cells as (text, text with colours); the first is left-aligned, the others are right-aligned.
    fn line(&self, out: &mut dyn Write, bar: char, cells: &[(String, String)]) -> io::Result<()> {
        write!(out, "{bar}")?;
        for (at, ((text, painted), width)) in cells.iter().zip(&self.widths).enumerate() {
            let blanks = " ".repeat(width.saturating_sub(shorten::width(text)));
            let padding = self.padding;
            match at {
                0 => write!(out, "{padding}{painted}{blanks}{padding}{bar}")?,
                _ => write!(out, "{padding}{blanks}{painted}{padding}{bar}")?,
            }
        }
        writeln!(out)
    }
}

/// Wraps a text to lines of at most `width` characters, after a blank or a slash if there is one.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut rest: Vec<char> = text.chars().collect();
    let mut lines = Vec::new();
    while rest.len() > width {
        let fitting = &rest[..width];
        let is_blank_next = rest[width] == ' ';
        // A line does not break after the slash that begins a path.
        let is_seam = |at: &usize| {
            fitting[*at] == ' ' || *at > 0 && fitting[*at] == '/' && fitting[at - 1] != ' '
        };
        let seam = (0..width).rev().find(is_seam);
        let at = match seam {
            _ if is_blank_next => width,
            Some(seam) => seam + 1,
            None => width,
        };
        let line: String = rest.drain(..at.max(1)).collect();
        lines.push(line.trim_end().to_owned());
        if rest.first() == Some(&' ') {
            rest.remove(0);
        }
    }
    lines.push(rest.into_iter().collect());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_left_out_until_lines_fit() {
        let widest = |max_width: usize| {
            let mut table = Table {
                titles: ["Location", "Total", "Share", "Own"]
                    .map(String::from)
                    .into(),
                rows: vec![Row {
                    cells: [
                        "load at /srv/job/etl/load.py",
                        "10.0 MB",
                        "100.00%",
                        "5.00 MB",
                    ]
                    .map(String::from)
                    .into(),
                    shares: vec![None; 4],
                }],
                first_column: FirstColumn::Shortened,
            };
            table.leave_out(&[2, 3], max_width);
            let mut out = Vec::new();
            let style = Style::Plain;
            table.write(&mut out, Some(max_width), style).unwrap();
            let text = String::from_utf8(out).unwrap();
            let width = text.lines().map(shorten::width).max().unwrap_or(0);
            (width <= max_width, table.titles.join(" "))
        };
        assert_eq!(widest(80), (true, "Location Total Share Own".into()));
        assert_eq!(widest(40), (true, "Location Total Own".into()));
        assert_eq!(widest(30), (true, "Location Total".into()));
    }

    #[test]
    fn long_texts_break_at_blanks_and_slashes_without_loss() {
        assert_eq!(
            wrap("load at /srv/job/etl/load.py", 12),
            ["load at", "/srv/job/", "etl/load.py"]
        );
        assert_eq!(wrap("Total Memory %", 8), ["Total", "Memory %"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
