//! Access control and rate limit.
//!
//! Processes of the program's own user and of root need no token for reports; anyone else does, apart from the
//! exceptions at [`EntryPoint::Mounted`] and [`EntryPoint::JobPort`]. Memory contents and deletion need the token or a
//! Unix socket, because a browser or a proxy of the same user may act for others. A token that the user chose is
//! required for all of these, except at the private socket. Pages of another origin are refused
//! unless that origin is configured. At loopback addresses and Unix sockets, requests without a token that name another
//! host than localhost are also refused (DNS rebinding).

use std::sync::Mutex;
use std::time::Instant;

use crate::address::{Address, is_loopback};
use crate::config::Config;
use crate::lock;
use crate::peer::Peer;
use crate::request::Request;
use crate::response::Response;
use crate::token::Token;

/// The clients that can reach a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reach {
    /// Only this user: the socket in the user's private folder.
    Private,
    /// Processes of this machine: a configured address on loopback or a Unix socket.
    Machine,
    /// Other machines.
    Network,
}

/// How a request arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EntryPoint {
    /// The socket in the user's private folder, which only the same user can open; or the program itself.
    Private,
    /// A configured Unix socket.
    Socket(Peer),
    /// A configured address on loopback.
    Loopback(Peer),
    /// A configured address that other machines can reach.
    Remote,
    /// The program's web server, which has its own access control.
    Mounted,
    /// The port of `heaptide serve`, where memray's routes are open to anyone unless the user chose a token.
    JobPort(Peer),
}

/// The access that a route requires, in increasing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// None: the route reveals nothing about the program.
    Nothing,
    /// None at the port of `heaptide serve`, else [`Need::Reports`].
    ReportsOfJob,
    /// Start, stop, and read reports.
    Reports,
    /// Read memory contents, or delete.
    Everything,
}

/// The access that a request has.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Access {
    Nothing,
    Reports,
    Everything,
}

/// Returns which clients can reach an address, or an error if other machines can reach it and the user chose no token.
pub fn reach(address: &Address, token: Option<&Token>) -> Result<Reach, String> {
    if address.is_local() {
        return Ok(Reach::Machine);
    }
    if token.is_some_and(Token::is_chosen) {
        return Ok(Reach::Network);
    }
    Err(format!(
        "{address} is reachable from other machines: set a token, or listen on loopback or a unix socket"
    ))
}

/// The rate limits. Strangers have their own, so that they cannot use up the requests of the program's user.
pub(crate) struct Rates {
    known: Rate,
    strangers: Rate,
}

impl Rates {
    pub(crate) fn new(per_second: u32) -> Rates {
        let (known, strangers) = (Rate::new(per_second), Rate::new(per_second));
        Rates { known, strangers }
    }

    fn of(&self, access: Access) -> &Rate {
        match access {
            Access::Nothing => &self.strangers,
            Access::Reports | Access::Everything => &self.known,
        }
    }
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

