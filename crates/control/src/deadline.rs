//! A reader with one deadline for all its reads.

use std::io::{self, Read};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A stream whose reads and writes can time out.
pub(crate) trait TimeoutStream {
    fn limit_read(&self, timeout: Duration) -> io::Result<()>;
    fn limit_write(&self, timeout: Duration) -> io::Result<()>;
    fn read_some(&self, buffer: &mut [u8]) -> io::Result<usize>;
}

/// Both stream types have these methods, but the standard library has no trait for them.
macro_rules! timeout_stream {
    ($($stream:ty)*) => { $(
        impl TimeoutStream for $stream {
            fn limit_read(&self, timeout: Duration) -> io::Result<()> {
                self.set_read_timeout(Some(timeout))
            }

            fn limit_write(&self, timeout: Duration) -> io::Result<()> {
                self.set_write_timeout(Some(timeout))
            }

            fn read_some(&self, buffer: &mut [u8]) -> io::Result<usize> {
                (&mut &*self).read(buffer)
            }
        }
    )* };
}
timeout_stream! { TcpStream UnixStream }

/// Reads with one deadline for all reads, so that a client that sends single bytes cannot hold its thread forever.
pub(crate) struct DeadlineReader<'a, T> {
    stream: &'a T,
    deadline: Instant,
}

impl<'a, T: TimeoutStream> DeadlineReader<'a, T> {
    pub(crate) fn new(stream: &'a T, timeout: Duration) -> DeadlineReader<'a, T> {
        let deadline = Instant::now() + timeout;
        DeadlineReader { stream, deadline }
    }
}

impl<T: TimeoutStream> Read for DeadlineReader<'_, T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.limit_read(left)?;
        self.stream.read_some(buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::Request;

    #[test]
    fn client_that_sends_single_bytes_is_cut_off_at_the_deadline() {
        let (mut client, served) = UnixStream::pair().unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let has_ended = ended.clone();
        let sending = std::thread::spawn(move || {
            while !has_ended.load(Ordering::SeqCst) {
                client.write_all(b"a").unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        // Each byte arrives in time, but the request is never complete.
        let refusal = Request::read(&mut DeadlineReader::new(&served, Duration::from_millis(50)));
        ended.store(true, Ordering::SeqCst);
        sending.join().unwrap();
        assert_eq!(refusal.unwrap_err().status, 408);
    }
}
