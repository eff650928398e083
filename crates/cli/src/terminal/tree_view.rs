//! The view of `heaptide tree` in a terminal: the call tree, navigated with the keyboard.

use std::time::Duration;

use heaptide_analysis::Measure;
use heaptide_analysis::model::{NodeContent, PeakMoment, Tree};
use heaptide_report::text::{notes, shorten};
use heaptide_report::units::{count, percent, percentage, size};
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::paint::{self, Paint};
use super::screen::{Exit, Screen, ViewEvent};
use super::tree_state::TreeState;
use crate::exit::Failure;

const KEYS: &[(&str, &str)] = &[
    ("↑↓", "move"),
    ("→", "open"),
    ("←", "close"),
    ("/", "search"),
    ("s", "sort"),
    ("e", "open all"),
    ("c", "close all"),
    ("q", "quit"),
];
const SEARCH_KEYS: &[(&str, &str)] = &[
    ("n", "next"),
    ("N", "previous"),
    ("Esc", "no search"),
    ("s", "sort"),
    ("q", "quit"),
];
/// The columns before the tree: size, share and spaces.
const NUMBERS: usize = 22;
/// Longer than anyone waits for a key.
const FOREVER: Duration = Duration::from_secs(3600);

/// Shows the tree until the user quits.
pub(crate) fn show(tree: &Tree, paint: Paint) -> Result<Exit, Failure> {
    let mut view = TreeView {
        state: TreeState::new(tree),
        tree,
        paint,
        first_row: 0,
        n_rows: 1,
    };
    let mut screen = Screen::open()?;
    loop {
        if let Err(exit) = screen.draw(|frame| view.draw(frame)) {
            return Ok(exit);
        }
        match screen.wait(FOREVER) {
            ViewEvent::Key(key) if view.key(key) => return Ok(Exit::Key),
            ViewEvent::Control('c') => return Ok(Exit::Key),
            ViewEvent::Exit(exit) => return Ok(exit),
            _ => {}
        }
    }
}

struct TreeView<'a> {
    state: TreeState<'a>,
    tree: &'a Tree,
    paint: Paint,
    /// The row at the top of the screen, and the number of visible rows.
    first_row: usize,
    n_rows: usize,
}

