//! Downloads of a session: its captures as they are, or in memray's format.
//!
//! A finished session is converted once; the file stays in its folder. A running one is converted for each request, because
//! it changes. The process that makes reports does the conversion.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;

use heaptide_files::{Existing, NewFile, OwnFolder};

use crate::render::Renderer;
use crate::reports::captures;
use crate::request::Request;
use crate::response::{Body, Response};
use crate::sessions::{Capture, Session};

/// The values of `format=` for memray's download, the default first.
pub(crate) const FORMATS: [&str; 2] = ["memray", "heaptide"];
const MEMRAY_NAME: &str = "memray-report.bin";

/// Returns the capture of a session in memray's format, or with `format=heaptide` as it is.
pub(crate) fn memray(
    request: &Request,
    session: &Session,
    renderer: &Renderer,
    is_gone: &dyn Fn() -> bool,
) -> Response {
    match request.parameter("format").unwrap_or(FORMATS[0]) {
        "memray" => {}
        "heaptide" => return tide(request, session, MEMRAY_NAME),
        other => {
            let known = FORMATS.join(", ");
            let sentence = format!("report has no format {other:?}: use {known}");
            return Response::error(400, "ArgumentError", sentence);
        }
    }
    let captures = match captures(session, request.parameter("process")) {
        Ok(captures) => captures,
        Err(response) => return *response,
    };
    // memray's files hold one process. The first capture is that of the process that was started; its children follow.
    let capture = captures[0];
    let is_running = session.is_running();
    let stored = if is_running {
        None
    } else {
        stored(session, capture)
    };
    let (file, length) = match stored {
        Some(stored) => stored,
        None => {
            let words = ["transform", "memray", "--output", "-", "--"];
            let mut words: Vec<OsString> = words.iter().map(OsString::from).collect();
            words.push(capture.path.clone().into());
            let (mut file, length) = match renderer.share(words, is_running, is_gone) {
                Ok(output) => output,
                Err(failure) => return failure.response(),
            };
            if let Some(path) = stored_path(capture).filter(|_| !is_running) {
                // If the file cannot be stored, the next request converts again.
                let _ = store(&mut file, &path);
            }
            (file, length)
        }
    };
    let tag = Tag {
        session,
        part: format!("memray-{}", capture.pid),
        length,
    };
    let body = Body::file_range(file, 0, length);
    tag.answer(request, is_running, MEMRAY_NAME, BYTES, body)
}

/// Returns the path of the converted file: next to the capture, with a name that no capture has.
fn stored_path(capture: &Capture) -> Option<std::path::PathBuf> {
    let name = capture.path.file_name()?.to_str()?.replace(".tide", "");
    Some(capture.path.with_file_name(format!("{name}.memray")))
}

/// Returns an earlier conversion of the capture.
fn stored(session: &Session, capture: &Capture) -> Option<(File, u64)> {
    let own = OwnFolder::open(session.folder.as_ref()?).ok()?;
    let path = stored_path(capture)?;
    let file = own.file(path.file_name()?).ok()?;
    let metadata = file.metadata().ok()?;
    let is_newer = metadata.modified().ok()? >= capture.modified;
    is_newer.then_some((file, metadata.len()))
}

fn store(file: &mut File, path: &Path) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    let new = NewFile::create(path, Existing::Replace)?;
    io::copy(file, &mut new.file())?;
    new.publish().map(drop)
}

/// Returns the capture of a session, or an archive if several processes were recorded.
pub(crate) fn tide(request: &Request, session: &Session, name: &str) -> Response {
    let process = request.parameter("process");
    let captures = match captures(session, process) {
        Ok(captures) => captures,
        Err(response) => return *response,
    };
    let opened: std::io::Result<Vec<_>> = captures
        .into_iter()
        .map(|capture| {
            let file = capture.open()?;
            let length = file.metadata()?.len();
            Ok((capture, file, length))
        })
        .collect();
    let mut opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let sentence = format!(
                "cannot read the capture of session {} ({error})",
                session.id
            );
            return Response::error(500, "CommandError", sentence);
        }
    };
    let is_running = session.is_running();
    let pids = process
        .unwrap_or("all")
        .replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
    let tag = Tag {
        session,
        part: pids,
        length: opened.iter().map(|opened| opened.2).sum(),
    };
    let is_single = opened.len() == 1;
    if is_single {
        let (_, file, length) = opened.remove(0);
        let body = if is_running && request.header("Range").is_none() {
            Body::until_eof(file)
        } else {
            Body::file_range(file, 0, length)
        };
        return tag.answer(request, is_running, name, BYTES, body);
    }
    let modified = session.modified_unix_ms().unwrap_or(0);
    let mut body = Body::default();
    for (capture, file, length) in opened {
        let name = capture.path.file_name().and_then(|name| name.to_str());
        let name = format!("{}/{}", session.id, name.unwrap_or("capture.tide"));
        let header = crate::archive::header(&name, length, modified / 1000);
        body = body
            .then(Body::from(header))
            .then(Body::file_range(file, 0, length))
            .then(Body::from(crate::archive::padding(length)));
    }
    let body = body.then(Body::from(crate::archive::end()));
    let name = name.rsplit_once('.').map_or(name, |parts| parts.0);
    tag.answer(
        request,
        is_running,
        &format!("{name}.tar"),
        "application/x-tar",
        body,
    )
}

const BYTES: &str = "application/octet-stream";

/// Identifies the content of a download.
struct Tag<'a> {
    session: &'a Session,
    part: String,
    length: u64,
}

impl Tag<'_> {
    /// Returns the response with the requested range of the body.
    fn answer(
        &self,
        request: &Request,
        is_running: bool,
        name: &str,
        media_type: &str,
        body: Body,
    ) -> Response {
        let weak = if is_running { "W/" } else { "" };
        let modified = self.session.modified_unix_ms().unwrap_or(0);
        let (id, part, length) = (&self.session.id, &self.part, self.length);
        let tag = format!("{weak}\"{id}-{part}-{length}-{modified}\"");
        let response = Response {
            status: 200,
            headers: vec![("Content-Type", media_type.to_owned())],
            body,
        };
        let disposition = format!("inline; filename=\"{name}\"");
        let response = response
            .with("Content-Disposition", disposition)
            .with("ETag", tag.clone())
            .with("Accept-Ranges", "bytes")
            .with("Cache-Control", "no-cache");
        crate::ranges::apply(request, response, &tag, |_| false)
    }
}
