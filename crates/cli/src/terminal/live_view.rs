//! The view of `heaptide live`: memory over time and the live heap by function or job.

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
use super::live_state::{LiveState, Reaction};
use super::paint::{self, Paint};
use super::screen::{Exit, Screen, ViewEvent};
use crate::exit::Failure;
use crate::live::{Feed, JobOptions};

const KEYS: &[(&str, &str)] = &[
    ("t", "total"),
    ("o", "own"),
    ("a", "blocks"),
    ("<>", "thread"),
    ("/", "search"),
    ("space", "pause"),
    ("m", "all"),
    ("b", "jobs"),
    ("q", "quit"),
];
/// The widths of a size with its share and of a number of blocks.
const SIZE: usize = 21;
const COUNT: usize = 9;
/// With less width for the location, only the sort column is shown.
const MIN_LOCATION: usize = 18;
/// The interval between two frames.
const FRAME_INTERVAL: Duration = Duration::from_millis(100);

/// A program that was started for the live view.
pub(crate) trait Companion {
    /// Returns the last lines of its output.
    fn output(&mut self, n_lines: usize) -> Vec<String>;
    /// Handles Ctrl-C. Returns true to close the view.
    fn interrupt(&mut self) -> bool;
}

/// Shows the program until the user quits.
pub(crate) fn show(
    feed: &Feed,
    companion: Option<&mut dyn Companion>,
    jobs: JobOptions,
    paint: Paint,
) -> Result<Exit, Failure> {
    let mut view = LiveView {
        state: LiveState::new(jobs),
        companion,
        paint,
        first_row: 0,
        n_rows: 1,
    };
    let mut screen = Screen::open()?;
    loop {
        view.state.take(feed.newest());
        if let Err(exit) = screen.draw(|frame| view.draw(frame)) {
            return Ok(exit);
        }
        match screen.wait(FRAME_INTERVAL) {
            ViewEvent::Key(key) if view.state.key(key, view.n_rows) == Reaction::Quit => {
                return Ok(Exit::Key);
            }
            ViewEvent::Control('c') => {
                let is_open = match &mut view.companion {
                    Some(companion) => !companion.interrupt(),
                    None => false,
                };
                if !is_open {
                    return Ok(Exit::Key);
                }
            }
            ViewEvent::Exit(exit) => return Ok(exit),
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
                // Each size is preceded by the symbol of its curve.
                let sums = live::sums(live).replace(" · resident", " · • resident");
                top.push(Line::raw(shorten::end(&format!("⠤ {sums}"), width)));
            }
            None => top.push(self.paint.title(&self.waiting(), width)),
        }
        for note in self.notes() {
            top.push(Line::styled(
                shorten::end(&note, width),
                self.paint.highlight(),
            ));
        }
        let n_top = top.len() as u16;
        for (y, line) in top.into_iter().enumerate() {
            paint::line(frame, area, y as u16, line);
        }
        let left = area.height.saturating_sub(n_top + 1);
        let curve_height = if left >= 14 { left / 3 } else { 0 };
        let chart = Rect {
            y: area.y + n_top,
            height: curve_height,
            ..area
        };
        if let Some(live) = self.state.live().filter(|_| curve_height > 0) {
            curve::draw(frame, chart, &live.curve, live.limit_bytes, self.paint);
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
            // Not at the end: keys are added in order while they fit, and only the last is always shown.
            keys.insert(keys.len() - 3, ("p", "output"));
        }
        let n_matches = self.state.rows().len();
        let search = self
            .paint
            .search(&self.state.search, &format!("{n_matches} matches"));
        let last = search.unwrap_or_else(|| self.paint.keys(&keys, width));
        paint::line(frame, area, area.height.saturating_sub(1), last);
    }

    fn waiting(&self) -> String {
        let update = self.state.update();
        match &update.failure {
            Some(failure) => failure.clone(),
            None if update.is_gone => "the program has ended and recorded nothing".into(),
            None => "waiting for the program to start".into(),
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
            notes.push(format!("{} updates missed", update.n_missed));
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
        let what = if self.state.jobs.by_job {
            "job"
        } else {
            "function"
        };
        let about = format!("{} {what}{s} of {}", rows.len(), self.state.describe());
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

    /// Returns the width of the location, and whether all numbers fit next to it. If not, only the sort column is shown.
    fn division(&self, width: usize) -> (usize, bool) {
        let numbers = |has_room| {
            let columns = [
                (LiveOrder::Total, SIZE),
                (LiveOrder::Own, SIZE),
                (LiveOrder::Count, COUNT),
            ];
            let shown = columns.into_iter();
            let shown = shown.filter(|&(column, _)| self.shows(column, has_room));
            shown.map(|(_, width)| width).sum::<usize>()
        };
        if width >= numbers(true) + MIN_LOCATION {
            return (width - numbers(true), true);
        }
        (width.saturating_sub(numbers(false)).max(1), false)
    }

    fn shows(&self, column: LiveOrder, has_room: bool) -> bool {
        // All allocations of a job's functions are the job's own, so the column would repeat another one.
        let is_repeated = self.state.jobs.by_job && column == LiveOrder::Own;
        (has_room && !is_repeated) || self.state.order == column
    }

    fn head(&self, width: usize) -> Line<'static> {
        let (location, has_room) = self.division(width);
        let first = if self.state.jobs.by_job {
            "Job"
        } else {
            "Location"
        };
        let mut text = format!("{first:<location$}");
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
        let (location, has_room) = self.division(width);
        let name = match (self.state.jobs.by_job, row.n_running) {
            (false, _) => shorten::function_at_file(row.function, row.file, location),
            (true, 0) => shorten::end(row.function, location),
            (true, n) => shorten::end(&format!("{} ({n} running)", row.function), location),
        };
        let blanks = " ".repeat(location.saturating_sub(shorten::width(&name)));
        let number = |bytes: u64| {
            let share = percent(bytes, whole);
            let text = format!(" {:>11} {share:>7.2}%", size(bytes));
            Span::styled(text, self.paint.share(share))
        };
        let name_style = if self.state.search.is_on() {
            self.paint.highlight()
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
            None => vec!["the output of the program is in its own terminal".into()],
        };
        let title = Line::styled("output of the program", self.paint.dim());
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
    use super::super::tree_view::tests::rendered;
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
    fn sums_and_functions_are_drawn() {
        let mut view = view();
        view.state.take(update(1));
        let expected = "\
running 12.3 s · process 4711 · job.py
⠤ heap 10.0 MB in 17 blocks, at most 20.0 MB · • resident 30.0 MB
3 functions of all 2 threads, by total memory
Location                          <Total>        %         Own        % Blocks
load at /srv/job.py               9.50 MB   95.00%     9.50 MB   95.00%       11
main at /srv/job.py               9.00 MB   90.00%         0 B    0.00%       10
work at /srv/job.py               1.00 MB   10.00%      500 kB    5.00%        7
t total  o own  a blocks  <> thread  / search  space pause  m all  q quit";
        let seen = rendered(|frame| view.draw(frame), 80, 8);
        assert_eq!(seen.replace("   Blocks", " Blocks"), expected);
        let seen = rendered(|frame| view.draw(frame), 80, 24);
        assert!(
            seen.contains("resident") && seen.contains("30.0 MB"),
            "{seen}"
        );
        assert!(seen.contains(" 11.0 s"), "the last of 12 bins: {seen}");
    }

    #[test]
    fn jobs_are_drawn() {
        let mut view = view();
        view.state.jobs.by_job = true;
        view.state.take(update(1));
        let seen = rendered(|frame| view.draw(frame), 60, 8);
        assert!(seen.contains("2 jobs of all 2 threads"), "{seen}");
        assert!(!seen.contains("Own"), "{seen}");
        let row = seen
            .lines()
            .find(|line| line.starts_with("import (2 running)"));
        let row = row.expect(&seen);
        assert!(row.contains("1.00 MB   10.00%"), "{seen}");
    }

    #[test]
    fn narrow_terminal_shows_only_the_sort_column() {
        let mut view = view();
        view.state.take(update(1));
        let seen = rendered(|frame| view.draw(frame), 40, 8);
        assert!(
            seen.contains("load at /srv/job.py     9.50 MB   95.00%"),
            "{seen}"
        );
        view.state.key(KeyCode::Char('a'), view.n_rows);
        let seen = rendered(|frame| view.draw(frame), 40, 8);
        assert!(
            seen.contains("load at /srv/job.py                   11"),
            "{seen}"
        );
    }

    #[test]
    fn any_terminal_size_and_any_key_work() {
        let nothing = Update {
            is_gone: true,
            ..Update::default()
        };
        for update in [update(1), nothing, Update::default()] {
            let mut view = view();
            view.state.take(update);
            for size in [0, 1, 2, 3, 5, 8, 13, 16, 21, 34] {
                for key in "jjk>>b]toab[ p/w\n".chars() {
                    let key = if key == '\n' {
                        KeyCode::Enter
                    } else {
                        KeyCode::Char(key)
                    };
                    view.state.key(key, view.n_rows);
                    rendered(|frame| view.draw(frame), size * 3, size);
                }
                view.state.key(KeyCode::Esc, view.n_rows);
                view.state.key(KeyCode::Char('p'), view.n_rows);
            }
        }
    }
}
