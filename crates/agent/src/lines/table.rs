//! The sums of one call: the visits of every line, the largest resident size after it, and its increment.
//!
//! The increment of a line is known when the next one begins, so one line is always *open*: the last one that began in the
//! innermost frame. A call within the table's own code opens another line; when it ends, the caller's line is open again.
//! So the increments of recursive functions, lambdas and comprehensions add up to the increment of the whole call, and none
//! is counted twice. Calls of other functions belong to the line that made them.

use super::Code;
use super::reading::Reader;

/// The maximum number of lines of a function; further lines are ignored.
const MAX_LINES: usize = 1 << 20;

/// An event of a frame, as the interpreter reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The frame begins, or continues after a `yield` or `await`.
    Start,
    Line(u32),
    Return,
    /// The frame pauses.
    Yield,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub n_visits: u64,
    /// The largest resident size at the end of the line.
    pub most_bytes: i64,
    pub increment_bytes: i64,
}

#[derive(Clone, Copy)]
struct Level {
    /// Distinguishes frames; 0 for all if the interpreter's layout is unknown.
    frame: usize,
    /// The open line.
    line: u32,
}

pub struct Table {
    first_line: u32,
    rows: Vec<Row>,
    /// Frames of the table's own code, outermost first.
    levels: Vec<Level>,
    /// Paused frames, with the line on which they paused.
    suspended: Vec<Level>,
    reader: Reader,
    /// The size up to which increments were assigned to lines.
    settled_bytes: i64,
    first_bytes: Option<i64>,
    /// Whether the first line shows all memory that existed before the call.
    from_nothing: bool,
    n_entered: u32,
}

impl Table {
    pub fn new(first_line: u32, reader: Reader, from_nothing: bool) -> Table {
        Table {
            first_line,
            rows: Vec::new(),
            levels: Vec::new(),
            suspended: Vec::new(),
            reader,
            settled_bytes: 0,
            first_bytes: None,
            from_nothing,
            n_entered: 0,
        }
    }

    /// Begins or continues the call. A change while it was paused belongs to no line.
    pub fn enter(&mut self) {
        self.n_entered += 1;
        if self.n_entered > 1 {
            return;
        }
        let bytes = self.reader.read();
        let is_first = self.first_bytes.is_none();
        self.first_bytes.get_or_insert(bytes);
        if !(is_first && self.from_nothing) {
            self.settled_bytes = bytes;
        }
    }

    /// Ends or pauses the call. Settles a line that an exception left open.
    pub fn leave(&mut self) {
        self.n_entered = self.n_entered.saturating_sub(1);
        if self.n_entered == 0 {
            if !self.levels.is_empty() {
                self.reader.read();
                self.settle();
            }
            self.levels.clear();
        }
    }

    /// Excludes bytes that the profiler allocated or freed.
    pub fn set_aside(&mut self, bytes: i64) {
        self.settled_bytes += bytes;
    }

    #[inline]
    pub fn event(&mut self, code: &Code, frame: usize, what: Event) {
        self.reader.read_if_it_may_have_changed();
        match what {
            Event::Line(line) => {
                self.settle();
                match self.at_frame(frame) {
                    Some(level) => level.line = line,
                    None => self.levels.push(Level { frame, line }),
                }
                self.visit(line);
            }
            Event::Start => {
                self.settle();
                // A frame that ended with an exception reported no end; this one reuses its memory.
                if frame != 0 && self.at_frame(frame).is_some() {
                    self.levels.pop();
                }
                let paused = self
                    .suspended
                    .iter()
                    .rposition(|level| level.frame == frame);
                if let (true, Some(at)) = (code.suspends, paused) {
                    let level = self.suspended.swap_remove(at);
                    self.levels.push(level);
                } else {
                    let line = code.first_line;
                    self.levels.push(Level { frame, line });
                    self.visit(line);
                }
            }
            Event::Return | Event::Yield => {
                self.settle();
                if self.at_frame(frame).is_some() {
                    let level = self.levels.pop();
                    if what == Event::Yield && code.suspends {
                        self.suspended.extend(level);
                    }
                }
            }
        }
        self.reader.mark();
    }

    /// Makes a frame the innermost and returns its level. Frames above it ended without an event.
    fn at_frame(&mut self, frame: usize) -> Option<&mut Level> {
        match self.levels.last() {
            Some(last) if last.frame == frame => {}
            _ => {
                let at = self.levels.iter().rposition(|level| level.frame == frame)?;
                self.levels.truncate(at + 1);
            }
        }
        self.levels.last_mut()
    }

    /// Assigns the change since the last event to the open line.
    fn settle(&mut self) {
        let bytes = self.reader.bytes;
        let Some(line) = self.levels.last().map(|level| level.line) else {
            return;
        };
        let increment = bytes - self.settled_bytes;
        if let Some(row) = self.row(line) {
            row.increment_bytes += increment;
            row.most_bytes = row.most_bytes.max(bytes);
            self.settled_bytes = bytes;
        }
    }

