//! Colours of the terminal views, and lines that all of them have.

use heaptide_report::text::shorten;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::input::Search;
use crate::output::color;

/// Whether to use colours. Without them, bold and reverse video remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Colours,
}

impl Paint {
    /// Returns `Colours` unless the user refuses them.
    pub(crate) fn of_environment() -> Paint {
        match color::is_wanted(true) {
            true => Paint::Colours,
            false => Paint::Plain,
        }
    }

    fn colour(self, colour: Color) -> Style {
        match self {
            Paint::Plain => Style::new(),
            Paint::Colours => Style::new().fg(colour),
        }
    }

    pub(crate) fn line(self, colour: Color) -> Style {
        self.colour(colour)
    }

    pub(crate) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(crate) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(crate) fn highlight(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        style.patch(self.colour(Color::Yellow))
    }

    /// Returns the colour of a share of the total, as in printed reports.
    pub(crate) fn share(self, percent: f64) -> Style {
        self.colour(match percent {
            percent if percent > 60.0 => Color::Red,
            percent if percent > 20.0 => Color::Yellow,
            percent if percent > 5.0 => Color::Green,
            _ => Color::LightGreen,
        })
    }

    pub(crate) fn title(self, text: &str, width: usize) -> Line<'static> {
        let style = self.colour(Color::Cyan).add_modifier(Modifier::BOLD);
        Line::styled(shorten::end(text, width), style)
    }

    /// Returns the line of keys. The last key is always shown, the others only if they fit.
    pub(crate) fn keys(self, keys: &[(&str, &str)], width: usize) -> Line<'static> {
        let columns = |(key, what): &(&str, &str)| shorten::width(key) + shorten::width(what) + 3;
        let mut left = (width + 2).saturating_sub(keys.last().map_or(0, columns));
        let mut spans = Vec::new();
        for (number, (key, what)) in keys.iter().enumerate() {
            if number + 1 < keys.len() {
                match left.checked_sub(columns(&(key, what))) {
                    Some(rest) => left = rest,
                    None => continue,
                }
            }
            let bold = self.colour(Color::Cyan).add_modifier(Modifier::BOLD);
            let between = if spans.is_empty() { "" } else { "  " };
            spans.push(Span::styled(format!("{between}{key}"), bold));
            spans.push(Span::raw(format!(" {what}")));
        }
        Line::from(spans)
    }

    /// Returns the search line while a search is typed.
    pub(crate) fn search(self, search: &Search, result: &str) -> Option<Line<'static>> {
        search.is_typing().then(|| {
            let text = format!("/{}▏ ", shorten::harmless(search.text()));
            let hint = format!("{result}  Enter keep  Esc clear");
            Line::from(vec![Span::raw(text), Span::styled(hint, self.dim())])
        })
    }
}

/// Draws a line at row `y` of the area, if it has that row.
pub(super) fn line(frame: &mut Frame, area: Rect, y: u16, line: Line) {
    if y < area.height {
        let row = Rect {
            y: area.y + y,
            height: 1,
            ..area
        };
        frame.render_widget(line, row);
    }
}

/// Returns the index of the first of `n_all` rows to show, where `n_rows` fit. The chosen row is visible. No row at the
/// bottom is empty while rows are hidden above. Within these limits the view scrolls as little as possible.
pub(super) fn scroll(first: usize, chosen: usize, n_rows: usize, n_all: usize) -> usize {
    let least = (chosen + 1).saturating_sub(n_rows);
    first
        .min(n_all.saturating_sub(n_rows))
        .clamp(least, chosen.max(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quit_key_is_shown_at_any_width() {
        let keys = [
            ("a", "one"),
            ("b", "a long word"),
            ("c", "two"),
            ("q", "quit"),
        ];
        let text = |width| Paint::Plain.keys(&keys, width).to_string();
        assert_eq!(text(80), "a one  b a long word  c two  q quit");
        assert_eq!(text(20), "a one  c two  q quit");
        assert_eq!(text(19), "a one  q quit");
        assert_eq!(text(3), "q quit");
    }

    #[test]
    fn chosen_row_is_visible_and_the_view_scrolls_as_little_as_possible() {
        assert_eq!(scroll(0, 3, 10, 40), 0);
        assert_eq!(scroll(0, 12, 10, 40), 3);
        assert_eq!(scroll(8, 12, 10, 40), 8);
        assert_eq!(scroll(8, 4, 10, 40), 4);
        assert_eq!(scroll(0, 5, 0, 40), 6);
    }

    #[test]
    fn hidden_rows_return_when_they_fit() {
        assert_eq!(scroll(1, 1, 25, 6), 0);
        assert_eq!(scroll(8, 12, 10, 14), 4);
    }
}
