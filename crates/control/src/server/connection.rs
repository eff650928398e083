//! One accepted connection, over TCP or a Unix socket.

use std::io::{self, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};

use crate::peer;
use crate::response::Response;
use crate::security::{EntryPoint, Reach};

/// The number of reads that discard bytes after a response.
const MAX_DISCARDS: usize = 64;

pub(super) enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Connection::Tcp(stream) => stream.as_fd(),
            Connection::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Connection {
    /// Returns the address by which clients are counted; `None` for a Unix socket.
    pub(super) fn client(&self) -> Option<IpAddr> {
        match self {
            Connection::Tcp(stream) => stream.peer_addr().ok().map(|address| address.ip()),
            Connection::Unix(_) => None,
        }
    }

    pub(super) fn entry_point(&self, reach: Reach) -> EntryPoint {
        match (reach, self) {
            (Reach::Private, _) => EntryPoint::Private,
            (Reach::Machine, Connection::Unix(stream)) => EntryPoint::Socket(peer::of_unix(stream)),
            (Reach::Machine, Connection::Tcp(stream)) => EntryPoint::Loopback(peer::of_tcp(stream)),
            (Reach::Network, _) => EntryPoint::Remote,
        }
    }

    /// Reads the bytes that have arrived, without waiting.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (n_read, _) = rustix::net::recv(self, buffer, RecvFlags::DONTWAIT)?;
        Ok(n_read)
    }

    /// Sends a short response without waiting. A client that does not read it in time gets a part or nothing.
    pub(super) fn send_at_once(&self, response: Response) {
        let mut bytes = Vec::new();
        if response.send(&mut bytes, false).is_ok() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = rustix::net::send(self, &bytes, flags);
        }
        self.end_writing();
    }

    /// Marks the end of the response, and discards bytes that have arrived: closing a connection with unread bytes resets it,
    /// and the client could lose the response.
    pub(super) fn end_writing(&self) {
        let _ = self.shutdown(Shutdown::Write);
        let mut buffer = [0; 4096];
        for _ in 0..MAX_DISCARDS {
            if !matches!(self.receive(&mut buffer), Ok(1..)) {
                return;
            }
        }
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Connection::Tcp(stream) => stream.shutdown(how),
            Connection::Unix(stream) => stream.shutdown(how),
        }
    }

    pub(super) fn limit_write(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Connection::Tcp(stream) => stream.set_write_timeout(Some(timeout)),
            Connection::Unix(stream) => stream.set_write_timeout(Some(timeout)),
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        is_gone(self)
    }
}

impl Write for &Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Connection::Tcp(stream) => (&mut &*stream).write(bytes),
            Connection::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether the client has closed the connection, or the direction in which it sends.
pub fn is_gone(connection: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&connection, PollFlags::RDHUP)];
    let at_once = Timespec::default();
    poll(&mut polled, Some(&at_once)).is_ok_and(|n_ready| n_ready > 0)
}
