//! Requests to the handler, and over real sockets: access control, and reports that clients share or cancel.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heaptide_control::config::{Config, RenderConfig, ReportCommand};
use heaptide_control::peer::Peer;
use heaptide_control::recorder::{HeapOptions, Join, Options, Recorder};
use heaptide_control::security::{EntryPoint, Reach};
use heaptide_control::token::Token;
use heaptide_control::{Address, Handler, Request, Server};

/// A recorder that never starts.
struct NeverStarts;

impl Recorder for NeverStarts {
    fn recording(&self) -> Option<PathBuf> {
        None
    }

    fn labels(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn start(&self, _: &Path, _: &Options) -> Result<Option<String>, String> {
        Err("not here".to_owned())
    }

    fn stop(&self) -> Result<(), String> {
        Err("not here".to_owned())
    }

    fn heap(&self, _: &Path, _: &HeapOptions) -> Result<f64, String> {
        Err("not here".to_owned())
    }

    fn spawn(&self, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        std::thread::Builder::new().spawn(work).map(drop)
    }

    fn spawn_to_join(&self, work: Box<dyn FnOnce() + Send>) -> io::Result<Join> {
        let thread = std::thread::Builder::new().spawn(work)?;
        Ok(Box::new(move || drop(thread.join())))
    }
}

/// A folder with one finished session, and a handler whose reports are made by a shell script that runs in that folder.
struct Fixture {
    folder: PathBuf,
    handler: Arc<Handler>,
}

impl Fixture {
    fn new(name: &str, script: &str, token: Option<Token>) -> Fixture {
        let name = format!("heaptide-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        let session = folder.join("sessions/20261116-000000-000-1");
        fs::create_dir_all(&session).unwrap();
        fs::create_dir_all(folder.join("group")).unwrap();
        fs::write(session.join("session.json"), "{}").unwrap();
        fs::write(session.join("1.tide"), "a capture").unwrap();
        let script = format!("cd {}\n{script}", folder.display());
        let config = Config {
            name: "job".to_owned(),
            directory: folder.join("sessions"),
            group: folder.join("group"),
            run: "job".to_owned(),
            run_folder: folder.join("sessions/job"),
            jobs_folder: None,
            prefix: String::new(),
            token,
            token_header: None,
            cors_origin: Some("https://allowed.example".to_owned()),
            keep_sessions: 10,
            keep_bytes: 1 << 30,
            requests_per_second: u32::MAX,
            interpreter_timeout: Duration::from_secs(1),
            render: RenderConfig {
                command: ["/bin/sh", "-c", &script].map(Into::into).to_vec(),
                environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
                time_limit: Duration::from_secs(300),
            },
            commands: vec![ReportCommand {
                name: "stats".to_owned(),
                about: String::new(),
                options: Vec::new(),
            }],
            leaks: false,
            command: "job".to_owned(),
        };
        let handler = Arc::new(Handler::new(config, Arc::new(NeverStarts)));
        Fixture { folder, handler }
    }

    fn serve(&self) -> (Server, u16) {
        let address = Address::parse("127.0.0.1:0").unwrap();
        let server = Server::start(
            &address,
            Reach::Machine,
            self.handler.clone(),
            Arc::new(NeverStarts),
        );
        let server = server.unwrap();
        let Address::Tcp { port, .. } = server.address else {
            panic!("not a TCP address");
        };
        (server, port)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    fn status(&self, request: &str, entry_point: EntryPoint) -> u16 {
        let request = format!("{}\r\n\r\n", request.replace('\n', "\r\n"));
        let request = Request::parse(request.as_bytes()).unwrap().unwrap();
        self.handler.handle(&request, entry_point, &|| false).status
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn request(port: u16, method: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(
        stream,
        "{method} /api/v1/profiler/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    .unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Waits until a condition holds; a failure hangs, and the test runner ends it.
fn wait_until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn report_of_a_client_that_left_is_cancelled_and_its_process_killed() {
    let fixture = Fixture::new(
        "cancelled",
        "echo $$ > pid.new; mv pid.new pid; exec sleep 1000",
        None,
    );
    let (server, port) = fixture.serve();
    // More than may run at once: each cancelled report lets another one start.
    for _ in 0..3 {
        let client = request(port, "GET", "stats");
        wait_until(|| !fixture.text("pid").is_empty());
        let process = PathBuf::from(format!("/proc/{}", fixture.text("pid").trim()));
        assert!(process.exists());
        drop(client);
        wait_until(|| !process.exists());
        fs::remove_file(fixture.folder.join("pid")).unwrap();
    }
    let clients: Vec<TcpStream> = (0..2).map(|_| request(port, "GET", "stats")).collect();
    wait_until(|| !fixture.text("pid").is_empty());
    drop(clients);
    server.stop(Duration::from_secs(300));
}

#[test]
fn report_of_a_session_that_is_deleted_meanwhile_is_not_found() {
    let script =
        "rm -r sessions/20261116-000000-000-1\necho no file >&2; echo heaptide-ended:1 >&2";
    let fixture = Fixture::new("deleted", script, None);
    let report =
        "GET /api/v1/profiler/sessions/20261116-000000-000-1/stats HTTP/1.1\nHost: localhost";
    assert_eq!(fixture.status(report, EntryPoint::Private), 404);
}

#[test]
fn tag_of_a_file_changes_with_its_content_and_only_growing_files_are_resumed() {
    let fixture = Fixture::new("files", "exit 1", None);
    let folder = fixture.folder.join("sessions/job");
    fs::create_dir_all(&folder).unwrap();
    for (name, is_growing) in [
        ("web.timeline", true),
        ("jobs.jsonl", true),
        ("report.json", false),
    ] {
        let path = folder.join(name);
        let get = |headers: &str| {
            let text = format!(
                "GET /api/v1/profiler/files?name={name} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"
            );
            let request = Request::parse(text.as_bytes()).unwrap().unwrap();
            let mut response = fixture
                .handler
                .handle(&request, EntryPoint::Private, &|| false);
            let mut body = [0; 100];
            let n_read = response.body.read(&mut body).unwrap();
            let tag = response.headers.into_iter().find(|it| it.0 == "ETag");
            let body = String::from_utf8_lossy(&body[..n_read]).into_owned();
            (response.status, body, tag.unwrap_or_default().1)
        };
        fs::write(&path, "first\n").unwrap();
        let (_, _, first) = get("");
        assert_eq!(get(&format!("If-None-Match: {first}\r\n")).0, 304);
        let resume = |tag: &str| get(&format!("Range: bytes=3-\r\nIf-Range: {tag}\r\n"));
        assert_eq!(resume(&first).0, 206);

        let mut growing = fs::File::options().append(true).open(&path).unwrap();
        growing.write_all(b"second\n").unwrap();
        let (status, body, second) = get(&format!("If-None-Match: {first}\r\n"));
        assert_eq!((status, body.as_str()), (200, "first\nsecond\n"), "{name}");
        let (status, body, tag) = resume(&first);
        let expected = match is_growing {
            true => (206, "st\nsecond\n"),
            false => (200, "first\nsecond\n"),
        };
        assert_eq!(
            (status, body.as_str(), tag),
            (expected.0, expected.1, second.clone())
        );

        if !is_growing {
            // Written in place, with the same length.
            fs::write(&path, "FIRST\nSECOND\n").unwrap();
            growing.set_modified(std::time::UNIX_EPOCH).unwrap();
            assert_eq!(get(&format!("If-None-Match: {second}\r\n")).0, 200);
            assert_eq!(resume(&second).0, 200);
        }
        // Another file gets the name.
        let other = folder.join("other");
        fs::write(&other, "the first line of another file\n").unwrap();
        fs::rename(&other, &path).unwrap();
        for tag in [&first, &second] {
            let (status, body, _) = resume(tag);
            assert_eq!(
                (status, body.as_str()),
                (200, "the first line of another file\n")
            );
        }
    }
}

#[test]
fn identical_reports_are_made_once_and_all_clients_get_them() {
    let script = "echo run >> runs; read line < gate; echo report; echo heaptide-ended:0 >&2";
    let fixture = Fixture::new("shared", script, None);
    let gate = fixture.folder.join("gate");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&gate)
            .status()
            .unwrap()
            .success()
    );
    let (server, port) = fixture.serve();
    let request_bytes = b"GET /api/v1/profiler/stats HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let stats = Request::parse(request_bytes).unwrap().unwrap();
    // More than may run at once: without sharing, the others would wait for their turn.
    let are_waiting: Vec<AtomicBool> = (0..20).map(|_| AtomicBool::new(false)).collect();
    std::thread::scope(|scope| {
        let clients: Vec<_> = are_waiting
            .iter()
            .map(|is_waiting| {
                // A request checks whether its client has gone only while it waits for its report.
                let is_gone = || {
                    is_waiting.store(true, Ordering::SeqCst);
                    false
                };
                let (handler, stats) = (&fixture.handler, &stats);
                scope.spawn(move || handler.handle(stats, EntryPoint::Private, &is_gone))
            })
            .collect();
        wait_until(|| {
            are_waiting
                .iter()
                .all(|is_waiting| is_waiting.load(Ordering::SeqCst))
        });
        // An unrelated request is answered meanwhile.
        assert!(answer(request(port, "GET", "status")).starts_with("HTTP/1.1 200"));
        fs::write(&gate, "go\n").unwrap();
        for client in clients {
            let mut response = client.join().unwrap();
            let mut body = [0; 100];
            let n_read = response.body.read(&mut body).unwrap();
            assert_eq!((response.status, &body[..n_read]), (200, &b"report\n"[..]));
        }
    });
    assert_eq!(fixture.text("runs"), "run\n");
    server.stop(Duration::from_secs(300));
}

#[test]
fn only_navigation_may_come_from_pages_of_other_sites() {
    let fixture = Fixture::new("sites", "echo report; echo heaptide-ended:0 >&2", None);
    let from = |headers: &str| {
        let request = format!("GET /api/v1/profiler/stats HTTP/1.1\nHost: localhost{headers}");
        fixture.status(&request, EntryPoint::Loopback(Peer::SameUser))
    };
    assert_eq!(from(""), 200);
    assert_eq!(
        from("\nSec-Fetch-Site: none\nSec-Fetch-Mode: navigate"),
        200
    );
    assert_eq!(
        from("\nSec-Fetch-Site: same-origin\nSec-Fetch-Mode: cors"),
        200
    );
    let link = "\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document";
    for site in ["cross-site", "same-site"] {
        let site = format!("\nSec-Fetch-Site: {site}");
        assert_eq!(from(&site), 403);
        assert_eq!(
            from(&format!(
                "{site}\nSec-Fetch-Mode: no-cors\nSec-Fetch-Dest: image"
            )),
            403
        );
        assert_eq!(
            from(&format!(
                "{site}\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: iframe"
            )),
            403
        );
        // A link that the user follows: the other page cannot read the answer.
        assert_eq!(from(&format!("{site}{link}")), 200);
        assert_eq!(
            from(&format!("{site}\nOrigin: https://allowed.example")),
            200
        );
        assert_eq!(from(&format!("{site}\nOrigin: https://evil.example")), 403);
    }
    let form = format!(
        "POST /api/v1/profiler/start HTTP/1.1\nHost: localhost\nSec-Fetch-Site: cross-site{link}"
    );
    assert_eq!(fixture.status(&form, EntryPoint::Mounted), 403);
}

#[test]
fn forwarded_host_counts_as_own_origin_only_behind_a_proxy() {
    let fixture = Fixture::new("forwarded", "exit 1", None);
    let request = "GET /api/v1/profiler/status HTTP/1.1\nHost: localhost\nX-Forwarded-Host: gate.example\n\
                   Origin: https://gate.example";
    for (entry_point, status) in [
        (EntryPoint::Mounted, 200),
        (EntryPoint::JobPort(Peer::SameUser), 200),
        (EntryPoint::Loopback(Peer::SameUser), 403),
        (EntryPoint::Socket(Peer::SameUser), 403),
    ] {
        assert_eq!(
            fixture.status(request, entry_point),
            status,
            "{entry_point:?}"
        );
    }
}

/// The statuses of reading the status, of a memray route, of a heap with values, and of a deletion.
fn statuses(fixture: &Fixture, entry_point: EntryPoint, headers: &str) -> [u16; 4] {
    let values = "{\"values\":true}";
    let heap = format!("Content-Length: {}", values.len());
    [
        ("GET", "status", ""),
        ("GET", "memray/stats", ""),
        ("POST", "heap", heap.as_str()),
        ("DELETE", "sessions/none", ""),
    ]
    .map(|(method, path, more)| {
        let body = if more.is_empty() { "" } else { values };
        let head = format!(
            "{method} /api/v1/profiler/{path} HTTP/1.1\nHost: localhost\n{headers}\n{more}"
        );
        let head = head.trim_end().replace("\n\n", "\n").replace('\n', "\r\n");
        let request = format!("{head}\r\n\r\n{body}");
        let request = Request::parse(request.as_bytes()).unwrap().unwrap();
        fixture
            .handler
            .handle(&request, entry_point, &|| false)
            .status
    })
}

#[test]
fn every_entry_point_grants_the_documented_access() {
    let report = "echo report; echo heaptide-ended:0 >&2";
    let folder = Fixture::new("token", report, None).folder.clone();
    fs::create_dir_all(&folder).unwrap();
    let created = Token::in_folder(&folder).unwrap();
    let secret = fs::read_to_string(folder.join("token")).unwrap();
    let bearer = format!("Authorization: Bearer {}", secret.trim());
    let fixture = Fixture::new("access", report, Some(created));
    // With access, the recorder of this test fails with 500, and the deleted session does not exist.
    let everything = [200, 200, 500, 404];
    let reports = [200, 200, 401, 401];
    let of_job = [401, 200, 401, 401];
    let nothing = [401; 4];
    for (entry_point, expected) in [
        (EntryPoint::Private, everything),
        (EntryPoint::Socket(Peer::SameUser), everything),
        (EntryPoint::Socket(Peer::Stranger), nothing),
        (EntryPoint::Loopback(Peer::SameUser), reports),
        (EntryPoint::Loopback(Peer::Stranger), nothing),
        (EntryPoint::Remote, nothing),
        (EntryPoint::Mounted, reports),
        (EntryPoint::JobPort(Peer::SameUser), reports),
        (EntryPoint::JobPort(Peer::Stranger), of_job),
    ] {
        assert_eq!(
            statuses(&fixture, entry_point, ""),
            expected,
            "{entry_point:?}"
        );
        assert_eq!(
            statuses(&fixture, entry_point, &bearer),
            everything,
            "{entry_point:?}"
        );
    }
    let chosen = Fixture::new("chosen", report, Some(Token::chosen("secret")));
    for entry_point in [
        EntryPoint::Socket(Peer::SameUser),
        EntryPoint::Loopback(Peer::SameUser),
        EntryPoint::Mounted,
        EntryPoint::JobPort(Peer::SameUser),
    ] {
        assert_eq!(
            statuses(&chosen, entry_point, ""),
            nothing,
            "{entry_point:?}"
        );
        let bearer = "Authorization: bearer secret";
        assert_eq!(
            statuses(&chosen, entry_point, bearer),
            everything,
            "{entry_point:?}"
        );
    }
    let _ = fs::remove_dir_all(folder);
}
