//! Connections whose requests have not arrived completely. One thread reads all of them and waits for none.
//!
//! Their number is bounded. When one more arrives, the oldest connection of the client with the most connections is closed,
//! so half-sent requests cannot keep others out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::connection::Connection;
use crate::request::{PartialRequest, Refusal, Request};
use crate::response::Response;

/// The profiled program shares its limit of open files with these connections.
const MAX_INCOMING: usize = 64;
/// The time limit for a whole request to arrive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The connections, oldest first.
#[derive(Default)]
pub(super) struct Incoming(Vec<Arriving>);

struct Arriving {
    connection: Connection,
    client: Option<IpAddr>,
    deadline: Instant,
    /// `None` after a refusal: the rest of the request is read and discarded.
    request: Option<PartialRequest>,
}

/// A complete request and its connection.
pub(super) type Complete = (Request, Connection);

impl Incoming {
    /// Adds a connection. Returns it with its request if that has already arrived.
    pub(super) fn add(&mut self, connection: Connection) -> Option<Complete> {
        let arriving = Arriving {
            client: connection.client(),
            connection,
            deadline: Instant::now() + REQUEST_TIMEOUT,
            request: Some(PartialRequest::default()),
        };
        let complete = match arriving.receive() {
            Received::Pending(arriving) => {
                self.0.push(arriving);
                None
            }
            Received::Complete(complete) => Some(complete),
            Received::Closed => None,
        };
        if self.0.len() > MAX_INCOMING {
            self.drop_oldest_of_largest();
        }
        complete
    }

    /// Closes the oldest connection of the client with the most connections, for example because no file descriptor is
    /// left.
    pub(super) fn drop_oldest_of_largest(&mut self) {
        let mut counts: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for arriving in &self.0 {
            *counts.entry(arriving.client).or_default() += 1;
        }
        let most = counts.values().max().copied();
        let oldest = self
            .0
            .iter()
            .position(|one| counts.get(&one.client).copied() == most);
        if let Some(oldest) = oldest {
            self.0.remove(oldest);
        }
    }

    /// Returns the descriptors to poll, in the order in which [`Incoming::receive`] expects the results.
    pub(super) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        let connections = self.0.iter().map(|arriving| &arriving.connection);
        connections.map(|connection| PollFd::new(connection, PollFlags::IN))
    }

    /// Reads the connections that are ready. Returns the complete requests.
    pub(super) fn receive(&mut self, are_ready: &[bool]) -> Vec<Complete> {
        let mut complete = Vec::new();
        let mut are_ready = are_ready.iter();
        for arriving in std::mem::take(&mut self.0) {
            if are_ready.next() != Some(&true) {
                self.0.push(arriving);
                continue;
            }
            match arriving.receive() {
                Received::Pending(arriving) => self.0.push(arriving),
                Received::Complete(one) => complete.push(one),
                Received::Closed => {}
            }
        }
        complete
    }

    /// Closes the connections whose requests did not arrive in time. Returns the next deadline.
    pub(super) fn drop_expired(&mut self) -> Option<Instant> {
        let now = Instant::now();
        self.0.retain(|arriving| {
            let is_expired = arriving.deadline <= now;
            let has_begun = arriving.request.as_ref().is_some_and(|one| !one.is_empty());
            if is_expired && has_begun {
                let sentence = "the request did not arrive in time";
                let response = Response::error(408, "RequestError", sentence);
                arriving.connection.send_at_once(response);
            }
            !is_expired
        });
        self.0.first().map(|arriving| arriving.deadline)
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.0.iter().map(|arriving| &arriving.connection)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

enum Received {
    Pending(Arriving),
    Complete(Complete),
    Closed,
}

impl Arriving {
    fn receive(mut self) -> Received {
        let mut buffer = [0; 4096];
        let n_read = match self.connection.receive(&mut buffer) {
            Ok(n_read) => n_read,
            Err(error) if is_temporary(&error) => return Received::Pending(self),
            Err(_) => return Received::Closed,
        };
        let Some(request) = &mut self.request else {
            return if n_read == 0 {
                Received::Closed
            } else {
                Received::Pending(self)
            };
        };
        if n_read == 0 {
            if !request.is_empty() {
                let sentence = "the request ends before it is complete";
                let response = Response::error(400, "RequestError", sentence);
                self.connection.send_at_once(response);
            }
            return Received::Closed;
        }
        match request.push(&buffer[..n_read]) {
            Ok(Some(request)) => Received::Complete((request, self.connection)),
            Ok(None) => Received::Pending(self),
            Err(Refusal { status, reason }) => {
                let response = Response::error(status, "RequestError", reason);
                self.connection.send_at_once(response);
                self.request = None;
                Received::Pending(self)
            }
        }
    }
}

fn is_temporary(error: &std::io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::AGAIN | Errno::INTR)
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};

    use rustix::net::{AddressFamily, SocketType};

    use super::*;

    /// Connects from an address of the loopback network. Returns both ends.
    fn connect(listener: &TcpListener, from: Ipv4Addr) -> (TcpStream, Connection) {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrV4::new(from, 0)).unwrap();
        let SocketAddr::V4(address) = listener.local_addr().unwrap() else {
            panic!("not an IPv4 address");
        };
        rustix::net::connect(&socket, &address).unwrap();
        let served = listener.accept().unwrap().0;
        (socket.into(), Connection::Tcp(served))
    }

    #[test]
    fn client_with_many_connections_loses_its_own_oldest_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut incoming = Incoming::default();
        let (mut patient, served) = connect(&listener, Ipv4Addr::new(127, 0, 0, 2));
        patient.write_all(b"GET /").unwrap();
        assert!(incoming.add(served).is_none());
        let mut hostile = Vec::new();
        for _ in 0..3 * MAX_INCOMING {
            let (client, served) = connect(&listener, Ipv4Addr::LOCALHOST);
            assert!(incoming.add(served).is_none());
            hostile.push(client);
        }
        assert_eq!(incoming.0.len(), MAX_INCOMING);
        let rest = b" HTTP/1.1\r\nHost: localhost\r\n\r\n";
        patient.write_all(rest).unwrap();
        let mut complete = Vec::new();
        while complete.is_empty() {
            complete = incoming.receive(&[true; MAX_INCOMING]);
        }
        assert_eq!(complete[0].0.path, "/");
    }

    #[test]
    fn request_that_does_not_arrive_in_time_is_answered_with_408() {
        use std::io::Read;

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut incoming = Incoming::default();
        let (mut slow, served) = connect(&listener, Ipv4Addr::LOCALHOST);
        slow.write_all(b"G").unwrap();
        assert!(incoming.add(served).is_none());
        while incoming.0[0]
            .request
            .as_ref()
            .is_none_or(PartialRequest::is_empty)
        {
            assert!(incoming.receive(&[true]).is_empty());
        }
        incoming.0[0].deadline = Instant::now();
        assert_eq!(incoming.drop_expired(), None);
        let mut answer = String::new();
        slow.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
}
