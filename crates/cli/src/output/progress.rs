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
        let n_done = n_done.min(self.n_all);
        let cells = (CELLS * n_done / self.n_all) as usize;
        let (full, rest) = ("━".repeat(cells), " ".repeat(CELLS as usize - cells));
        let percent = 100 * n_done / self.n_all;
        // Errors are ignored: the bar is optional.
        let _ = write!(
            std::io::stderr(),
            "\r{} {full}{rest} {percent:3}%",
            self.what
        );
    }

    /// Clears the bar.
    pub(crate) fn finish(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        self.next = None;
    }
}
