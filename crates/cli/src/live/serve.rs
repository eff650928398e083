//! The server of a live view: sends the newest update to viewers on request. Runs out-of-process.
//!
//! A slow viewer misses updates; one that does not read is disconnected. No update is queued: there is only the newest one,
//! and each viewer has a thread that sends it on request.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::feed::Feed;
use super::wire::{self, GREETING};
use crate::exit::Failure;

/// The maximum number of viewers; more are refused.
const MAX_VIEWERS: usize = 16;
/// The time limit for a viewer to send a request or to read an update.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request waits for a new update before the last one is sent again.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long the command delays its exit for viewers that have not received the last update.
const LAST_UPDATE_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct Server(Arc<Shared>);

struct Shared {
    feed: Feed,
    /// The number of viewers that have not received the last update.
    waiting: Mutex<usize>,
    changed: Condvar,
}

impl Server {
    /// Binds a port of this machine; 0 for any free port.
    pub(crate) fn bind(port: u16) -> Result<TcpListener, Failure> {
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| {
            Failure::failed(match error.kind() {
                ErrorKind::AddrInUse => {
                    format!("port {port} is in use: choose another, or omit the port")
                }
                _ => format!("cannot use port {port} ({error}): choose another, or omit the port"),
            })
        })
    }

    /// Starts serving the feed to viewers.
    pub(crate) fn start(listener: TcpListener, feed: Feed) -> Server {
        let shared = Arc::new(Shared {
            feed,
            waiting: Mutex::new(0),
            changed: Condvar::new(),
        });
        let server = Server(Arc::clone(&shared));
        // If no thread can be started, there is no live view and the program continues.
        let _ = thread::Builder::new()
            .name("heaptide-serve".into())
            .spawn(move || accept(&listener, &shared));
        server
    }

    /// Waits until all viewers have the last update, up to a time limit.
    pub(crate) fn finish(&self) {
        let until = Instant::now() + LAST_UPDATE_TIMEOUT;
        self.0.feed.wait_last(LAST_UPDATE_TIMEOUT);
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
            // Probably out of file descriptors: retry later.
            thread::sleep(HEARTBEAT);
            continue;
        };
        if *shared.lock() >= MAX_VIEWERS {
            continue;
        }
        let viewer = Viewer::new(Arc::clone(shared));
        // If no thread can be started, the connection closes and the viewer reports it.
        let _ = thread::Builder::new()
            .name("heaptide-viewer".into())
            .spawn(move || {
                let _ = viewer.serve(stream);
            });
    }
}

/// One connected viewer.
struct Viewer(Arc<Shared>);

impl Viewer {
    fn new(shared: Arc<Shared>) -> Viewer {
        *shared.lock() += 1;
        Viewer(shared)
    }

    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut greeting = [0; GREETING.len()];
        stream.read_exact(&mut greeting)?;
        if greeting != *GREETING {
            return Ok(());
        }
        stream.write_all(GREETING)?;
        // No time limit between requests: a suspended viewer requests the next update when it resumes.
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
