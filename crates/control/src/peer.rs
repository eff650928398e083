//! The user at the other end of a connection.
//!
//! A Unix socket reports the user. For TCP within this machine, the kernel's table of sockets has the owner of the
//! client's socket, which a netlink query or `/proc/net/tcp` returns. Both show only this network namespace: a client
//! in another one, like a client on another machine, is unknown. A proxy counts as the user that runs it, not as its
//! clients.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;

use heaptide_files::user;
use heaptide_procfs as procfs;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Peer {
    /// A process of this program's user or of root.
    SameUser,
    /// A process of another user, or one that this process cannot see.
    Stranger,
}

/// Returns the peer of a TCP connection.
pub fn of_tcp(stream: &TcpStream) -> Peer {
    let addresses = stream
        .peer_addr()
        .and_then(|peer| Ok((peer, stream.local_addr()?)));
    let owner = addresses
        .ok()
        .and_then(|(peer, local)| tcp_owner(peer, local));
    judge(owner)
}

/// Returns the peer of a connection over a Unix socket.
pub fn of_unix(stream: &UnixStream) -> Peer {
    let credentials = rustix::net::sockopt::socket_peercred(stream);
    judge(credentials.ok().map(|credentials| credentials.uid.as_raw()))
}

fn judge(owner: Option<u32>) -> Peer {
    match owner {
        // The kernel maps all users outside of this user namespace to one number, which may also be this user's own.
        Some(uid) if uid == procfs::overflow_user() && !procfs::sees_all_users() => Peer::Stranger,
        Some(uid) if uid == 0 || uid == user() => Peer::SameUser,
        _ => Peer::Stranger,
    }
}

/// Returns the owner of the socket that is bound to `local` and connected to `remote`, both on this machine.
fn tcp_owner(local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let canonical =
        |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let (local, remote) = (canonical(local), canonical(remote));
    // Other addresses of this machine could be forged by a neighbour on the same link.
    if !local.ip().is_loopback() || !remote.ip().is_loopback() {
        return None;
    }
    query_kernel(local, remote).unwrap_or_else(|| procfs::tcp_owner(local, remote))
}

/// The layout of the messages of `NETLINK_SOCK_DIAG` (linux/sock_diag.h and linux/inet_diag.h).
mod layout {
    pub(super) const BY_FAMILY: u16 = 20;
    pub(super) const ERROR: u16 = 2;
    pub(super) const REQUEST: u16 = 1;
    pub(super) const TCP: u8 = 6;
    pub(super) const HEADER_BYTES: usize = 16;
    /// `inet_diag_req_v2` and `inet_diag_sockid`.
    pub(super) const REQUEST_BYTES: usize = HEADER_BYTES + 8 + 48;
    /// Offsets in `inet_diag_msg`.
    pub(super) const SOURCE_PORT: usize = HEADER_BYTES + 4;
    pub(super) const USER: usize = HEADER_BYTES + 64;
    pub(super) const INODE: usize = HEADER_BYTES + 68;
}

/// Asks the kernel for one socket. The outer `None` means that the kernel gives no answer, and `/proc/net/tcp` decides.
fn query_kernel(local: SocketAddr, remote: SocketAddr) -> Option<Option<u32>> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )
    .ok()?;
    let request = netlink_request(local, remote);
    rustix::net::send(&socket, &request, SendFlags::empty()).ok()?;
    let mut buffer = [0; 1024];
    let (n_read, _) = rustix::net::recv(&socket, &mut buffer, RecvFlags::DONTWAIT).ok()?;
    let answer = buffer.get(..n_read)?;
    let message_type = answer.get(4..6)?;
    if message_type == layout::ERROR.to_ne_bytes() {
        // The socket does not exist, or the kernel has no such module: `/proc/net/tcp` decides.
        return None;
    }
    // If the socket does not exist, the kernel answers with a listener at the same port.
    let is_same = message_type == layout::BY_FAMILY.to_ne_bytes()
        && answer
            .get(layout::SOURCE_PORT..)?
            .starts_with(&ports(local, remote));
    let number = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    // A closed socket has no inode, and the kernel reports root as its owner.
    let is_open = number(layout::INODE)? != 0;
    Some((is_same && is_open).then_some(number(layout::USER)?))
}

