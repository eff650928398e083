//! Clients that take their time: how long they may.

use std::io::{self, Read};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A stream whose reads and writes can be given up.
pub(crate) trait TimeoutStream {
    fn limit_read(&self, patience: Duration) -> io::Result<()>;
    fn limit_write(&self, patience: Duration) -> io::Result<()>;
    fn read_some(&self, piece: &mut [u8]) -> io::Result<usize>;
}

/// Both kinds have these methods, and the standard library no trait that names them.
macro_rules! timeout_stream {
    ($($stream:ty)*) => { $(
        impl TimeoutStream for $stream {
            fn limit_read(&self, patience: Duration) -> io::Result<()> {
                self.set_read_timeout(Some(patience))
            }

            fn limit_write(&self, patience: Duration) -> io::Result<()> {
                self.set_write_timeout(Some(patience))
            }

            fn read_some(&self, piece: &mut [u8]) -> io::Result<usize> {
                (&mut &*self).read(piece)
            }
        }
    )* };
}
timeout_stream! { TcpStream UnixStream }

/// Reads with one time limit for all: a client that sends a byte now and then does not keep its thread for ever.
pub(crate) struct DeadlineReader<'a, T> {
    stream: &'a T,
    limit: Instant,
}

impl<'a, T: TimeoutStream> DeadlineReader<'a, T> {
    pub(crate) fn new(stream: &'a T, patience: Duration) -> DeadlineReader<'a, T> {
        let limit = Instant::now() + patience;
        DeadlineReader { stream, limit }
    }
}

impl<T: TimeoutStream> Read for DeadlineReader<'_, T> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        let left = self.limit.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.limit_read(left)?;
        self.stream.read_some(piece)
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
    fn client_that_says_a_little_now_and_then_has_one_time_limit_for_all() {
        let (mut client, served) = UnixStream::pair().unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let has_ended = ended.clone();
        let talking = std::thread::spawn(move || {
            while !has_ended.load(Ordering::SeqCst) {
                client.write_all(b"a").unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        // Each byte comes in time; the request never does.
        let refusal = Request::read(&mut DeadlineReader::new(&served, Duration::from_millis(50)));
        ended.store(true, Ordering::SeqCst);
        talking.join().unwrap();
        assert_eq!(refusal.unwrap_err().status, 408);
    }
}
