//! Full-screen and raw mode of the terminal while a [`Screen`] exists.
//!
//! The terminal is restored when the view ends, at a signal, and at a panic. At a panic this happens before the message
//! is printed, so that users can read it. A terminal that is closed ends the view without an error.

use std::fs::File;
use std::io::{self, IsTerminal, Stdout, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::{SigId, flag, low_level};

use crate::exit::Failure;

/// The interval at which signals are checked.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// The reason why a view ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The user quit.
    Key,
    /// A signal arrived, or the terminal was closed (SIGHUP).
    Signal(i32),
}

impl Exit {
    /// Ends the process as the signal would. The terminal must have been restored.
    pub(crate) fn obey(self) {
        if let Exit::Signal(signal) = self {
            // If this fails, the command exits normally.
            let _ = low_level::emulate_default_handler(signal);
        }
    }
}

/// An event that a view waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewEvent {
    Key(KeyCode),
    /// Ctrl with a letter.
    Control(char),
    /// The view must be drawn again, for example after a resize.
    Redraw,
    /// The time limit passed.
    Nothing,
    Exit(Exit),
}

/// Whether standard input and output are a terminal that can show a view.
pub(crate) fn is_possible() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal() && !is_dumb()
}

/// Like [`is_possible`], but keys may come from `/dev/tty`, because standard input may be the program's.
pub(crate) fn is_possible_with_tty() -> bool {
    let has_keys = io::stdin().is_terminal() || File::open("/dev/tty").is_ok();
    io::stdout().is_terminal() && has_keys && !is_dumb()
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|name| name == "dumb" || name.is_empty())
}

pub(crate) struct Screen {
    /// Never dropped: its destructor prints errors if the terminal is closed, and [`restore`] does its work.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    /// `/dev/tty` if standard input is not a terminal: crossterm reads the keys from the same file.
    tty: Option<File>,
    signals: Signals,
}

/// Stores the last signal that should end the view, as long as this object exists.
struct Signals {
    last: Arc<AtomicUsize>,
    registered: Vec<SigId>,
}

impl Signals {
    fn register() -> Signals {
        let last = Arc::new(AtomicUsize::new(0));
        let registered = [SIGTERM, SIGHUP, SIGINT, SIGQUIT]
            .into_iter()
            .filter_map(|number| {
                flag::register_usize(number, Arc::clone(&last), number as usize).ok()
            })
            .collect();
        Signals { last, registered }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            low_level::unregister(id);
        }
    }
}

impl Screen {
    pub(crate) fn open() -> Result<Screen, Failure> {
        let failed = |error: io::Error| {
            Failure::failed(format!(
                "cannot use the terminal ({error}): use plain text instead"
            ))
        };
        let tty = match io::stdin().is_terminal() {
            true => None,
            false => Some(File::open("/dev/tty").map_err(failed)?),
        };
        let signals = Signals::register();
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            restore();
            previous(panicked);
        }));
        enable_raw_mode().map_err(failed)?;
        let entered = execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match entered {
            Ok(terminal) => Ok(Screen {
                terminal: ManuallyDrop::new(terminal),
                tty,
                signals,
            }),
            Err(error) => {
                restore();
                Err(failed(error))
            }
        }
    }

    /// Draws one frame. A closed terminal ends the view.
    pub(crate) fn draw(&mut self, frame: impl FnOnce(&mut Frame)) -> Result<(), Exit> {
        match self.terminal.draw(frame) {
            Ok(_) => Ok(()),
            Err(_) => Err(Exit::Signal(SIGHUP)),
        }
    }

    /// Waits up to `limit` for the next event.
    pub(crate) fn wait(&mut self, limit: Duration) -> ViewEvent {
        let until = Instant::now() + limit;
        loop {
            let number = self.signals.last.load(Ordering::Relaxed);
            if number != 0 {
                return ViewEvent::Exit(Exit::Signal(number as i32));
            }
            let left = until.saturating_duration_since(Instant::now());
            // Check the terminal first: polling a closed terminal for events would never return.
            let event = self
                .wait_for_input(Duration::ZERO)
                .and_then(|()| event::poll(Duration::ZERO))
                .and_then(|is_any| is_any.then(event::read).transpose());
            match event {
                Ok(Some(event)) => {
                    if let Some(happened) = translate(&event) {
                        return happened;
                    }
                }
                Ok(None) if left.is_zero() => return ViewEvent::Nothing,
                // The next iteration handles the event that ended the wait.
                Ok(None) => drop(self.wait_for_input(left.min(SIGNAL_INTERVAL))),
                Err(_) => return ViewEvent::Exit(Exit::Signal(SIGHUP)),
            }
        }
    }

    /// Waits for keys, a signal, or `limit`. Fails if the terminal is closed.
    fn wait_for_input(&self, limit: Duration) -> io::Result<()> {
        let stdin = io::stdin();
        let keys: BorrowedFd = match &self.tty {
            Some(tty) => tty.as_fd(),
            None => stdin.as_fd(),
        };
        let mut polled = [PollFd::new(&keys, PollFlags::IN)];
        let limit = Timespec::try_from(limit).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut polled, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let closed = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        if polled[0].revents().intersects(closed) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

fn translate(event: &Event) -> Option<ViewEvent> {
    match event {
        Event::Key(KeyEvent { kind, .. }) if *kind == KeyEventKind::Release => None,
        Event::Key(KeyEvent {
            code: KeyCode::Char(letter),
            modifiers,
            ..
        }) if modifiers.contains(KeyModifiers::CONTROL) => Some(ViewEvent::Control(*letter)),
        Event::Key(key) => Some(ViewEvent::Key(key.code)),
        Event::Resize(..) => Some(ViewEvent::Redraw),
        _ => None,
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
        // The panic hook stays: it contains the previous one, and restoring a normal terminal has no effect.
    }
}

/// Undoes [`Screen::open`]. Errors are ignored: the terminal may be closed.
fn restore() {
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = io::stdout().flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_handlers_are_registered_only_while_their_object_exists() {
        let signals = Signals::register();
        let last = Arc::clone(&signals.last);
        assert_eq!(signals.registered.len(), 4);
        assert_eq!(Arc::strong_count(&last), 6);
        drop(signals);
        assert_eq!(Arc::strong_count(&last), 1, "a handler still has it");
    }
}