fn ports(local: SocketAddr, remote: SocketAddr) -> [u8; 4] {
    let ([a, b], [c, d]) = (local.port().to_be_bytes(), remote.port().to_be_bytes());
    [a, b, c, d]
}

fn netlink_request(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family = match local {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let mut bytes = Vec::with_capacity(layout::REQUEST_BYTES);
    bytes.extend((layout::REQUEST_BYTES as u32).to_ne_bytes());
    bytes.extend(layout::BY_FAMILY.to_ne_bytes());
    bytes.extend(layout::REQUEST.to_ne_bytes());
    // Sequence number and port of the netlink socket.
    bytes.extend([0; 8]);
    // Family, protocol, extensions, padding, all states.
    bytes.extend([family.as_raw() as u8, layout::TCP, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(ports(local, remote));
    for address in [local.ip(), remote.ip()] {
        match address {
            IpAddr::V4(address) => {
                bytes.extend(address.octets());
                bytes.extend([0; 12]);
            }
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    // Any interface, any cookie.
    bytes.extend([0; 4]);
    bytes.extend([0xff; 8]);
    bytes
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair(listen_at: &str, connect_to: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(listen_at).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((connect_to, port)).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn addresses(served: &TcpStream) -> (SocketAddr, SocketAddr) {
        let canonical =
            |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        (
            canonical(served.peer_addr().unwrap()),
            canonical(served.local_addr().unwrap()),
        )
    }

    #[test]
    fn both_sources_know_the_owner_of_a_client_on_loopback() {
        let mut pairs = vec![
            pair("127.0.0.1:0", "127.0.0.1"),
            pair("127.0.0.1:0", "localhost"),
        ];
        // A client over IPv4 has a mapped address at a listener for both protocols.
        if TcpListener::bind("[::]:0").is_ok() {
            pairs.push(pair("[::]:0", "::1"));
            pairs.push(pair("[::]:0", "127.0.0.1"));
            pairs.push(pair("[::]:0", "::ffff:127.0.0.1"));
        }
        for (client, served) in pairs {
            let (peer, local) = addresses(&served);
            assert_eq!(procfs::tcp_owner(peer, local), Some(user()), "{peer}");
            if let Some(answered) = query_kernel(peer, local) {
                assert_eq!(answered, Some(user()), "{peer}");
            }
            assert_eq!(of_tcp(&served), Peer::SameUser);
            drop(client);
        }
    }

    #[test]
    fn closed_client_is_a_stranger_although_the_kernel_shows_root_as_its_owner() {
        let (client, served) = pair("127.0.0.1:0", "127.0.0.1");
        let (peer, local) = addresses(&served);
        drop(client);
        assert_ne!(query_kernel(peer, local), Some(Some(0)));
        assert_eq!(procfs::tcp_owner(peer, local), None);
        assert_eq!(of_tcp(&served), Peer::Stranger);
    }

    #[test]
    fn listener_at_the_same_port_is_not_taken_for_the_client() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let unused = SocketAddr::new(local.ip(), 9);
        assert_ne!(query_kernel(local, unused), Some(Some(user())));
        assert_eq!(tcp_owner(local, unused), None);
    }

    #[test]
    fn peer_of_a_unix_socket_is_known() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(of_unix(&one), Peer::SameUser);
    }

    #[test]
    fn unknown_and_other_users_are_strangers() {
        assert_eq!(judge(None), Peer::Stranger);
        assert_eq!(judge(Some(user() ^ 0x4000)), Peer::Stranger);
        assert_eq!(judge(Some(0)), Peer::SameUser);
    }
}
