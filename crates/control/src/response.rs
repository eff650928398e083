//! Responses: status, headers and body. A body from a file is streamed, never held in memory.

use heaptide_capture::reason::without_error_numbers;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

use serde_json::{Value, json};

/// The size of the chunks in which a body is read and written.
pub const PIECE_BYTES: usize = 64 * 1024;

pub struct Response {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Body,
}

/// The parts of a body, in order.
#[derive(Default)]
pub struct Body {
    parts: Vec<Part>,
}

enum Part {
    Bytes(Vec<u8>),
    /// A part of a file.
    FileRange {
        file: File,
        from: u64,
        length: u64,
    },
    /// A file that is still being written, up to its end at the time it is read.
    UntilEof {
        file: File,
        from: u64,
    },
}

impl Response {
    pub(crate) fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Response {
        Response {
            status,
            headers: vec![("Content-Type", content_type.to_owned())],
            body: Body::from(body.into()),
        }
    }

    pub(crate) fn json(status: u16, value: &Value) -> Response {
        Response::new(status, "application/json", value.to_string())
    }

    /// Returns an error response with the body `{error, type}`.
    pub fn error(status: u16, error_type: &str, sentence: impl Into<String>) -> Response {
        let sentence: String = sentence.into();
        Response::json(
            status,
            &json!({"error": without_error_numbers(&sentence), "type": error_type}),
        )
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Response {
        self.headers.push((name, value.into()));
        self
    }

    /// Writes the response, without its body if `head_only`. The connection is closed after it.
    pub(crate) fn send(mut self, out: &mut impl Write, head_only: bool) -> io::Result<()> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            // A line break in a value would start another header.
            let value: String = value
                .chars()
                .filter(|letter| !letter.is_control())
                .collect();
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let length = self.body.length();
        match length {
            Some(length) => head.push_str(&format!("Content-Length: {length}\r\n")),
            None => head.push_str("Transfer-Encoding: chunked\r\n"),
        }
        head.push_str("Connection: close\r\n\r\n");
        out.write_all(head.as_bytes())?;
        if head_only {
            return out.flush();
        }
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let n_read = self.body.read(&mut buffer)?;
            if length.is_none() {
                write!(out, "{n_read:x}\r\n")?;
            }
            out.write_all(&buffer[..n_read])?;
            if length.is_none() {
                out.write_all(b"\r\n")?;
            }
            if n_read == 0 {
                return out.flush();
            }
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Body {
            parts: vec![Part::Bytes(bytes)],
        }
    }
}

impl Body {
    /// Returns a body of `length` bytes of a file.
    pub(crate) fn file_range(file: File, from: u64, length: u64) -> Body {
        Body {
            parts: vec![Part::FileRange { file, from, length }],
        }
    }

    pub(crate) fn until_eof(file: File) -> Body {
        Body {
            parts: vec![Part::UntilEof { file, from: 0 }],
        }
    }

    pub(crate) fn then(mut self, other: Body) -> Body {
        self.parts.extend(other.parts);
        self
    }

    /// Returns the length, or `None` if a part has no known length.
    pub fn length(&self) -> Option<u64> {
        self.parts.iter().map(Part::length).sum()
    }

    /// Returns only the bytes `from..to`. The length of the body must be known.
    pub(crate) fn slice(self, from: u64, to: u64) -> Body {
        let mut begin = 0;
        let mut parts = Vec::new();
        for part in self.parts {
            let length = part.length().unwrap_or(0);
            let end = begin + length;
            let (first, last) = (from.max(begin), to.min(end));
            if first < last {
                parts.push(part.slice(first - begin, last - begin));
            }
            begin = end;
        }
        Body { parts }
    }

    /// Reads the next bytes; 0 at the end. Fails if a file has become shorter, because Content-Length was already sent.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(part) = self.parts.first_mut() {
            let n_read = part.read(buffer)?;
            if n_read > 0 {
                return Ok(n_read);
            }
            self.parts.remove(0);
        }
        Ok(0)
    }
}

impl Part {
    fn length(&self) -> Option<u64> {
        match self {
            Part::Bytes(bytes) => Some(bytes.len() as u64),
            Part::FileRange { length, .. } => Some(*length),
            Part::UntilEof { .. } => None,
        }
    }

    fn slice(self, from: u64, to: u64) -> Part {
        match self {
            Part::Bytes(bytes) => Part::Bytes(bytes[from as usize..to as usize].to_vec()),
            Part::FileRange {
                file, from: begin, ..
            } => Part::FileRange {
                file,
                from: begin + from,
                length: to - from,
            },
            until_eof => until_eof,
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Part::Bytes(bytes) => {
                let n_read = bytes.as_slice().read(buffer)?;
                bytes.drain(..n_read);
                Ok(n_read)
            }
            Part::UntilEof { file, from } => {
                let n_read = file.read_at(buffer, *from)?;
                *from += n_read as u64;
                Ok(n_read)
            }
            Part::FileRange { file, from, length } => {
                let wanted = buffer.len().min((*length).try_into().unwrap_or(usize::MAX));
                if wanted == 0 {
                    return Ok(0);
                }
                let n_read = file.read_at(&mut buffer[..wanted], *from)?;
                if n_read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                *from += n_read as u64;
                *length -= n_read as u64;
                Ok(n_read)
            }
        }
    }
}

/// Returns the reason phrase of a status.
pub(crate) fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        413 => "Content Too Large",
        416 => "Range Not Satisfiable",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Unknown",
    }
}
