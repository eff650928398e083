//! Answers: a status, headers, and a body that is never held in memory if it lies in a file.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

use serde_json::{Value, json};

/// Read and written at a time.
pub const PIECE_BYTES: usize = 64 * 1024;

pub struct Response {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Body,
}

/// What a body consists of, one part after the other.
#[derive(Default)]
pub struct Body {
    parts: Vec<Part>,
}

enum Part {
    Bytes(Vec<u8>),
    /// A stretch of a file.
    FileRange {
        file: File,
        from: u64,
        length: u64,
    },
    /// A file that is still being written, to wherever it ends when its end is reached.
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

    /// `{error, type}`: every answer that is not what was asked for looks like this.
    pub fn error(status: u16, kind: &str, sentence: impl Into<String>) -> Response {
        let sentence: String = sentence.into();
        Response::json(status, &json!({"error": sentence, "type": kind}))
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Response {
        self.headers.push((name, value.into()));
        self
    }

    /// Writes everything; the connection is closed behind it. `head_only` for HEAD.
    pub(crate) fn send(mut self, out: &mut impl Write, head_only: bool) -> io::Result<()> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            // A line end inside a value would begin another header.
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
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let n_read = self.body.read(&mut piece)?;
            if length.is_none() {
                write!(out, "{n_read:x}\r\n")?;
            }
            out.write_all(&piece[..n_read])?;
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
    /// A stretch of a file whose length is known.
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

    /// `None` as long as a part still grows.
    pub fn length(&self) -> Option<u64> {
        self.parts.iter().map(Part::length).sum()
    }

    /// Bytes `from` up to `to` alone; only of a body whose length is known.
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

    /// The next bytes; 0 at the end. A file that became shorter meanwhile is an error: the length was promised.
    pub fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        while let Some(part) = self.parts.first_mut() {
            let n_read = part.read(piece)?;
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

    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        match self {
            Part::Bytes(bytes) => {
                let n_read = bytes.as_slice().read(piece)?;
                bytes.drain(..n_read);
                Ok(n_read)
            }
            Part::UntilEof { file, from } => {
                let n_read = file.read_at(piece, *from)?;
                *from += n_read as u64;
                Ok(n_read)
            }
            Part::FileRange { file, from, length } => {
                let wanted = piece.len().min((*length).try_into().unwrap_or(usize::MAX));
                if wanted == 0 {
                    return Ok(0);
                }
                let n_read = file.read_at(&mut piece[..wanted], *from)?;
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

/// What HTTP calls a status.
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
        404 => "Not ResolvedRoute",
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
