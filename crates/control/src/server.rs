//! The HTTP server: one thread per listener, which reads all requests, and one per request that is being answered.
//!
//! A connection carries one request. [`incoming`] reads requests without waiting for any client, [`workers`] answers
//! them. The numbers of connections and threads are bounded; hostile clients lose their connections to newer ones.
//! Around a fork the listening thread pauses, because Python warns about forks in processes with several threads;
//! connections wait meanwhile.

mod connection;
mod incoming;
mod workers;

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::address::Address;
use crate::handler::Handler;
use crate::lock;
use crate::recorder::{Join, Recorder};
use crate::security::Reach;
use connection::Connection;
pub use connection::is_gone;
use incoming::{Complete, Incoming};
use workers::{Assigned, ResponseWriter, Workers};

/// The time limit for a client to read a part of the response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// The length of the kernel's queue. If it is full, clients wait a second before they try again.
const MAX_QUEUED: i32 = 4096;
/// The number of connections that are accepted before the others are read again.
const MAX_ACCEPTED: usize = 64;
/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The interval in which clients that do not read are checked while requests wait.
const STALL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

pub struct Server {
    /// The address with the actual port, also if the configured port was 0.
    pub address: Address,
    listener: Arc<Listener>,
    shared: Arc<Shared>,
    /// The path of the Unix socket, removed at stop.
    socket: Option<PathBuf>,
    /// The listening thread, unless it is paused.
    accepting: Option<Join>,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

struct Shared {
    handler: Arc<Handler>,
    recorder: Arc<dyn Recorder>,
    reach: Reach,
    /// Asks the listening thread to end, because of a pause or a stop.
    is_pausing: AtomicBool,
    /// Wakes the listening thread: readable while `is_pausing` must be checked.
    alarm: OwnedFd,
    /// Locked by the listening thread as long as it runs.
    incoming: Mutex<Incoming>,
    workers: Workers,
}

impl Server {
    /// Starts listening. `reach` determines which requests this address accepts.
    pub fn start(
        address: &Address,
        reach: Reach,
        handler: Arc<Handler>,
        recorder: Arc<dyn Recorder>,
    ) -> io::Result<Server> {
        let (listener, address, socket) = match address {
            Address::Tcp { host, port } => {
                let listener = TcpListener::bind((host.as_str(), *port))?;
                rustix::net::listen(&listener, MAX_QUEUED)?;
                let port = listener.local_addr()?.port();
                let host = host.clone();
                (Listener::Tcp(listener), Address::Tcp { host, port }, None)
            }
            Address::Unix(path) => {
                let listener = bind_socket(path)?;
                (
                    Listener::Unix(listener),
                    Address::Unix(path.clone()),
                    Some(path.clone()),
                )
            }
        };
        // A client can disconnect between poll and accept; a blocking accept would then wait for the next client.
        match &listener {
            Listener::Tcp(listener) => listener.set_nonblocking(true)?,
            Listener::Unix(listener) => listener.set_nonblocking(true)?,
        }
        let shared = Shared {
            handler,
            recorder,
            reach,
            is_pausing: AtomicBool::new(false),
            alarm: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            incoming: Mutex::default(),
            workers: Workers::new(),
        };
        let mut server = Server {
            address,
            listener: Arc::new(listener),
            shared: Arc::new(shared),
            socket,
            accepting: None,
        };
        server.resume()?;
        Ok(server)
    }

    /// Returns the address that clients connect to, with a number in place of a host name.
    pub fn bound_to(&self) -> String {
        match self.listener.as_ref() {
            Listener::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|_| self.address.to_string(), |at| format!("http://{at}")),
            Listener::Unix(_) => self.address.to_string(),
        }
    }

    /// Starts the listening thread, unless it runs.
    pub fn resume(&mut self) -> io::Result<()> {
        if self.accepting.is_none() {
            self.shared.is_pausing.store(false, Ordering::SeqCst);
            let (shared, listener) = (self.shared.clone(), self.listener.clone());
            let accepting = Box::new(move || shared.listen(&listener));
            self.accepting = Some(self.shared.recorder.spawn_to_join(accepting)?);
        }
        Ok(())
    }

