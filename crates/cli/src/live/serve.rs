//! The program's end of a connection, in a process beside it: gives the newest numbers to whoever asks.
//!
//! A viewer that asks rarely misses updates; one that does not read is left alone after a while. Nothing is kept for
//! anybody: there is one newest update, and each viewer has a thread that sends it when asked.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::feed::Feed;
use super::wire::{self, GREETING};
use crate::exit::Failure;

/// Enough for everybody who wants to look; more are turned away.
const MAX_VIEWERS: usize = 16;
/// Whoever has not said what it wants by then wants nothing; whoever has not read by then reads no more.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a viewer that asks waits for something new before it gets the same again.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long the end of the program is kept from the shell for viewers that have not seen the last numbers.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) struct Server(Arc<Shared>);

struct Shared {
    feed: Feed,
    /// Viewers that have not got the last update.
    waiting: Mutex<usize>,
    changed: Condvar,
}

impl Server {
    /// Takes a port of this machine; 0 chooses one.
    pub(crate) fn bind(port: u16) -> Result<TcpListener, Failure> {
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| {
            Failure::failed(match error.kind() {
                ErrorKind::AddrInUse => {
                    format!("port {port} is taken: choose another, or let one be chosen")
                }
                _ => format!(
                    "port {port} cannot be used ({error}): choose another, or let one be chosen"
                ),
            })
        })
    }

    /// Shows what the feed has to whoever connects.
    pub(crate) fn start(listener: TcpListener, feed: Feed) -> Server {
        let shared = Arc::new(Shared {
            feed,
            waiting: Mutex::new(0),
            changed: Condvar::new(),
        });
        let server = Server(Arc::clone(&shared));
        // Without a thread nobody is let in, and the program runs on.
        let _ = thread::Builder::new()
            .name("heaptide-serve".into())
            .spawn(move || accept(&listener, &shared));
        server
    }

    /// Waits until all viewers have the last numbers, or have had their time.
    pub(crate) fn finish(&self) {
        let until = Instant::now() + FAREWELL;
        self.0.feed.wait_last(FAREWELL);
        let mut waiting = self.0.lock();
        while *waiting > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.0.changed.wait_timeout(waiting, left);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of descriptors, most likely: there may be some again in a moment.
            thread::sleep(HEARTBEAT);
            continue;
        };
        if *shared.lock() >= MAX_VIEWERS {
            continue;
        }
        let viewer = Viewer::new(Arc::clone(shared));
        // Without a thread the connection is closed, which the viewer can tell its user.
        let _ = thread::Builder::new()
            .name("heaptide-viewer".into())
            .spawn(move || {
                let _ = viewer.serve(stream);
            });
    }
}

/// Somebody who watches.
struct Viewer(Arc<Shared>);

impl Viewer {
    fn new(shared: Arc<Shared>) -> Viewer {
        *shared.lock() += 1;
        Viewer(shared)
    }

    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut greeting = [0; GREETING.len()];
        stream.read_exact(&mut greeting)?;
        if greeting != *GREETING {
            return Ok(());
        }
        stream.write_all(GREETING)?;
        // From here on it may take its time: a stopped viewer asks again when it goes on.
        stream.set_read_timeout(None)?;
        let mut last = 0;
        loop {
            let mut question = [0];
            stream.read_exact(&mut question)?;
            let update = self.0.feed.wait_newer(last, HEARTBEAT);
            last = update.number;
            wire::send(
                &mut stream,
                update.number,
                update.is_last(),
                update.live.as_deref(),
            )?;
            if update.is_last() {
                return Ok(());
            }
        }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