impl TreeView<'_> {
    /// Handles a key. Returns true to quit.
    fn key(&mut self, key: KeyCode) -> bool {
        let state = &mut self.state;
        if state.search.is_typing() {
            state.search.key(key);
            state.find_while_typing();
            return false;
        }
        let page = self.n_rows.saturating_sub(1).max(1) as isize;
        match key {
            KeyCode::Up | KeyCode::Char('k') => state.step(-1),
            KeyCode::Down | KeyCode::Char('j') => state.step(1),
            KeyCode::PageUp => state.step(-page),
            KeyCode::PageDown => state.step(page),
            KeyCode::Home | KeyCode::Char('g') => state.step(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => state.step(isize::MAX),
            KeyCode::Right | KeyCode::Char('l') => state.open(),
            KeyCode::Left | KeyCode::Char('h') => state.close(),
            KeyCode::Enter | KeyCode::Char(' ') => state.toggle(),
            KeyCode::Char('e') => state.set_all_below(true),
            KeyCode::Char('c') => state.set_all_below(false),
            KeyCode::Char('s') => state.next_order(),
            KeyCode::Char('/') => state.search.open(),
            KeyCode::Char('n') => state.find(true),
            KeyCode::Char('N') => state.find(false),
            KeyCode::Esc if state.search.is_on() => state.search.clear(),
            KeyCode::Esc | KeyCode::Char('q') => return true,
            _ => {}
        }
        false
    }

    fn draw(&mut self, frame: &mut Frame) {
        let area = frame.area();
        let mut notes = notes::incomplete(&self.tree.quality);
        notes.extend(notes::footer(&self.tree.quality, self.tree.measure));
        notes.truncate(usize::from(area.height / 6));
        let details = if area.height >= 8 { 2 } else { 0 };
        let n_below = details + notes.len() as u16 + 1;
        let n_above = if area.height > n_below + 1 { 1 } else { 0 };
        let width = usize::from(area.width);
        if n_above > 0 {
            paint::line(frame, area, 0, self.paint.title(&self.title(), width));
        }
        let body = Rect {
            y: area.y + n_above,
            height: area.height.saturating_sub(n_above + n_below),
            ..area
        };
        self.draw_rows(frame, body);
        let mut y = n_above + body.height;
        if details > 0 {
            for line in self.details(width) {
                paint::line(frame, area, y, line);
                y += 1;
            }
        }
        for note in &notes {
            let text = shorten::end(note, width);
            paint::line(frame, area, y, Line::styled(text, self.paint.dim()));
            y += 1;
        }
        let keys = if self.state.search.is_on() {
            SEARCH_KEYS
        } else {
            KEYS
        };
        let n_matches = self.state.n_matches();
        let search = self
            .paint
            .search(&self.state.search, &format!("{n_matches} matches"));
        let last = search.unwrap_or_else(|| self.paint.keys(keys, width));
        paint::line(frame, area, area.height.saturating_sub(1), last);
    }

    fn title(&self) -> String {
        let (bytes, count) = match self.tree.nodes.first() {
            Some(root) => (root.bytes, root.count),
            None => (0, 0),
        };
        let when = match self.tree.measure {
            Measure::Peak => match self.tree.quality.peak_moment {
                PeakMoment::OfProcess => "at the peak",
                PeakMoment::Common(_) => "at the common peak of the processes",
                PeakMoment::EachOwn => "with each process at its own peak",
            },
            Measure::Leaked => "leaked",
            Measure::Total => "in total",
            Measure::Temporary => "temporary",
        };
        let order = self.state.order.name();
        let count = allocations(count);
        format!("{} in {count} {when}, by {order}", size(bytes))
    }

    fn draw_rows(&mut self, frame: &mut Frame, body: Rect) {
        self.n_rows = usize::from(body.height);
        let chosen = self.state.chosen_row();
        let n_all = self.state.rows().len();
        self.first_row = paint::scroll(self.first_row, chosen, self.n_rows, n_all);
        if self.state.rows().len() <= 1 && self.tree.nodes.len() <= 1 && body.height > 0 {
            paint::line(frame, body, 0, Line::raw("<No allocations>"));
            return;
        }
        let rows = self.state.rows().iter().enumerate();
        for (y, (row, &at)) in rows.skip(self.first_row).take(self.n_rows).enumerate() {
            let mut line = self.row(at, usize::from(body.width));
            if row == chosen {
                line = line.style(self.paint.chosen());
            }
            paint::line(frame, body, y as u16, line);
        }
    }

    fn row(&self, at: usize, width: usize) -> Line<'static> {
        let node = self.state.node(at);
        let share = percent(node.bytes, self.state.whole());
        let numbers = format!("{:>11} {:>8}  ", size(node.bytes), percentage(share));
        let room = width.saturating_sub(NUMBERS);
        let max_depth = room / 4;
        let mut indent = "  ".repeat(node.depth.min(max_depth));
        if node.depth > max_depth {
            indent = format!(
                "{:<width$}",
                format!("[{}]", node.depth),
                width = max_depth * 2
            );
        }
        let sign = match self.state.fold(at) {
            Some(true) => "▾ ",
            Some(false) => "▸ ",
            None => "  ",
        };
        let room = room.saturating_sub(shorten::width(&indent) + 2);
        let name_style = if self.state.is_match(at) {
            self.paint.highlight()
        } else {
            Style::new().add_modifier(Modifier::BOLD)
        };
        let mut spans = vec![
            Span::styled(numbers, self.paint.share(share)),
            Span::styled(format!("{indent}{sign}"), self.paint.dim()),
        ];
        match &node.content {
            NodeContent::Root => spans.push(Span::raw("<ROOT>")),
            NodeContent::NoFrames => spans.push(Span::raw("<stack trace unavailable>")),
            NodeContent::Elided { n_locations } => {
                let text = format!("{n_locations} smaller locations");
                spans.push(Span::styled(shorten::end(&text, room), self.paint.dim()));
            }
            NodeContent::Frame(location) => {
                let function = shorten::end(&location.function, room);
                let room = room.saturating_sub(shorten::width(&function) + 1);
                let file = shorten::start(&location.file_and_line(), room);
                spans.push(Span::styled(function, name_style));
                spans.push(Span::styled(format!(" {file}"), self.paint.dim()));
            }
        }
        Line::from(spans)
    }

    /// Returns the details of the chosen node.
    fn details(&self, width: usize) -> [Line<'static>; 2] {
        let Some(at) = self.state.chosen() else {
            return [Line::default(), Line::default()];
        };
        let node = self.state.node(at);
        let of_whole = percent(node.bytes, self.state.whole());
        let of_caller = percent(node.bytes, self.state.parent(at).bytes);
        let text = match &node.content {
            NodeContent::Frame(location) => {
                shorten::function_at_file(&location.function, &location.file_and_line(), width)
            }
            NodeContent::Root => "everything".into(),
            NodeContent::NoFrames => "allocated without a Python frame".into(),
            NodeContent::Elided { n_locations } => {
                format!("{n_locations} locations that are too small to show")
            }
        };
        let numbers = format!(
            "{} in {}: {} of the total, {} of the caller",
            size(node.bytes),
            allocations(node.count),
            percentage(of_whole),
            percentage(of_caller),
        );
        [
            Line::raw(shorten::end(&text, width)),
            Line::raw(shorten::end(&numbers, width)),
        ]
    }
}

