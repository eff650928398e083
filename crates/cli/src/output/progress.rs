//! A progress bar on standard error, shown in a terminal if the work takes more than half a second.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const DELAY: Duration = Duration::from_millis(500);
const INTERVAL: Duration = Duration::from_millis(100);
const CELLS: u64 = 30;

pub(crate) struct Progress {
    what: &'static str,
    n_all: u64,
    next: Option<Instant>,
    is_shown: bool,
}

impl Progress {
    pub(crate) fn new(what: &'static str, n_all: u64) -> Progress {
        let is_wanted = std::io::stderr().is_terminal() && n_all > 0;
        Progress {
            what,
            n_all,
            next: is_wanted.then(|| Instant::now() + DELAY),
            is_shown: false,
        }
    }

    pub(crate) fn advance(&mut self, n_done: u64) {
        let now = Instant::now();
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.next = Some(now + INTERVAL);
        self.is_shown = true;
        // Errors are ignored: the bar is optional.
        let bar = bar(self.what, n_done.min(self.n_all), self.n_all);
        let _ = write!(std::io::stderr(), "\r{bar}");
    }

    /// Clears the bar.
    pub(crate) fn finish(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(std::io::stderr(), "\r{}\r", blank(self.what, self.n_all));
        }
        self.next = None;
    }
}

fn bar(what: &str, n_done: u64, n_all: u64) -> String {
    let cells = (CELLS * n_done / n_all) as usize;
    let (full, rest) = ("━".repeat(cells), " ".repeat(CELLS as usize - cells));
    format!("{what} {full}{rest} {:3}%", 100 * n_done / n_all)
}

/// Spaces that cover a bar. A terminal without escape sequences (`TERM=dumb`) would print the sequence that erases a line.
fn blank(what: &str, n_all: u64) -> String {
    " ".repeat(bar(what, n_all, n_all).chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_is_cleared_without_escape_sequences() {
        for n_done in [0, 1, 500, 1000] {
            let bar = bar("reading", n_done, 1000);
            assert_eq!(bar.chars().count(), blank("reading", 1000).len(), "{bar}");
        }
        assert_eq!(blank("reading", 1000).trim(), "");
    }
}
