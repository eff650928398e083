//! The viewer's side of a connection: requests the newest update after the previous one was shown.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use heaptide_control::token;

use super::access;
use super::feed::{Feed, Writer};
use super::wire::{self, GREETING, TOKEN_REQUIRED};
use crate::control::control_client;
use crate::exit::Failure;

/// A live server answers immediately; a slower server is another program.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two requests.
const PAUSE: Duration = Duration::from_millis(100);

/// Connects to the live server at a port of this machine.
pub(crate) fn connect(port: u16) -> Result<Feed, Failure> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(|error| {
        Failure::failed(match error.kind() {
            ErrorKind::ConnectionRefused => format!(
                "nothing listens on port {port} of this machine: start the program with `heaptide run --live-remote`, \
                 which prints its port"
            ),
            _ => format!("cannot connect to port {port} of this machine ({error}): check the number"),
        })
    })?;
    greet(&stream, port).map_err(|error| {
        Failure::failed(match error.kind() {
            ErrorKind::PermissionDenied => format!(
                "the program at port {port} belongs to another user: run this as that user or as root, or set \
                 HEAPTIDE_TOKEN to the token of the program"
            ),
            _ => format!(
                "port {port} is not a `heaptide run --live-remote`: check the number that it printed"
            ),
        })
    })?;
    Ok(Feed::spawn(move |writer| request_updates(stream, &writer)))
}

fn greet(mut stream: &TcpStream, port: u16) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(GREETING)?;
    let mut answer = [0; GREETING.len()];
    stream.read_exact(&mut answer)?;
    if answer == *TOKEN_REQUIRED {
        let refused = |_| io::Error::from(ErrorKind::PermissionDenied);
        let token = token(port).ok_or(ErrorKind::PermissionDenied)?;
        wire::send_token(&mut stream, &token).map_err(refused)?;
        stream.read_exact(&mut answer).map_err(refused)?;
    }
    if answer == *GREETING {
        Ok(())
    } else {
        Err(ErrorKind::InvalidData.into())
    }
}

/// Returns the token in the environment, or the one that this user's program at the port created.
fn token(port: u16) -> Option<String> {
    let chosen = control_client::token_of_environment().ok().flatten();
    chosen.or_else(|| token::read(&access::token_folder(port).join(token::FILE)).ok())
}

fn request_updates(mut stream: TcpStream, writer: &Writer) {
    let mut last = None;
    loop {
        let message = stream
            .write_all(&[wire::REQUEST_WITH_JOBS])
            .and_then(|()| wire::receive(&mut stream));
        let message = match message {
            Ok(message) => message,
            Err(_) => {
                return writer.put(|update| {
                    update.failure =
                        Some("the connection is lost: the program ended or was killed".into());
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
        if is_gone || writer.sleep(PAUSE) {
            return;
        }
    }
}