fn allocations(number: u64) -> String {
    match number {
        1 => "one allocation".to_owned(),
        n => format!("{} allocations", count(n)),
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::tree_state::tests::tree;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// Returns the text of a frame in a terminal of this size.
    pub fn rendered(draw: impl FnOnce(&mut Frame), width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(draw).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let lines = (0..height).map(|y| {
            let cells = (0..width).map(|x| buffer[(x, y)].symbol());
            cells.collect::<String>().trim_end().to_owned()
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn view(tree: &Tree) -> TreeView<'_> {
        TreeView {
            state: TreeState::new(tree),
            tree,
            paint: Paint::Plain,
            first_row: 0,
            n_rows: 1,
        }
    }

    #[test]
    fn title_names_the_shown_blocks() {
        let mut tree = tree(&[(0, "", 5_000_000, 1)]);
        for (counted, title) in [
            (Measure::Leaked, "one allocation leaked"),
            (Measure::Total, "one allocation in total"),
            (Measure::Temporary, "one allocation temporary"),
        ] {
            tree.measure = counted;
            let text = view(&tree).title();
            assert_eq!(text, format!("5.00 MB in {title}, by size"));
        }
    }

    #[test]
    fn tree_is_drawn_with_numbers_first_and_details_of_the_chosen_node() {
        let tree = tree(&[
            (0, "", 5_000_000, 9),
            (1, "main", 4_500_000, 4),
            (1, "helper", 500_000, 5),
        ]);
        let mut view = view(&tree);
        view.key(KeyCode::Down);
        let expected = "\
5.00 MB in 9 allocations at the peak, by size
    5.00 MB     100%  ▾ <ROOT>
    4.50 MB      90%      main /x/y.py:7
     500 kB      10%      helper /x/y.py:7


main at /x/y.py:7
4.50 MB in 4 allocations: 90% of the total, 90% of the caller
↑↓ move  → open  ← close  / search  s sort  e open all  c close all  q quit";
        assert_eq!(rendered(|frame| view.draw(frame), 80, 9), expected);
    }

    #[test]
    fn any_terminal_size_and_any_key_work() {
        let mut deep = vec![(0, "", 1 << 40, 999_999)];
        let name = "数据处理".repeat(20);
        deep.extend((1..400).map(|depth| (depth, &name[..], 1 << 39, 7)));
        for tree in [tree(&deep), tree(&[(0, "", 0, 0)]), tree(&[])] {
            let mut view = view(&tree);
            for size in [0, 1, 2, 3, 5, 8, 13, 21, 34] {
                let keys = "jjlekNn /数\nssGgch".chars().map(|letter| match letter {
                    '\n' => KeyCode::Enter,
                    letter => KeyCode::Char(letter),
                });
                for key in keys.chain([KeyCode::PageDown, KeyCode::PageUp, KeyCode::Esc]) {
                    view.key(key);
                    rendered(|frame| view.draw(frame), size * 3, size);
                }
            }
        }
    }
}
