//! Parses requests, which are untrusted: every size is bounded, and an invalid request is refused with a status.

pub const MAX_HEAD_BYTES: usize = 16 * 1024;
pub const MAX_BODY_BYTES: usize = 64 * 1024;
const MAX_HEADERS: usize = 64;
const MAX_PARAMETERS: usize = 64;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    pub method: String,
    /// As sent, percent-encoded. Never used as a file name.
    pub path: String,
    pub query: Vec<(String, String)>,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// The reason why a request is invalid, and its HTTP status.
#[derive(Debug, PartialEq)]
pub struct Refusal {
    pub status: u16,
    pub reason: String,
}

impl Refusal {
    pub(crate) fn new(status: u16, reason: impl Into<String>) -> Refusal {
        Refusal {
            status,
            reason: reason.into(),
        }
    }
}

impl Request {
    /// Builds a request from the parts that a web framework provides.
    pub fn from_parts(
        method: &str,
        path: &str,
        query: &str,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    ) -> Result<Request, Refusal> {
        if body.len() > MAX_BODY_BYTES {
            return Err(too_large());
        }
        Ok(Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: parse_query(query)?,
            headers,
            body,
        })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|header| header.0.eq_ignore_ascii_case(name));
        found.map(|header| header.1.as_str())
    }

    /// Returns the last value of a query parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().rev().find(|pair| pair.0 == name);
        found.map(|pair| pair.1.as_str())
    }

    /// Parses the bytes received so far. Returns `Ok(None)` if the request is incomplete.
    pub fn parse(bytes: &[u8]) -> Result<Option<Request>, Refusal> {
        PartialRequest::default().push(bytes)
    }
}

/// Collects the bytes of one request as they arrive. The work is linear in the bytes, even if they arrive one by one.
#[derive(Default)]
pub(crate) struct PartialRequest {
    bytes: Vec<u8>,
    /// The parsed head, the length of the body, and the length of the head.
    head: Option<(Request, usize, usize)>,
}

impl PartialRequest {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds received bytes. Returns the request once it is complete.
    pub(crate) fn push(&mut self, mut received: &[u8]) -> Result<Option<Request>, Refusal> {
        if self.bytes.is_empty() {
            // The parser ignores line breaks before a request, but would read them again with every byte that follows.
            while let [b'\r' | b'\n', rest @ ..] = received {
                received = rest;
            }
        }
        self.bytes.extend_from_slice(received);
        if self.head.is_none() {
            // Only a line break can end the head, so the parser runs at most once per line. It refuses too many lines.
            if received.contains(&b'\n') {
                self.head = parse_head(&self.bytes)?;
            }
            if self.head.is_none() && self.bytes.len() > MAX_HEAD_BYTES {
                return Err(head_too_large());
            }
        }
        let body = |head: &(Request, usize, usize)| {
            let body = self.bytes.get(head.2..head.2 + head.1);
            body.map(<[u8]>::to_vec)
        };
        let Some(body) = self.head.as_ref().and_then(body) else {
            return Ok(None);
        };
        let head = self.head.take();
        Ok(head.map(|(request, ..)| Request { body, ..request }))
    }
}

fn too_large() -> Refusal {
    Refusal::new(
        413,
        format!("the body is larger than {MAX_BODY_BYTES} bytes"),
    )
}

fn head_too_large() -> Refusal {
    Refusal::new(
        431,
        format!("the head of the request is larger than {MAX_HEAD_BYTES} bytes"),
    )
}

/// Returns the request without its body, the length of the body and of the head; `None` if the head is incomplete.
fn parse_head(bytes: &[u8]) -> Result<Option<(Request, usize, usize)>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let used = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(used)) if used > MAX_HEAD_BYTES => {
            return Err(head_too_large());
        }
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Refusal::new(
                431,
                format!("more than {MAX_HEADERS} headers"),
            ));
        }
        Err(error) => return Err(Refusal::new(400, format!("this is not HTTP/1.1: {error}"))),
    };
    let target = parsed.path.unwrap_or("/");
    // Proxies may send the target as a full URL.
    let target = target
        .strip_prefix("http://")
        .map_or(target, |rest| rest.find('/').map_or("/", |at| &rest[at..]));
    let target = target.split('#').next().unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = Request {
        method: parsed.method.unwrap_or("").to_owned(),
        path: path.to_owned(),
        query: parse_query(query)?,
        ..Request::default()
    };
    let mut length = None;
    let mut n_hosts = 0;
    for header in parsed.headers.iter() {
        let value = String::from_utf8_lossy(header.value).trim().to_owned();
        n_hosts += usize::from(header.name.eq_ignore_ascii_case("host"));
        if header.name.eq_ignore_ascii_case("content-length") {
            // `parse` alone would also accept a plus sign, which a proxy may read differently.
            let digits =
                Some(&value).filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()));
            let value = digits
                .and_then(|digits| digits.parse::<usize>().ok())
                .ok_or_else(|| Refusal::new(400, "Content-Length is not a number"))?;
            if length.is_some_and(|length| length != value) {
                return Err(Refusal::new(
                    400,
                    "there are two different Content-Length headers",
                ));
            }
            length = Some(value);
        }
        if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(Refusal::new(
                411,
                "chunked requests are not supported: send Content-Length",
            ));
        }
        request.headers.push((header.name.to_owned(), value));
    }
    // RFC 9112: a proxy and this server could take two different hosts from such a request.
    if n_hosts > 1 || (n_hosts == 0 && parsed.version == Some(1)) {
        let reason = "an HTTP/1.1 request needs exactly one Host header";
        return Err(Refusal::new(400, reason));
    }
    let length = length.unwrap_or(0);
    if length > MAX_BODY_BYTES {
        return Err(too_large());
    }
    Ok(Some((request, length, used)))
}

pub fn parse_query(query: &str) -> Result<Vec<(String, String)>, Refusal> {
    let pieces = query.split('&').filter(|piece| !piece.is_empty());
    let pairs: Result<Vec<_>, Refusal> = pieces
        .map(|piece| {
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            Ok((decode(name)?, decode(value)?))
        })
        .collect();
    let pairs = pairs?;
    if pairs.len() > MAX_PARAMETERS {
        return Err(Refusal::new(
            400,
            format!("more than {MAX_PARAMETERS} query parameters"),
        ));
    }
    Ok(pairs)
}

/// Percent-encodes the bytes of a text for which `is_kept` is false.
pub fn percent_encoded(text: &str, is_kept: impl Fn(u8) -> bool) -> String {
    let encode = |byte: u8| match is_kept(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// Decodes percent-encoding and plus signs.
pub(crate) fn decode(text: &str) -> Result<String, Refusal> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                let digits = rest
                    .get(..2)
                    .and_then(|digits| std::str::from_utf8(digits).ok());
                let digits =
                    digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                rest = rest.get(2..).unwrap_or_default();
                byte.ok_or_else(|| {
                    Refusal::new(400, "a percent sign without two hexadecimal digits")
                })?
            }
            other => other,
        });
    }
    if bytes.contains(&0) {
        return Err(Refusal::new(400, "a query parameter contains %00"));
    }
    String::from_utf8(bytes).map_err(|_| Refusal::new(400, "a query parameter is not valid UTF-8"))
}