    /// Ends the listening thread. Complete requests are still answered; others wait for [`Server::resume`].
    pub fn pause(&mut self) {
        let Some(join) = self.accepting.take() else {
            return;
        };
        self.shared.is_pausing.store(true, Ordering::SeqCst);
        // A write to a full counter fails, but the counter is readable then.
        let _ = rustix::io::write(&self.shared.alarm, &1_u64.to_ne_bytes());
        join();
        let _ = rustix::io::read(&self.shared.alarm, &mut [0; 8]);
    }

    /// Returns the file descriptors that a forked child must close.
    pub fn fds(&self) -> Vec<RawFd> {
        let listener = self.listener.as_fd().as_raw_fd();
        let mut fds = vec![listener, self.shared.alarm.as_raw_fd()];
        // The listening thread pauses for the fork, so the lock is free.
        if let Ok(incoming) = self.shared.incoming.try_lock() {
            let connections = incoming.connections();
            fds.extend(connections.map(|connection| connection.as_fd().as_raw_fd()));
        }
        fds.extend(self.shared.workers.fds());
        fds
    }

    /// Stops listening and waits up to `timeout` for requests that are being answered.
    pub fn stop(mut self, timeout: Duration) {
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
        // Rejects the connections in the kernel's queue.
        let _ = rustix::net::shutdown(self.listener.as_fd(), rustix::net::Shutdown::Both);
        self.pause();
        lock(&self.shared.incoming).clear();
        self.shared.workers.finish(timeout);
    }
}

impl Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }

    fn accept(&self) -> io::Result<Connection> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Connection::Tcp(stream))
            }
            Listener::Unix(listener) => listener
                .accept()
                .map(|(stream, _)| Connection::Unix(stream)),
        }
    }
}

/// Creates a socket that only this user can open. Replaces the socket of an ended process.
///
/// The socket gets its final name only once it listens, because other processes remove a socket that refuses connections.
fn bind_socket(path: &Path) -> io::Result<UnixListener> {
    if UnixStream::connect(path).is_ok() {
        // The same error as for a port in use: callers check its number.
        return Err(rustix::io::Errno::ADDRINUSE.into());
    }
    // Never replace another type of file.
    if std::fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.file_type().is_socket()) {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "it exists and is not a socket",
        ));
    }
    let unfinished = path.with_file_name(format!(".{}.new", std::process::id()));
    // A killed process with the same ID may have left this file.
    let _ = std::fs::remove_file(&unfinished);
    let listener = UnixListener::bind(&unfinished)?;
    std::fs::set_permissions(&unfinished, std::fs::Permissions::from_mode(0o600))
        .and_then(|()| std::fs::rename(&unfinished, path))
        .inspect_err(|_| {
            let _ = std::fs::remove_file(&unfinished);
        })?;
    Ok(listener)
}

