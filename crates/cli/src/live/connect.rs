//! The viewer's end of a connection: asks for the newest numbers when it has shown the ones before.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use super::feed::{Feed, Writer};
use super::wire::{self, GREETING};
use crate::exit::Failure;

/// A program of ours answers at once; whoever does not is something else, or gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(100);

/// Connects to a port of this machine at which a program is shown.
pub(crate) fn connect(port: u16) -> Result<Feed, Failure> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(|error| {
        Failure::failed(match error.kind() {
            ErrorKind::ConnectionRefused => format!(
                "nothing listens on port {port} of this machine: start the program with `heaptide run --live-remote`, \
                 which says its port"
            ),
            _ => format!("port {port} of this machine cannot be reached ({error}): check the number"),
        })
    })?;
    greet(&stream).map_err(|_| {
        Failure::failed(format!(
            "what listens on port {port} is not a program under `heaptide run --live-remote`: check the number it printed"
        ))
    })?;
    Ok(Feed::spawn(move |writer| ask(stream, &writer)))
}

fn greet(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(GREETING)?;
    let mut answer = [0; GREETING.len()];
    stream.read_exact(&mut answer)?;
    if answer == *GREETING {
        Ok(())
    } else {
        Err(ErrorKind::InvalidData.into())
    }
}

fn ask(mut stream: TcpStream, writer: &Writer) {
    let mut last = None;
    loop {
        let message = stream
            .write_all(&[1])
            .and_then(|()| wire::receive(&mut stream));
        let message = match message {
            Ok(message) => message,
            Err(_) => {
                return writer.put(|update| {
                    update.failure =
                        Some("the connection is lost: the program has ended or was killed".into());
                });
            }
        };
        let is_gone = message.is_gone;
        writer.put(|update| {
            update.n_missed += last.map_or(0, |last| message.number.saturating_sub(last + 1));
            update.number = message.number;
            update.live = message.live.map(Arc::new);
            update.is_gone = is_gone;
        });
        last = Some(message.number);
        if is_gone || writer.rest(PAUSE) {
            return;
        }
    }
}
