//! Access control and rate limit.
//!
//! Loopback addresses and sockets accept every client that can reach them; all other addresses need a token. Pages of
//! another origin are refused unless that origin is configured. Requests to loopback under another host name are also
//! refused (DNS rebinding).

use std::sync::Mutex;
use std::time::Instant;

use crate::address::{Address, is_loopback};
use crate::config::Config;
use crate::lock;
use crate::request::Request;
use crate::response::Response;

/// The way a request arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EntryPoint {
    /// The socket in the user's private folder, which only the same user can open.
    Private,
    /// A configured address on loopback or a Unix socket.
    Local,
    /// A configured address that other machines can reach.
    Remote,
    /// The program's web server, which has its own access control.
    Mounted,
}

/// Returns the entry point of a server at an address. Refuses an address that other machines can reach without a token.
pub fn entry_point(address: &Address, has_token: bool) -> Result<EntryPoint, String> {
    if address.is_local() {
        return Ok(EntryPoint::Local);
    }
    if has_token {
        return Ok(EntryPoint::Remote);
    }
    Err(format!(
        "{address} is reachable from other machines: set a token, or listen on loopback or a unix socket"
    ))
}

/// A rate limit: a token bucket that refills with time.
pub(crate) struct Rate {
    per_second: f64,
    bucket: Mutex<(f64, Instant)>,
}

impl Rate {
    pub(crate) fn new(per_second: u32) -> Rate {
        let per_second = f64::from(per_second.max(1));
        Rate {
            per_second,
            bucket: Mutex::new((per_second, Instant::now())),
        }
    }

    /// Takes one token; returns `false` if there is none.
    pub(crate) fn allows(&self) -> bool {
        let mut bucket = lock(&self.bucket);
        let now = Instant::now();
        let filled = now.saturating_duration_since(bucket.1).as_secs_f64() * self.per_second;
        *bucket = ((bucket.0 + filled).min(self.per_second), now);
        if bucket.0 < 1.0 {
            return false;
        }
        bucket.0 -= 1.0;
        true
    }
}

/// Compares two secrets in a time that does not depend on the position of the first difference.
pub(crate) fn is_equal_in_constant_time(one: &[u8], other: &[u8]) -> bool {
    let mut difference = one.len() ^ other.len();
    for at in 0..one.len().max(other.len()) {
        let (left, right) = (one.get(at), other.get(at));
        difference |= usize::from(left.copied().unwrap_or(0) ^ right.copied().unwrap_or(0));
    }
    std::hint::black_box(difference) == 0
}

/// Returns a refusal if the request is not allowed.
pub(crate) fn refuse(
    config: &Config,
    rate: &Rate,
    request: &Request,
    entry_point: EntryPoint,
    is_public: bool,
) -> Option<Response> {
    if entry_point == EntryPoint::Private {
        return None;
    }
    if !rate.allows() {
        let sentence = "too many requests: try again in a second";
        return Some(Response::error(429, "TooManyRequests", sentence).with("Retry-After", "1"));
    }
    if entry_point == EntryPoint::Local && config.token.is_none() {
        let host = request.header("Host").map(host_of);
        if host.is_some_and(|host| !is_loopback(host)) {
            let sentence = "without a token, this address accepts only requests to localhost: \
                            set a token to use another host name";
            return Some(Response::error(403, "Forbidden", sentence));
        }
    }
    if let Some(origin) = request.header("Origin") {
        let is_own = || {
            let host = request
                .header("X-Forwarded-Host")
                .or(request.header("Host"));
            let origin = origin.split_once("://").map(|parts| parts.1);
            origin.is_some() && origin == host
        };
        if config.cors_origin.as_deref() != Some(origin) && !is_own() {
            let sentence = "pages of another origin may not use this API";
            return Some(Response::error(403, "Forbidden", sentence));
        }
    }
    if is_public || has_token(config, request) {
        return None;
    }
    let sentence = "a token is required: send Authorization: Bearer TOKEN";
    Some(Response::error(401, "Unauthorized", sentence).with("WWW-Authenticate", "Bearer"))
}

fn has_token(config: &Config, request: &Request) -> bool {
    let Some(token) = &config.token else {
        return true;
    };
    let bearer = request.header("Authorization").and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme
            .eq_ignore_ascii_case("bearer")
            .then_some(token.trim())
    });
    let named = config
        .token_header
        .as_deref()
        .and_then(|name| request.header(name));
    let is_valid = |given: &str| is_equal_in_constant_time(given.as_bytes(), token.as_bytes());
    bearer.is_some_and(is_valid) || named.is_some_and(is_valid)
}

/// Returns a host without its port.
fn host_of(value: &str) -> &str {
    match value.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
        _ => value,
    }
}

/// Adds the CORS headers for the configured origin.
pub(crate) fn allow_origin(config: &Config, request: &Request, response: Response) -> Response {
    match (&config.cors_origin, request.header("Origin")) {
        (Some(allowed), Some(origin)) if allowed == origin => response
            .with("Access-Control-Allow-Origin", allowed.clone())
            .with("Vary", "Origin"),
        _ => response,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_reachable_from_other_machines_needs_a_token() {
        let address = |text| Address::parse(text).unwrap();
        for local in ["127.0.0.1:8400", "unix:/run/heaptide.sock"] {
            for has_token in [false, true] {
                assert_eq!(
                    entry_point(&address(local), has_token),
                    Ok(EntryPoint::Local)
                );
            }
        }
        let remote = address("0.0.0.0:8400");
        assert_eq!(entry_point(&remote, true), Ok(EntryPoint::Remote));
        let refusal = entry_point(&remote, false).unwrap_err();
        assert!(refusal.contains("set a token"), "{refusal}");
    }
}