impl Shared {
    /// Accepts connections and reads requests until the server pauses.
    fn listen(self: Arc<Shared>, listener: &Listener) {
        let mut incoming = lock(&self.incoming);
        let mut accept_after = Instant::now();
        while !self.is_pausing() {
            let requests_wait = self.workers.make_room();
            let deadline = incoming.drop_expired();
            let now = Instant::now();
            let is_accepting = accept_after <= now;
            let wake_up = [
                deadline,
                requests_wait.then_some(now + STALL_CHECK_INTERVAL),
                (!is_accepting).then_some(accept_after),
            ];
            let timeout = wake_up.into_iter().flatten().min();
            let timeout = timeout.map(|at| at.saturating_duration_since(now));
            let are_ready = match self.wait(listener, &incoming, is_accepting, timeout) {
                Ok(are_ready) => are_ready,
                Err(Errno::INTR) => continue,
                Err(_) => {
                    // The program has lowered its limit of open files below the number of connections.
                    incoming.drop_oldest_of_largest();
                    std::thread::sleep(ACCEPT_PAUSE);
                    continue;
                }
            };
            let (is_listener_ready, are_ready) = (are_ready[0], &are_ready[2..]);
            for complete in incoming.receive(are_ready) {
                self.answer(complete);
            }
            if !is_listener_ready {
                continue;
            }
            if let Err(error) = self.accept_all(listener, &mut incoming) {
                // The client disconnected, or the wakeup was spurious.
                if !matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED)
                ) {
                    // For example, no file descriptor is left: free one and retry.
                    incoming.drop_oldest_of_largest();
                    accept_after = Instant::now() + ACCEPT_PAUSE;
                }
            }
        }
    }

    /// Waits until something can be read. Returns whether each is ready: the listener, the alarm, then the connections.
    fn wait(
        &self,
        listener: &Listener,
        incoming: &Incoming,
        is_accepting: bool,
        timeout: Option<Duration>,
    ) -> Result<Vec<bool>, Errno> {
        let flags = if is_accepting {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let mut polled = vec![
            PollFd::from_borrowed_fd(listener.as_fd(), flags),
            PollFd::new(&self.alarm, PollFlags::IN),
        ];
        polled.extend(incoming.polled());
        // Rounded up, so that the deadline has passed after the wait.
        let timeout = timeout.map(|timeout| timeout + Duration::from_millis(1));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        poll(&mut polled, timeout.as_ref())?;
        Ok(polled.iter().map(|one| !one.revents().is_empty()).collect())
    }

    fn accept_all(
        self: &Arc<Shared>,
        listener: &Listener,
        incoming: &mut Incoming,
    ) -> io::Result<()> {
        for _ in 0..MAX_ACCEPTED {
            let connection = listener.accept()?;
            if let Some(complete) = incoming.add(connection) {
                self.answer(complete);
            }
        }
        Ok(())
    }

    fn is_pausing(&self) -> bool {
        self.is_pausing.load(Ordering::SeqCst)
    }

    fn answer(self: &Arc<Shared>, complete: Complete) {
        let Some(first) = self.workers.submit(complete) else {
            return;
        };
        let shared = self.clone();
        let active = first.1.clone();
        let work = Box::new(move || {
            let mut next = Some(first);
            while let Some(assigned) = next {
                // A client that disconnects is not an error.
                let _ = shared.respond(&assigned);
                next = shared.workers.next(&assigned.1);
            }
        });
        if self.recorder.spawn(work).is_err() {
            // Without a thread, the connection closes.
            self.workers.end(&active);
        }
    }

    fn respond(&self, (request, active): &Assigned) -> io::Result<()> {
        let connection = &active.connection;
        connection.limit_write(WRITE_TIMEOUT)?;
        let entry_point = connection.entry_point(self.reach);
        let is_gone = || connection.is_gone();
        let response = self.handler.handle(request, entry_point, &is_gone);
        let mut writer = ResponseWriter {
            workers: &self.workers,
            active,
        };
        response.send(&mut writer, request.method == "HEAD")?;
        connection.end_writing();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_socket_never_refuses_a_connection() {
        let folder = std::env::temp_dir().join(format!("heaptide-server-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for number in 0..200 {
            let path = folder.join(format!("{number}.sock"));
            let visible = path.clone();
            let connecting = std::thread::spawn(move || {
                while !visible.exists() {
                    std::hint::spin_loop();
                }
                UnixStream::connect(visible).map(drop)
            });
            let listener = bind_socket(&path).unwrap();
            connecting.join().unwrap().unwrap();
            drop(listener);
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn socket_of_an_ended_process_is_replaced_and_one_in_use_is_not() {
        let path = std::env::temp_dir().join(format!("heaptide-left-{}.sock", std::process::id()));
        drop(bind_socket(&path).unwrap());
        assert!(path.exists());
        let listener = bind_socket(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let taken = bind_socket(&path).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn file_that_is_not_a_socket_is_not_replaced() {
        let path = std::env::temp_dir().join(format!("heaptide-file-{}.sock", std::process::id()));
        std::fs::write(&path, "data").unwrap();
        let refused = bind_socket(&path).unwrap_err();
        assert_eq!(refused.to_string(), "it exists and is not a socket");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
        std::fs::remove_file(path).unwrap();
    }
}
