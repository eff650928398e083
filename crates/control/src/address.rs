//! The address of a server: `unix:path`, `port`, or `host:port`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq)]
pub enum Address {
    Unix(PathBuf),
    Tcp { host: String, port: u16 },
}

impl Address {
    pub fn parse(text: &str) -> Result<Address, String> {
        let text = text.trim();
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() || path.contains('\0') {
                return Err(format!("{text:?} has no path: write unix:/path/to/socket"));
            }
            return Ok(Address::Unix(path.into()));
        }
        let (host, port) = text.rsplit_once(':').unwrap_or(("127.0.0.1", text));
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.parse().map_err(|_| {
            format!("{text:?} is not an address: write a port, host:port or unix:/path/to/socket")
        })?;
        let host = if host.is_empty() { "127.0.0.1" } else { host };
        Ok(Address::Tcp {
            host: host.to_owned(),
            port,
        })
    }

    /// Returns whether only processes of this machine can reach the address.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp { host, .. } => is_loopback(host),
        }
    }
}

/// Returns whether a host name always refers to this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => Ipv4Addr::is_loopback(&address),
        Ok(IpAddr::V6(address)) => Ipv6Addr::is_loopback(&address),
        Err(_) => false,
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(formatter, "unix:{}", path.display()),
            Address::Tcp { host, port } if host.contains(':') => {
                write!(formatter, "http://[{host}]:{port}")
            }
            Address::Tcp { host, port } => write!(formatter, "http://{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_means_loopback_and_other_hosts_are_not_local() {
        let local = |text| Address::parse(text).unwrap().is_local();
        assert!(local("7000") && local(":7000") && local("localhost:1") && local("[::1]:80"));
        assert!(local("127.8.9.1:80") && local("unix:/run/job.sock"));
        assert!(!local("0.0.0.0:7000") && !local("job.example:7000") && !local("[::]:80"));
        assert!(Address::parse("unix:").is_err() && Address::parse("host:port").is_err());
        assert_eq!(
            Address::parse("7000").unwrap().to_string(),
            "http://127.0.0.1:7000"
        );
    }
}
