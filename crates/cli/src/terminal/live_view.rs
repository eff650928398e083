//! `heaptide live`: a running program, its memory over time and who holds it.

use std::time::Duration;

use heaptide_analysis::model::Live;
use heaptide_analysis::model::live::{LiveOrder, LiveRow};
use heaptide_report::text::{live, shorten};
use heaptide_report::units::{percent, size};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::curve;
use super::live_state::{LiveState, Wish};
use super::paint::{self, Paint};
use super::screen::{Happened, Left, Screen};
use crate::exit::Failure;
use crate::live::Feed;

const KEYS: &[(&str, &str)] = &[
    ("t", "total"),
    ("o", "own"),
    ("a", "blocks"),
    ("<>", "thread"),
    ("/", "search"),
    ("space", "pause"),
    ("m", "all"),
    ("q", "leave"),
];
/// Columns that a size with its share, and a number of blocks take.
const SIZE: usize = 21;
const COUNT: usize = 9;
/// Columns that all numbers of a row take.
const NUMBERS: usize = 2 * SIZE + COUNT;
/// With less than that for the place of a function, not all numbers are shown.
const MIN_PLACE: usize = 18;
/// How often the picture is looked after.
const BEAT: Duration = Duration::from_millis(100);

/// What belongs to a program that was started for being watched.
pub(crate) trait Companion {
    /// The last lines of what it has printed.
    fn output(&mut self, n_lines: usize) -> Vec<String>;
    /// Ctrl-C was pressed; true if the view should be left.
    fn interrupt(&mut self) -> bool;
}

/// Shows the program until whoever looks at it has seen enough.
pub(crate) fn show(
    feed: &Feed,
    companion: Option<&mut dyn Companion>,
    paint: Paint,
) -> Result<Left, Failure> {
    let mut view = LiveView {
        state: LiveState::default(),
        companion,
        paint,
        first_row: 0,
        n_rows: 1,
    };
    let mut screen = Screen::open()?;
    loop {
        view.state.take(feed.newest());
        if let Err(left) = screen.draw(|frame| view.draw(frame)) {
            return Ok(left);
        }
        match screen.wait(BEAT) {
            Happened::Key(key) if view.state.key(key, view.n_rows) == Wish::Leave => {
                return Ok(Left::ByKey);
            }
            Happened::Control('c') => {
                let stays = match &mut view.companion {
                    Some(companion) => !companion.interrupt(),
                    None => false,
                };
                if !stays {
                    return Ok(Left::ByKey);
                }
            }
            Happened::Left(left) => return Ok(left),
            _ => {}
        }
    }
}

struct LiveView<'a> {
    state: LiveState,
    companion: Option<&'a mut dyn Companion>,
    paint: Paint,
    first_row: usize,
    n_rows: usize,
}