    /// Counts one request; returns `false` if it exceeds the limit.
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

/// Returns a refusal if the request is not allowed.
pub(crate) fn refuse(
    config: &Config,
    rates: &Rates,
    request: &Request,
    entry_point: EntryPoint,
    need: Need,
) -> Option<Response> {
    if entry_point == EntryPoint::Private {
        return None;
    }
    let has_token = has_token(config, request);
    let is_of_localhost = request
        .header("Host")
        .is_none_or(|host| is_loopback(host_of(host)));
    // A page whose host name resolves to this machine (DNS rebinding) has the rights of strangers.
    let entry_point = match entry_point {
        EntryPoint::JobPort(Peer::SameUser) if !is_of_localhost => {
            EntryPoint::JobPort(Peer::Stranger)
        }
        entry_point => entry_point,
    };
    let access = access(config, entry_point, has_token);
    if !rates.of(access).allows() {
        let sentence = "too many requests: try again in a second";
        return Some(Response::error(429, "TooManyRequests", sentence).with("Retry-After", "1"));
    }
    let is_local = matches!(entry_point, EntryPoint::Loopback(_) | EntryPoint::Socket(_));
    if is_local && !is_of_localhost && !has_token && !is_token_chosen(config) {
        let sentence = "without a token, this address accepts only requests to localhost: \
                        send the token to use another host name";
        return Some(Response::error(403, "Forbidden", sentence));
    }
    if is_from_another_origin(config, request, entry_point) {
        let sentence = "pages of another origin may not use this API";
        return Some(Response::error(403, "Forbidden", sentence));
    }
    let is_allowed = match need {
        Need::Nothing => true,
        Need::ReportsOfJob => {
            let is_open = matches!(entry_point, EntryPoint::JobPort(_)) && !is_token_chosen(config);
            is_open || access != Access::Nothing
        }
        Need::Reports => access != Access::Nothing,
        Need::Everything => access == Access::Everything,
    };
    (!is_allowed).then(|| token_required(config, access))
}

fn access(config: &Config, entry_point: EntryPoint, has_token: bool) -> Access {
    if has_token {
        return Access::Everything;
    }
    if is_token_chosen(config) {
        return Access::Nothing;
    }
    match entry_point {
        EntryPoint::Private | EntryPoint::Socket(Peer::SameUser) => Access::Everything,
        EntryPoint::Loopback(Peer::SameUser)
        | EntryPoint::JobPort(Peer::SameUser)
        | EntryPoint::Mounted => Access::Reports,
        EntryPoint::Socket(Peer::Stranger)
        | EntryPoint::Loopback(Peer::Stranger)
        | EntryPoint::JobPort(Peer::Stranger)
        | EntryPoint::Remote => Access::Nothing,
    }
}

fn is_token_chosen(config: &Config) -> bool {
    config.token.as_ref().is_some_and(Token::is_chosen)
}

fn has_token(config: &Config, request: &Request) -> bool {
    let Some(token) = &config.token else {
        return false;
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
    let is_valid = |given: &str| token.matches(given.as_bytes());
    bearer.is_some_and(is_valid) || named.is_some_and(is_valid)
}

/// Returns the refusal of a request that needs a token, with the location of the token.
fn token_required(config: &Config, access: Access) -> Response {
    let reason = match access {
        _ if is_token_chosen(config) => "a token is required",
        Access::Nothing => {
            "a token is required, because this connection is not known to come from the program's user"
        }
        _ => "memory contents and deletion need a token, even from the program's own user",
    };
    let location = match &config.token {
        None => "none could be created, so set HEAPTIDE_TOKEN and restart the program".to_owned(),
        Some(token) => match token.file() {
            Some(path) => format!(
                "send Authorization: Bearer TOKEN, with the token in {}",
                path.display()
            ),
            None => {
                "send Authorization: Bearer TOKEN, with the token that the program was started with"
                    .to_owned()
            }
        },
    };
    Response::error(401, "Unauthorized", format!("{reason}: {location}"))
        .with("WWW-Authenticate", "Bearer")
}

/// Returns whether a page of another origin sent the request.
///
/// A link on another page may open a report in the browser's window: the user sees the report, and the other page
/// cannot read it. Further requests of that page without `Origin`, such as images and frames, are refused.
fn is_from_another_origin(config: &Config, request: &Request, entry_point: EntryPoint) -> bool {
    if let Some(origin) = request.header("Origin") {
        // Only a proxy sets X-Forwarded-Host truthfully, and only these entry points may have a proxy in front of them.
        let is_proxied = matches!(entry_point, EntryPoint::Mounted | EntryPoint::JobPort(_));
        let forwarded = request.header("X-Forwarded-Host").filter(|_| is_proxied);
        let host = forwarded.or(request.header("Host"));
        let of_page = origin.split_once("://").map(|parts| parts.1);
        let is_own = of_page.is_some() && of_page == host;
        return !is_own && config.cors_origin.as_deref() != Some(origin);
    }
    let is_navigation = matches!(request.method.as_str(), "GET" | "HEAD")
        && request.header("Sec-Fetch-Mode") == Some("navigate")
        && request.header("Sec-Fetch-Dest") == Some("document");
    match request.header("Sec-Fetch-Site") {
        None | Some("same-origin" | "none") => false,
        Some(_) => !is_navigation,
    }
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
    fn address_reachable_from_other_machines_needs_a_chosen_token() {
        let address = |text| Address::parse(text).unwrap();
        let chosen = Token::chosen("secret");
        for local in ["127.0.0.1:8400", "unix:/run/heaptide.sock"] {
            for token in [None, Some(&chosen)] {
                assert_eq!(reach(&address(local), token), Ok(Reach::Machine));
            }
        }
        let remote = address("0.0.0.0:8400");
        assert_eq!(reach(&remote, Some(&chosen)), Ok(Reach::Network));
        let refusal = reach(&remote, None).unwrap_err();
        assert!(refusal.contains("set a token"), "{refusal}");
    }

    #[test]
    fn strangers_do_not_use_up_the_requests_of_the_user() {
        let rates = Rates::new(1);
        assert!(rates.of(Access::Nothing).allows() && !rates.of(Access::Nothing).allows());
        assert!(rates.of(Access::Reports).allows());
    }
}
