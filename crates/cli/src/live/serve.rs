//! The server of a live view: sends the newest update to viewers on request. It does not run in the program's process.
//!
//! Viewers of the program's own user and of root are accepted, others need a token. A slow viewer misses updates; one
//! that does not read is disconnected. No update is queued: there is only the newest one, and each viewer has a thread
//! that sends it on request.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use heaptide_control::peer::{self, Peer};

use super::access::ServerToken;
use super::feed::Feed;
use super::wire::{self, GREETING, TOKEN_REQUIRED};
use crate::exit::Failure;

/// The maximum number of viewers; more are refused.
const MAX_VIEWERS: usize = 16;
/// The maximum number of viewers of other users. It is separate, so that they cannot displace viewers of the program's
/// user.
const MAX_STRANGERS: usize = 4;
/// The time limit for a viewer to send its greeting and token, or to read an update.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request waits for a new update before the last one is sent again.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long the command delays its exit for viewers of the same user that have not received the last update.
const LAST_UPDATE_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct Server(Arc<Shared>);

struct Shared {
    feed: Feed,
    token: ServerToken,
    viewers: Mutex<Viewers>,
    changed: Condvar,
}

/// The numbers of connected viewers. A viewer that has received the last update disconnects.
#[derive(Default)]
struct Viewers {
    n_of_same_user: usize,
    n_strangers: usize,
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
        let port = listener.local_addr().map_or(0, |address| address.port());
        let shared = Arc::new(Shared {
            feed,
            token: ServerToken::new(port),
            viewers: Mutex::default(),
            changed: Condvar::new(),
        });
        let server = Server(Arc::clone(&shared));
        // If no thread can be started, there is no live view and the program continues.
        let _ = thread::Builder::new()
            .name("heaptide-serve".into())
            .spawn(move || accept(&listener, &shared));
        server
    }

    /// Waits until all viewers of the program's user have the last update, up to a time limit. Viewers of other users
    /// may miss it.
    pub(crate) fn finish(&self) {
        self.0.token.remove();
        let until = Instant::now() + LAST_UPDATE_TIMEOUT;
        self.0.feed.wait_last(LAST_UPDATE_TIMEOUT);
        let mut viewers = self.0.lock();
        while viewers.n_of_same_user > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.0.changed.wait_timeout(viewers, left);
            viewers = waited.unwrap_or_else(PoisonError::into_inner).0;
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
        let Some(viewer) = Viewer::new(Arc::clone(shared), peer::of_tcp(&stream)) else {
            continue;
        };
        // If no thread can be started, the connection closes and the viewer reports it.
        let _ = thread::Builder::new()
            .name("heaptide-viewer".into())
            .spawn(move || {
                let _ = viewer.serve(stream);
            });
    }
}

/// One connected viewer.
struct Viewer {
    shared: Arc<Shared>,
    peer: Peer,
}

impl Viewer {
    /// Counts a viewer. Returns `None` if there are too many.
    fn new(shared: Arc<Shared>, peer: Peer) -> Option<Viewer> {
        let mut viewers = shared.lock();
        let (count, limit) = viewers.count(peer);
        let is_accepted = *count < limit;
        *count += usize::from(is_accepted);
        drop(viewers);
        is_accepted.then_some(Viewer { shared, peer })
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
        if self.peer == Peer::Stranger {
            stream.write_all(TOKEN_REQUIRED)?;
            if !self
                .shared
                .token
                .matches(&wire::receive_token(&mut stream)?)
            {
                return Ok(());
            }
        }
        stream.write_all(GREETING)?;
        // No time limit between requests: a suspended viewer requests the next update when it resumes.
        stream.set_read_timeout(None)?;
        let mut last = 0;
        loop {
            let mut request = [0];
            stream.read_exact(&mut request)?;
            let update = self.shared.feed.wait_newer(last, HEARTBEAT);
            last = update.number;
            wire::send(
                &mut stream,
                request[0],
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
        *self.shared.lock().count(self.peer).0 -= 1;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Viewers> {
        self.viewers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Viewers {
    /// Returns the number of viewers of this sort (same user, or others), and its limit.
    fn count(&mut self, peer: Peer) -> (&mut usize, usize) {
        match peer {
            Peer::SameUser => (&mut self.n_of_same_user, MAX_VIEWERS),
            Peer::Stranger => (&mut self.n_strangers, MAX_STRANGERS),
        }
    }
}
