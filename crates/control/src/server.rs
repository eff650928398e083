//! The HTTP server: one thread per listener and one per open connection.
//!
//! A connection carries one request. The number of connections is bounded; more wait in the kernel's queue. A slow or silent
//! client costs one thread until a timeout. Around a fork the listening thread pauses, because Python warns about forks in
//! processes with several threads; connections wait in the kernel's queue meanwhile.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use crate::address::Address;
use crate::deadline::{DeadlineReader, TimeoutStream};
use crate::handler::Handler;
use crate::lock;
use crate::recorder::{Join, Recorder};
use crate::request::Request;
use crate::response::Response;
use crate::security::EntryPoint;

const MAX_CONNECTIONS: usize = 128;
/// The time limit for receiving a whole request, and for writing each part of the response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(20);

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
    entry_point: EntryPoint,
    /// Asks the listening thread to end, because of a pause or a stop.
    is_pausing: AtomicBool,
    /// Wakes the listening thread: readable while `is_pausing` must be checked.
    alarm: OwnedFd,
    n_connections: Mutex<usize>,
    one_closed: Condvar,
}

impl Server {
    /// Starts listening. `entry_point` determines which requests this address accepts.
    pub fn start(
        address: &Address,
        entry_point: EntryPoint,
        handler: Arc<Handler>,
        recorder: Arc<dyn Recorder>,
    ) -> io::Result<Server> {
        let (listener, address, socket) = match address {
            Address::Tcp { host, port } => {
                let listener = TcpListener::bind((host.as_str(), *port))?;
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
            entry_point,
            is_pausing: AtomicBool::new(false),
            alarm: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            n_connections: Mutex::new(0),
            one_closed: Condvar::new(),
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

    /// Starts the listening thread, unless it runs.
    pub fn resume(&mut self) -> io::Result<()> {
        if self.accepting.is_none() {
            self.shared.is_pausing.store(false, Ordering::SeqCst);
            let (shared, listener) = (self.shared.clone(), self.listener.clone());
            let accepting = Box::new(move || shared.accept_all(&listener));
            self.accepting = Some(self.shared.recorder.spawn_to_join(accepting)?);
        }
        Ok(())
    }

    /// Ends the listening thread. Open connections are still answered; new ones wait for [`Server::resume`].
    pub fn pause(&mut self) {
        let Some(join) = self.accepting.take() else {
            return;
        };
        self.shared.is_pausing.store(true, Ordering::SeqCst);
        // A write to a full counter fails, but the counter is readable then.
        let _ = rustix::io::write(&self.shared.alarm, &1_u64.to_ne_bytes());
        let n_connections = lock(&self.shared.n_connections);
        self.shared.one_closed.notify_all();
        drop(n_connections);
        join();
        let _ = rustix::io::read(&self.shared.alarm, &mut [0; 8]);
    }

    /// Returns the file descriptors that a forked child must close.
    pub fn fds(&self) -> [RawFd; 2] {
        let listener = self.listener.as_fd().as_raw_fd();
        [listener, self.shared.alarm.as_raw_fd()]
    }

    /// Stops listening and waits up to `timeout` for open connections.
    pub fn stop(mut self, timeout: Duration) {
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
        // Rejects the connections in the kernel's queue.
        let _ = rustix::net::shutdown(self.listener.as_fd(), rustix::net::Shutdown::Both);
        self.pause();
        let n_connections = lock(&self.shared.n_connections);
        let _ = self
            .shared
            .one_closed
            .wait_timeout_while(n_connections, timeout, |n| *n > 0);
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
            Listener::Tcp(listener) => listener
                .accept()
                .map(|(stream, _): (_, SocketAddr)| Connection::Tcp(stream)),
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
    // Left by a process with the same ID that was killed between bind and rename.
    let _ = std::fs::remove_file(&unfinished);
    let listener = UnixListener::bind(&unfinished)?;
    std::fs::set_permissions(&unfinished, std::fs::Permissions::from_mode(0o600))
        .and_then(|()| std::fs::rename(&unfinished, path))
        .inspect_err(|_| {
            let _ = std::fs::remove_file(&unfinished);
        })?;
    Ok(listener)
}

enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Shared {
    fn accept_all(self: Arc<Shared>, listener: &Listener) {
        while self.wait_for_room() {
            let mut polled = [
                PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
                PollFd::new(&self.alarm, PollFlags::IN),
            ];
            let accepted = match poll(&mut polled, None) {
                Ok(_) if self.is_pausing() => return,
                Ok(_) => listener.accept(),
                Err(error) => Err(error.into()),
            };
            match accepted.map_err(|error| Errno::from_io_error(&error)) {
                Ok(connection) => self.clone().take(connection),
                // The client disconnected, or the wakeup was spurious.
                Err(Some(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED)) => {}
                // For example, no file descriptor is left: retry.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn is_pausing(&self) -> bool {
        self.is_pausing.load(Ordering::SeqCst)
    }

    /// Waits until one more connection is allowed. Returns `false` if the server pauses.
    fn wait_for_room(&self) -> bool {
        let mut n_connections = lock(&self.n_connections);
        while *n_connections >= MAX_CONNECTIONS && !self.is_pausing() {
            n_connections = match self.one_closed.wait(n_connections) {
                Ok(guard) => guard,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
        !self.is_pausing()
    }

    fn take(self: Arc<Shared>, connection: Connection) {
        let mut n_connections = lock(&self.n_connections);
        *n_connections += 1;
        drop(n_connections);
        let guard = ConnectionGuard(self.clone());
        let shared = self.clone();
        // If no thread can be started, the connection closes.
        let _ = self.recorder.spawn(Box::new(move || {
            let _guard = guard;
            // A client that disconnects is not an error.
            let _ = match connection {
                Connection::Tcp(stream) => shared.serve_tcp(stream),
                Connection::Unix(stream) => shared.serve_unix(stream),
            };
        }));
    }

    fn serve_tcp(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        self.answer(&mut stream)?;
        stream.shutdown(Shutdown::Write)?;
        drain(&stream);
        Ok(())
    }

    fn serve_unix(&self, mut stream: UnixStream) -> io::Result<()> {
        self.answer(&mut stream)?;
        stream.shutdown(Shutdown::Write)?;
        drain(&stream);
        Ok(())
    }

    fn answer(&self, stream: &mut (impl Write + TimeoutStream)) -> io::Result<()> {
        stream.limit_write(CLIENT_TIMEOUT)?;
        let request = match Request::read(&mut DeadlineReader::new(&*stream, CLIENT_TIMEOUT)) {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            Err(refusal) => {
                let response = Response::error(refusal.status, "RequestError", refusal.reason);
                return response.send(stream, false);
            }
        };
        let is_head = request.method == "HEAD";
        self.handler
            .handle(&request, self.entry_point)
            .send(stream, is_head)
    }
}

/// Reads the rest of the request: closing with unread bytes would reset the connection and lose the response.
fn drain(stream: &impl TimeoutStream) {
    let mut reader = DeadlineReader::new(stream, CLIENT_TIMEOUT);
    let mut buffer = [0; 4096];
    for _ in 0..64 {
        if !matches!(reader.read(&mut buffer), Ok(1..)) {
            return;
        }
    }
}

/// Counts an open connection; dropping it frees the slot.
struct ConnectionGuard(Arc<Shared>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        *lock(&self.0.n_connections) -= 1;
        self.0.one_closed.notify_all();
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
