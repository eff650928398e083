//! Listeners, each on a thread of its own, and a thread for each connection while it lasts.
//!
//! A connection carries one request. How many there are at once is bounded; more wait in the kernel's queue. A slow or
//! silent client costs a thread for a while and nothing else. For a fork the listening thread goes away for a moment, because
//! Python warns of forks in processes with several threads; connections meanwhile wait in the kernel's queue.

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
/// For a client to say what it wants as a whole, and to take each piece of the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(20);

pub struct Server {
    /// Where it really listens: the port is known even if any was asked for.
    pub address: Address,
    listener: Arc<Listener>,
    shared: Arc<Shared>,
    /// A socket of ours, removed at the end if it is still the same.
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
    /// The listening thread ends, for a while or for ever.
    is_pausing: AtomicBool,
    /// Readable as long as that thread is to look at the word above.
    alarm: OwnedFd,
    n_connections: Mutex<usize>,
    one_ended: Condvar,
}

impl Server {
    /// Begins to listen. `door` says who can come in by this address.
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
        // A connection may be gone again before it is taken, and nobody may wait for the next one in vain.
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
            one_ended: Condvar::new(),
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

    /// Takes connections, if it does not do so already.
    pub fn resume(&mut self) -> io::Result<()> {
        if self.accepting.is_none() {
            self.shared.is_pausing.store(false, Ordering::SeqCst);
            let (shared, listener) = (self.shared.clone(), self.listener.clone());
            let accepting = Box::new(move || shared.accept_all(&listener));
            self.accepting = Some(self.shared.recorder.spawn_to_join(accepting)?);
        }
        Ok(())
    }

    /// Takes no connections until it is resumed, and has no thread of its own but for those that are being answered.
    pub fn pause(&mut self) {
        let Some(join) = self.accepting.take() else {
            return;
        };
        self.shared.is_pausing.store(true, Ordering::SeqCst);
        // A counter that is full is readable, too.
        let _ = rustix::io::write(&self.shared.alarm, &1_u64.to_ne_bytes());
        let n_connections = lock(&self.shared.n_connections);
        self.shared.one_ended.notify_all();
        drop(n_connections);
        join();
        let _ = rustix::io::read(&self.shared.alarm, &mut [0; 8]);
    }

    /// Its descriptors: a forked child closes them without asking anybody.
    pub fn fds(&self) -> [RawFd; 2] {
        let listener = self.listener.as_fd().as_raw_fd();
        [listener, self.shared.alarm.as_raw_fd()]
    }

    /// Takes no more connections, and waits for those that are being answered, but not for ever.
    pub fn stop(mut self, patience: Duration) {
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
        // Whoever waits in the kernel's queue is told at once.
        let _ = rustix::net::shutdown(self.listener.as_fd(), rustix::net::Shutdown::Both);
        self.pause();
        let n_connections = lock(&self.shared.n_connections);
        let _ = self
            .shared
            .one_ended
            .wait_timeout_while(n_connections, patience, |n| *n > 0);
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

/// A socket that only this user may open. One that is left over from a process that has gone is replaced.
///
/// It gets its name when it listens already: whoever finds a socket that refuses takes its process for gone.
fn bind_socket(path: &Path) -> io::Result<UnixListener> {
    if UnixStream::connect(path).is_ok() {
        // With its number, as the kernel says it of a port: whoever asked looks for that.
        return Err(rustix::io::Errno::ADDRINUSE.into());
    }
    // Whatever else lies there is somebody's.
    if std::fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is something that is not a socket",
        ));
    }
    let unfinished = path.with_file_name(format!(".{}.new", std::process::id()));
    // Of a process of this number that was killed at just this place.
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
            let mut watched = [
                PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
                PollFd::new(&self.alarm, PollFlags::IN),
            ];
            let accepted = match poll(&mut watched, None) {
                Ok(_) if self.is_pausing() => return,
                Ok(_) => listener.accept(),
                Err(error) => Err(error.into()),
            };
            match accepted.map_err(|error| Errno::from_io_error(&error)) {
                Ok(connection) => self.clone().take(connection),
                // It went away again, or somebody else was meant.
                Err(Some(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED)) => {}
                // The process has no descriptor left, for example: that passes.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn is_pausing(&self) -> bool {
        self.is_pausing.load(Ordering::SeqCst)
    }

    /// Waits until one more connection may be taken. `false` if none is to be taken any more.
    fn wait_for_room(&self) -> bool {
        let mut n_connections = lock(&self.n_connections);
        while *n_connections >= MAX_CONNECTIONS && !self.is_pausing() {
            n_connections = match self.one_ended.wait(n_connections) {
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
        // Without a thread the connection is closed, which says enough.
        let _ = self.recorder.spawn(Box::new(move || {
            let _guard = guard;
            // A client that went away is not an error of ours.
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

/// Closing with bytes unread would throw away the answer on its way.
fn drain(stream: &impl TimeoutStream) {
    let mut patient = DeadlineReader::new(stream, CLIENT_TIMEOUT);
    let mut piece = [0; 4096];
    for _ in 0..64 {
        if !matches!(patient.read(&mut piece), Ok(1..)) {
            return;
        }
    }
}

struct ConnectionGuard(Arc<Shared>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        *lock(&self.0.n_connections) -= 1;
        self.0.one_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_that_can_be_found_never_refuses() {
        let folder = std::env::temp_dir().join(format!("heaptide-server-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for number in 0..200 {
            let path = folder.join(format!("{number}.sock"));
            let found = path.clone();
            let looking = std::thread::spawn(move || {
                while !found.exists() {
                    std::hint::spin_loop();
                }
                UnixStream::connect(found).map(drop)
            });
            let listener = bind_socket(&path).unwrap();
            looking.join().unwrap().unwrap();
            drop(listener);
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn left_over_socket_is_replaced_and_one_in_use_is_not() {
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
    fn file_that_is_no_socket_is_left_alone() {
        let path = std::env::temp_dir().join(format!("heaptide-file-{}.sock", std::process::id()));
        std::fs::write(&path, "somebody's").unwrap();
        let refused = bind_socket(&path).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "there is something that is not a socket"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "somebody's");
        std::fs::remove_file(path).unwrap();
    }
}
