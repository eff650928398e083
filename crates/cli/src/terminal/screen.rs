//! The terminal, borrowed: full-screen and raw while a [`Screen`] exists, as it was before when it is gone.
//!
//! It is given back when the view ends, when something panics (before the message is printed, so that it can be
//! read), and when a signal asks us to go. A terminal that goes away is the end of the view, not an error.

use std::io::{self, IsTerminal, Stdout, Write};
use std::mem::ManuallyDrop;
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

/// How often signals are looked at while nobody types.
const PATIENCE: Duration = Duration::from_millis(100);

/// Why a view ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Whoever looked has seen enough.
    ByKey,
    /// Somebody sent this signal, or closed the terminal.
    BySignal(i32),
}

impl Left {
    /// Ends as the signal would have ended us, now that the terminal is as it was.
    pub(crate) fn obey(self) {
        if let Left::BySignal(signal) = self {
            // If it cannot be done we simply end in order.
            let _ = low_level::emulate_default_handler(signal);
        }
    }
}

/// What happened while a view waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Key(KeyCode),
    /// Ctrl and a letter.
    Control(char),
    /// The size changed, or something else that is answered by drawing again.
    Redraw,
    /// Nothing, for as long as was allowed.
    Nothing,
    Left(Left),
}

/// Whether there is somebody to show something to: keys come in and pictures go out.
pub(crate) fn is_possible() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal() && !is_dumb()
}

/// The same if keys need not come by standard input, which may be the program's.
pub(crate) fn is_possible_with_tty() -> bool {
    let has_keys = io::stdin().is_terminal() || std::fs::File::open("/dev/tty").is_ok();
    io::stdout().is_terminal() && has_keys && !is_dumb()
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|name| name == "dumb" || name.is_empty())
}

pub(crate) struct Screen {
    /// Never dropped: it would complain on a terminal that may be gone, and giving that back is done here.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    signal: Arc<AtomicUsize>,
    registered: Vec<SigId>,
}

impl Screen {
    pub(crate) fn open() -> Result<Screen, Failure> {
        let failed = |error: io::Error| {
            Failure::failed(format!(
                "the terminal cannot be used ({error}): ask for plain text instead"
            ))
        };
        let signal = Arc::new(AtomicUsize::new(0));
        let registered = [SIGTERM, SIGHUP, SIGINT, SIGQUIT]
            .into_iter()
            .filter_map(|number| {
                flag::register_usize(number, Arc::clone(&signal), number as usize).ok()
            })
            .collect();
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            give_back();
            previous(panicked);
        }));
        enable_raw_mode().map_err(failed)?;
        let entered = execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match entered {
            Ok(terminal) => Ok(Screen {
                terminal: ManuallyDrop::new(terminal),
                signal,
                registered,
            }),
            Err(error) => {
                give_back();
                Err(failed(error))
            }
        }
    }

    /// Draws one picture. A terminal that is gone ends the view.
    pub(crate) fn draw(&mut self, picture: impl FnOnce(&mut Frame)) -> Result<(), Left> {
        match self.terminal.draw(picture) {
            Ok(_) => Ok(()),
            Err(_) => Err(Left::BySignal(SIGHUP)),
        }
    }

    /// The next thing that happens, or nothing if that takes longer than `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> Happened {
        let until = Instant::now() + limit;
        loop {
            let number = self.signal.load(Ordering::Relaxed);
            if number != 0 {
                return Happened::Left(Left::BySignal(number as i32));
            }
            let left = until.saturating_duration_since(Instant::now());
            // Only a terminal that is there is asked for events: of one that is gone they would be waited for without end.
            let event = is_there(Duration::ZERO)
                .and_then(|()| event::poll(Duration::ZERO))
                .and_then(|is_any| is_any.then(event::read).transpose());
            match event {
                Ok(Some(event)) => {
                    if let Some(happened) = understand(&event) {
                        return happened;
                    }
                }
                Ok(None) if left.is_zero() => return Happened::Nothing,
                // What ends the wait is looked at in the next round.
                Ok(None) => drop(is_there(left.min(PATIENCE))),
                Err(_) => return Happened::Left(Left::BySignal(SIGHUP)),
            }
        }
    }
}

/// Waits for keys, a signal, or `limit`. An error if there is no terminal any more.
fn is_there(limit: Duration) -> io::Result<()> {
    let stdin = io::stdin();
    let mut asked = [PollFd::new(&stdin, PollFlags::IN)];
    let limit = Timespec::try_from(limit).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut asked, Some(&limit)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    if asked[0].revents().intersects(gone) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

fn understand(event: &Event) -> Option<Happened> {
    match event {
        Event::Key(KeyEvent { kind, .. }) if *kind == KeyEventKind::Release => None,
        Event::Key(KeyEvent {
            code: KeyCode::Char(letter),
            modifiers,
            ..
        }) if modifiers.contains(KeyModifiers::CONTROL) => Some(Happened::Control(*letter)),
        Event::Key(key) => Some(Happened::Key(key.code)),
        Event::Resize(..) => Some(Happened::Redraw),
        _ => None,
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
        // The hook of before is inside ours; ours does no harm to a terminal that is as it should be.
        for id in self.registered.drain(..) {
            low_level::unregister(id);
        }
    }
}

/// Undoes what [`Screen::open`] did. A terminal that is gone does not need it.
fn give_back() {
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = io::stdout().flush();
}