impl LiveView<'_> {
    fn draw(&mut self, frame: &mut Frame) {
        let area = frame.area();
        let width = usize::from(area.width);
        let mut top = Vec::new();
        match self.state.live() {
            Some(live) => {
                top.push(self.paint.title(&self.title(live), width));
                // The signs are those of the two lines below.
                let sums = live::sums(live).replace(" · resident", " · • resident");
                top.push(Line::raw(shorten::end(&format!("⠤ {sums}"), width)));
            }
            None => top.push(self.paint.title(&self.waiting(), width)),
        }
        for note in self.notes() {
            top.push(Line::styled(shorten::end(&note, width), self.paint.found()));
        }
        let n_top = top.len() as u16;
        for (y, line) in top.into_iter().enumerate() {
            paint::line(frame, area, y as u16, line);
        }
        let left = area.height.saturating_sub(n_top + 1);
        let curve_height = if left >= 14 { left / 3 } else { 0 };
        let place = Rect {
            y: area.y + n_top,
            height: curve_height,
            ..area
        };
        if let Some(live) = self.state.live().filter(|_| curve_height > 0) {
            curve::draw(frame, place, &live.curve, live.limit_bytes, self.paint);
        }
        let body = Rect {
            y: area.y + n_top.min(area.height) + curve_height,
            height: left - curve_height,
            ..area
        };
        if self.state.shows_output {
            self.draw_output(frame, body);
        } else {
            self.draw_functions(frame, body);
        }
        self.draw_keys(frame, area);
    }

    fn draw_keys(&self, frame: &mut Frame, area: Rect) {
        let width = usize::from(area.width);
        let mut keys = KEYS.to_vec();
        if self.companion.is_some() {
            // What does not fit is left out from the end on, but for how to leave.
            keys.insert(keys.len() - 2, ("p", "output"));
        }
        let n_found = self.state.rows().len();
        let search = self
            .paint
            .search(&self.state.search, &format!("{n_found} found"));
        let last = search.unwrap_or_else(|| self.paint.keys(&keys, width));
        paint::line(frame, area, area.height.saturating_sub(1), last);
    }

    fn waiting(&self) -> String {
        let update = self.state.update();
        match &update.failure {
            Some(failure) => failure.clone(),
            None if update.is_gone => "the program has ended and recorded nothing".into(),
            None => "waiting for the program to begin".into(),
        }
    }

    fn title(&self, live: &Live) -> String {
        let update = self.state.update();
        let state = if self.state.is_paused {
            "paused"
        } else if live.is_ended {
            "ended"
        } else if update.is_last() {
            "gone"
        } else {
            "running"
        };
        live::headline(live, state)
    }

    fn notes(&self) -> Vec<String> {
        let update = self.state.update();
        let mut notes: Vec<String> = update.failure.iter().cloned().collect();
        notes.extend(self.state.live().into_iter().flat_map(live::notes));
        if update.n_missed > 0 {
            notes.push(format!("{} updates came and went unseen", update.n_missed));
        }
        notes
    }

    fn draw_functions(&mut self, frame: &mut Frame, body: Rect) {
        let width = usize::from(body.width);
        self.n_rows = usize::from(body.height.saturating_sub(2));
        let whole = self.state.live().map_or(0, |live| live.heap_bytes);
        let rows = self.state.rows();
        let chosen = self.state.chosen.min(rows.len().saturating_sub(1));
        self.first_row = paint::scroll(self.first_row, chosen, self.n_rows, rows.len());
        let s = if rows.len() == 1 { "" } else { "s" };
        let about = format!("{} function{s} of {}", rows.len(), self.state.describe());
        paint::line(
            frame,
            body,
            0,
            Line::styled(shorten::end(&about, width), self.paint.dim()),
        );
        paint::line(frame, body, 1, self.head(width));
        let shown = rows
            .iter()
            .enumerate()
            .skip(self.first_row)
            .take(self.n_rows);
        for (y, (number, row)) in shown.enumerate() {
            let mut line = self.row(row, whole, width);
            if number == chosen {
                line = line.style(self.paint.chosen());
            }
            paint::line(frame, body, y as u16 + 2, line);
        }
    }

    /// Columns for the place of a function, and whether all numbers have room beside it; else there is only what the rows are
    /// sorted by.
    fn division(&self, width: usize) -> (usize, bool) {
        if width >= NUMBERS + MIN_PLACE {
            return (width - NUMBERS, true);
        }
        let numbers = match self.state.order {
            LiveOrder::Count => COUNT,
            LiveOrder::Total | LiveOrder::Own => SIZE,
        };
        (width.saturating_sub(numbers).max(1), false)
    }

    fn shows(&self, column: LiveOrder, has_room: bool) -> bool {
        has_room || self.state.order == column
    }

    fn head(&self, width: usize) -> Line<'static> {
        let (place, has_room) = self.division(width);
        let mut text = format!("{:<place$}", "Location");
        for (column, title) in [
            (LiveOrder::Total, "Total"),
            (LiveOrder::Own, "Own"),
            (LiveOrder::Count, "Blocks"),
        ] {
            if !self.shows(column, has_room) {
                continue;
            }
            let title = if self.state.order == column {
                format!("<{title}>")
            } else {
                title.to_owned()
            };
            text += &match column {
                LiveOrder::Count => format!(" {title:>8}"),
                LiveOrder::Total | LiveOrder::Own => format!(" {title:>11} {:>8}", "%"),
            };
        }
        let text = shorten::end(&text, width);
        Line::styled(text, Style::new().add_modifier(Modifier::BOLD))
    }

    fn row(&self, row: &LiveRow, whole: u64, width: usize) -> Line<'static> {
        let (place, has_room) = self.division(width);
        let name = shorten::place(row.function, row.file, place);
        let blanks = " ".repeat(place.saturating_sub(shorten::width(&name)));
        let number = |bytes: u64| {
            let share = percent(bytes, whole);
            let text = format!(" {:>11} {share:>7.2}%", size(bytes));
            Span::styled(text, self.paint.share(share))
        };
        let name_style = if self.state.search.is_on() {
            self.paint.found()
        } else {
            Style::new()
        };
        let numbers = [
            (LiveOrder::Total, number(row.total_bytes)),
            (LiveOrder::Own, number(row.own_bytes)),
            (LiveOrder::Count, Span::raw(format!(" {:>8}", row.count))),
        ];
        let mut spans = vec![Span::styled(name, name_style), Span::raw(blanks)];
        spans.extend(
            numbers
                .into_iter()
                .filter(|&(column, _)| self.shows(column, has_room))
                .map(|(_, span)| span),
        );
        Line::from(spans)
    }

    fn draw_output(&mut self, frame: &mut Frame, body: Rect) {
        let width = usize::from(body.width);
        let n_lines = usize::from(body.height.saturating_sub(1));
        let lines = match &mut self.companion {
            Some(companion) => companion.output(n_lines),
            None => vec!["what a program prints is in its own terminal".into()],
        };
        let title = Line::styled("what the program prints", self.paint.dim());
        paint::line(frame, body, 0, title);
        let skipped = lines.len().saturating_sub(n_lines);
        for (y, line) in lines.iter().skip(skipped).enumerate() {
            let line = Line::raw(shorten::end(line, width));
            paint::line(frame, body, y as u16 + 1, line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::live_state::tests::update;
    use super::super::tree_view::tests::picture;
    use super::*;
    use crate::live::Update;
    use ratatui::crossterm::event::KeyCode;

    fn view() -> LiveView<'static> {
        LiveView {
            state: LiveState::default(),
            companion: None,
            paint: Paint::Plain,
            first_row: 0,
            n_rows: 1,
        }
    }

    #[test]
    fn program_is_drawn_with_its_sums_and_functions() {
        let mut view = view();
        view.state.take(update(1));
        let expected = "\
running 12.3 s · process 4711 · job.py
⠤ heap 10.000MB in 17 blocks, at most 20.000MB · • resident 30.000MB
3 functions of all 2 threads, by total memory
Location                          <Total>        %         Own        % Blocks
load at /srv/job.py               9.500MB   95.00%     9.500MB   95.00%       11
main at /srv/job.py               9.000MB   90.00%      0.000B    0.00%       10
work at /srv/job.py               1.000MB   10.00%   500.000kB    5.00%        7
t total  o own  a blocks  <> thread  / search  space pause  m all  q leave";
        let seen = picture(|frame| view.draw(frame), 80, 8);
        assert_eq!(seen.replace("   Blocks", " Blocks"), expected);
        let seen = picture(|frame| view.draw(frame), 80, 24);
        assert!(
            seen.contains("resident") && seen.contains("30.000MB"),
            "{seen}"
        );
    }

    #[test]
    fn narrow_terminal_shows_what_the_rows_are_sorted_by() {
        let mut view = view();
        view.state.take(update(1));
        let seen = picture(|frame| view.draw(frame), 40, 8);
        assert!(
            seen.contains("load at /srv/job.py     9.500MB   95.00%"),
            "{seen}"
        );
        view.state.key(KeyCode::Char('a'), view.n_rows);
        let seen = picture(|frame| view.draw(frame), 40, 8);
        assert!(
            seen.contains("load at /srv/job.py                   11"),
            "{seen}"
        );
    }

    #[test]
    fn any_size_of_terminal_and_any_key_is_survived() {
        let nothing = Update {
            is_gone: true,
            ..Update::default()
        };
        for update in [update(1), nothing, Update::default()] {
            let mut view = view();
            view.state.take(update);
            for size in [0, 1, 2, 3, 5, 8, 13, 16, 21, 34] {
                for key in "jjk>>toa p/w\n".chars() {
                    let key = if key == '\n' {
                        KeyCode::Enter
                    } else {
                        KeyCode::Char(key)
                    };
                    view.state.key(key, view.n_rows);
                    picture(|frame| view.draw(frame), size * 3, size);
                }
                view.state.key(KeyCode::Esc, view.n_rows);
                view.state.key(KeyCode::Char('p'), view.n_rows);
            }
        }
    }
}
