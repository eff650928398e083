//! The TCP sockets of this thread's network namespace, and the users of this user namespace.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Returns the user who owns the open socket that is bound to `local` and connected to `remote`.
///
/// The addresses must not be IPv4-mapped IPv6 addresses. Returns `None` if the owner has closed the socket: the kernel
/// shows root as the owner of such sockets.
pub fn tcp_owner(local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let of_v4 = match (local.ip(), remote.ip()) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            let key = |octets: [u8; 4], port| format!("{}:{port:04X}", words(&octets));
            let key = [
                key(one.octets(), local.port()),
                key(other.octets(), remote.port()),
            ];
            find("/proc/thread-self/net/tcp", &key)
        }
        _ => None,
    };
    // Only `tcp6` lists an IPv6 socket that is connected to an IPv4 address.
    of_v4.or_else(|| {
        let key = |address: SocketAddr| {
            let octets = in_v6(address.ip()).octets();
            format!("{}:{:04X}", words(&octets), address.port())
        };
        find("/proc/thread-self/net/tcp6", &[key(local), key(remote)])
    })
}

fn in_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Returns an address as the kernel prints it: words of four bytes in native byte order.
fn words(octets: &[u8]) -> String {
    let words = octets
        .chunks_exact(4)
        .filter_map(|word| word.try_into().ok());
    words
        .map(|word| format!("{:08X}", u32::from_ne_bytes(word)))
        .collect()
}

/// Reads the table line by line, because it can have many thousand lines.
fn find(path: &str, key: &[String; 2]) -> Option<u32> {
    let lines = BufReader::new(File::open(path).ok()?).lines();
    lines
        .map_while(Result::ok)
        .find_map(|line| owner(&line, key))
        .flatten()
}

/// Returns the owner in a line of the table; the outer `None` if the line is about another socket.
fn owner(line: &str, key: &[String; 2]) -> Option<Option<u32>> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    if fields.next()? != key[0] || fields.next()? != key[1] {
        return None;
    }
    // State, queues, timer and retransmissions come first; another timer follows.
    let user = fields.nth(4)?.parse().ok();
    let inode = fields.nth(1)?;
    Some(user.filter(|_| inode != "0"))
}

/// Returns the user ID that the kernel shows for every user outside of this user namespace.
pub fn overflow_user() -> u32 {
    let text = fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    text.and_then(|text| text.trim().parse().ok())
        .unwrap_or(65534)
}

/// Returns whether this user namespace knows all users of the machine.
pub fn sees_all_users() -> bool {
    let text = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    text.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_is_read_from_the_line_of_an_open_socket() {
        let line = |inode: &str| {
            format!(
                "   7: 0100007F:1B59 0100007F:A2C4 01 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1 0 20 4 30 10 -1"
            )
        };
        let key = ["0100007F:1B59".to_owned(), "0100007F:A2C4".to_owned()];
        assert_eq!(owner(&line("4711"), &key), Some(Some(1000)));
        assert_eq!(owner(&line("0"), &key), Some(None));
        assert_eq!(
            owner(&line("4711"), &[key[1].clone(), key[0].clone()]),
            None
        );
        assert_eq!(owner("  sl  local_address rem_address", &key), None);
        assert_eq!(owner("   7: 0100007F:1B59 0100007F:A2C4 01", &key), None);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn addresses_are_printed_as_the_kernel_does() {
        assert_eq!(words(&[127, 0, 0, 1]), "0100007F");
        let mapped = in_v6("127.0.0.1".parse().unwrap());
        assert_eq!(words(&mapped.octets()), "0000000000000000FFFF00000100007F");
    }
}
