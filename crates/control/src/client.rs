//! The HTTP client of the control API, over a Unix socket or TCP. Sibling processes and `heaptide ctl` use it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

use crate::address::Address;

const MAX_LINE_BYTES: u64 = 64 * 1024;

pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Box<dyn Read + Send>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let header = headers.find(|header| header.0.eq_ignore_ascii_case(name));
        header.map(|header| header.1.as_str())
    }

    /// Reads the whole body, up to `limit` bytes.
    pub fn bytes(self, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.body.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    pub fn json(self) -> io::Result<Value> {
        Ok(serde_json::from_slice(&self.bytes(16 << 20)?)?)
    }
}

/// The maximum time to wait for a connection: an unreachable host would otherwise take minutes.
const MAX_CONNECT: Duration = Duration::from_secs(10);

trait Stream: Read + Write + Send {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

fn connect(address: &Address, timeout: Duration) -> io::Result<(Box<dyn Stream>, String)> {
    Ok(match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            (Box::new(stream), "localhost".to_owned())
        }
        Address::Tcp { host, port } => {
            let stream = connect_to_any((host.as_str(), *port), timeout.min(MAX_CONNECT))?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            (Box::new(stream), format!("{host}:{port}"))
        }
    })
}

/// Connects to the first address that accepts, and waits at most `timeout` for each.
fn connect_to_any(host: impl ToSocketAddrs, timeout: Duration) -> io::Result<TcpStream> {
    let mut failure = io::Error::other("the host has no address");
    for address in host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Sends one request and reads the head of its answer.
pub fn call(
    address: &Address,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    timeout: Duration,
) -> io::Result<Answer> {
    let (mut stream, host) = connect(address, timeout)?;
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        head.push_str("Content-Type: application/json\r\n");
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    stream.flush()?;
    read_answer(BufReader::new(stream))
}

fn read_answer(mut reader: BufReader<Box<dyn Stream>>) -> io::Result<Answer> {
    let broken = || io::Error::new(io::ErrorKind::InvalidData, "the answer is not valid HTTP");
    let first = line(&mut reader)?;
    let status = first
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.get(2..5)?.parse().ok());
    let status = status.ok_or_else(broken)?;
    let mut headers = Vec::new();
    loop {
        let line = line(&mut reader)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(broken)?;
        headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    let header = |name: &str| {
        let mut headers = headers.iter();
        let header = headers.find(|header: &&(String, String)| header.0.eq_ignore_ascii_case(name));
        header.map(|header| header.1.as_str())
    };
    let is_chunked = header("Transfer-Encoding").is_some_and(|value| value.contains("chunked"));
    let length = header("Content-Length").and_then(|value| value.parse::<u64>().ok());
    let body: Box<dyn Read + Send> = match (is_chunked, length) {
        (true, _) => Box::new(ChunkedBody {
            reader,
            left: 0,
            is_first: true,
            is_done: false,
        }),
        (false, Some(length)) => Box::new(LengthBody {
            reader,
            left: length,
        }),
        (false, None) => Box::new(reader),
    };
    Ok(Answer {
        status,
        headers,
        body,
    })
}

fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    reader.take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes)?;
    if bytes.last() != Some(&b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// A body with a known length. An early end is an error.
struct LengthBody<R> {
    reader: R,
    left: u64,
}

impl<R: Read> Read for LengthBody<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(self.left.try_into().unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let n_read = self.reader.read(&mut buffer[..wanted])?;
        if n_read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= n_read as u64;
        Ok(n_read)
    }
}

struct ChunkedBody<R> {
    reader: R,
    left: u64,
    is_first: bool,
    is_done: bool,
}

impl<R: BufRead> Read for ChunkedBody<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_done || buffer.is_empty() {
            return Ok(0);
        }
        if self.left == 0 {
            if !self.is_first {
                line(&mut self.reader)?;
            }
            self.is_first = false;
            let head = line(&mut self.reader)?;
            let digits = head.split(';').next().unwrap_or("").trim();
            let length = u64::from_str_radix(digits, 16);
            self.left =
                length.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if self.left == 0 {
                self.is_done = true;
                return Ok(0);
            }
        }
        let wanted = buffer.len().min(self.left.try_into().unwrap_or(usize::MAX));
        let n_read = self.reader.read(&mut buffer[..wanted])?;
        if n_read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= n_read as u64;
        Ok(n_read)
    }
}