    fn visit(&mut self, line: u32) {
        if let Some(row) = self.row(line) {
            row.n_visits += 1;
        }
    }

    #[inline]
    fn row(&mut self, line: u32) -> Option<&mut Row> {
        let at = line.checked_sub(self.first_line)? as usize;
        if at >= self.rows.len() && at < MAX_LINES {
            self.rows.resize(at + 1, Row::default());
        }
        self.rows.get_mut(at)
    }

    /// Returns the lines that ran, with their numbers.
    pub fn rows(&self) -> impl Iterator<Item = (u32, Row)> + '_ {
        (self.first_line..)
            .zip(self.rows.iter().copied())
            .filter(|(_, row)| row.n_visits > 0)
    }

    /// Returns the size at the start of the call and at the last reading.
    pub fn first_and_last_bytes(&self) -> (i64, i64) {
        (
            self.first_bytes.unwrap_or(self.reader.bytes),
            self.reader.bytes,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    const CODE: Code = Code {
        address: 1,
        first_line: 10,
        suspends: true,
    };

    struct Program {
        size: Arc<AtomicU64>,
        table: Table,
    }

    impl Program {
        fn new(bytes: u64) -> Program {
            let size = Arc::new(AtomicU64::new(bytes));
            let queried = size.clone();
            let query = Box::new(move || Some(queried.load(Ordering::Relaxed)));
            let table = Table::new(10, Reader::always(query), true);
            Program { size, table }
        }

        fn grow(&self, bytes: i64) {
            self.size.fetch_add(bytes as u64, Ordering::Relaxed);
        }

        fn event(&mut self, frame: usize, what: Event) {
            self.table.event(&CODE, frame, what);
        }

        fn rows(&self) -> Vec<(u32, u64, i64, i64)> {
            let rows = self.table.rows();
            rows.map(|(line, row)| (line, row.n_visits, row.most_bytes, row.increment_bytes))
                .collect()
        }
    }

    #[test]
    fn first_line_shows_the_initial_size_and_others_their_increments() {
        let mut program = Program::new(1000);
        program.table.enter();
        program.event(1, Event::Start);
        program.event(1, Event::Line(11));
        program.grow(70);
        program.event(1, Event::Line(12));
        program.grow(-20);
        program.event(1, Event::Return);
        program.table.leave();
        assert_eq!(
            program.rows(),
            [(10, 1, 1000, 1000), (11, 1, 1070, 70), (12, 1, 1050, -20)]
        );
    }

    #[test]
    fn recursive_call_returns_to_the_open_line_and_counts_nothing_twice() {
        let mut program = Program::new(1000);
        program.table.enter();
        program.event(1, Event::Start);
        program.event(1, Event::Line(11));
        program.grow(1);
        program.event(2, Event::Start);
        program.event(2, Event::Line(11));
        program.grow(10);
        program.event(2, Event::Return);
        program.grow(100);
        program.event(1, Event::Return);
        program.table.leave();
        assert_eq!(program.rows(), [(10, 2, 1001, 1000), (11, 2, 1111, 111)]);
    }

    #[test]
    fn frame_that_ended_with_an_exception_is_removed_at_the_next_line_of_its_caller() {
        let mut program = Program::new(0);
        program.table.enter();
        program.event(1, Event::Start);
        program.event(1, Event::Line(11));
        program.event(2, Event::Start);
        program.event(2, Event::Line(12));
        program.grow(5);
        program.event(1, Event::Line(13));
        program.grow(7);
        program.event(1, Event::Return);
        program.table.leave();
        let rows = program.rows();
        assert_eq!(rows[2..], [(12, 1, 5, 5), (13, 1, 12, 7)]);
    }

    #[test]
    fn change_while_a_generator_is_paused_is_not_an_increment() {
        let mut program = Program::new(100);
        program.table.enter();
        program.event(1, Event::Start);
        program.event(1, Event::Line(11));
        program.event(1, Event::Yield);
        program.table.leave();
        program.grow(1000);
        program.table.enter();
        program.event(1, Event::Start);
        program.grow(3);
        program.event(1, Event::Return);
        program.table.leave();
        assert_eq!(program.rows(), [(10, 1, 100, 100), (11, 1, 1103, 3)]);
    }

    #[test]
    fn line_that_raises_out_of_the_call_is_settled_when_the_call_ends() {
        let mut program = Program::new(100);
        program.table.enter();
        program.event(1, Event::Start);
        program.event(1, Event::Line(11));
        program.grow(9);
        program.table.leave();
        assert_eq!(program.rows(), [(10, 1, 100, 100), (11, 1, 109, 9)]);
    }
}
