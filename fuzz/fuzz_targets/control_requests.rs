//! Feeds any bytes to the parser of the control API. It returns a request, refuses the bytes, or needs more of them,
//! without a panic and within all bounds. A request is then answered at every entry point, some of which need a token,
//! in a folder that holds one session.
#![no_main]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use heaptide_control::config::{Config, RenderConfig, ReportCommand, ReportOption};
use heaptide_control::peer::Peer;
use heaptide_control::recorder::{HeapOptions, Join, Options, Recorder};
use heaptide_control::request::{MAX_BODY_BYTES, MAX_HEAD_BYTES, Request};
use heaptide_control::security::EntryPoint;
use heaptide_control::token::Token;
use heaptide_control::{Handler, routes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match Request::parse(bytes) {
        Ok(Some(request)) => {
            assert!(request.body.len() <= MAX_BODY_BYTES);
            let _ = routes::resolve(&request.path);
            if let Ok(body) = serde_json::from_slice(&request.body) {
                let _ = Options::from_json(&body);
                let _ = HeapOptions::from_json(&body);
            }
            for peer in [Peer::SameUser, Peer::Stranger] {
                answer(&OPEN, &request, EntryPoint::Socket(peer));
                answer(&OPEN, &request, EntryPoint::Loopback(peer));
                answer(&OPEN, &request, EntryPoint::JobPort(peer));
            }
            answer(&OPEN, &request, EntryPoint::Mounted);
            answer(&GUARDED, &request, EntryPoint::Remote);
            answer(&GUARDED, &request, EntryPoint::Private);
        }
        Ok(None) => assert!(bytes.len() <= MAX_HEAD_BYTES + MAX_BODY_BYTES),
        Err(refusal) => assert!((400..500).contains(&refusal.status)),
    }
});

static OPEN: LazyLock<Handler> = LazyLock::new(|| handler("open", None));
static GUARDED: LazyLock<Handler> = LazyLock::new(|| handler("guarded", Some("secret")));

/// Answers a request and checks the headers of the answer.
fn answer(handler: &Handler, request: &Request, entry_point: EntryPoint) {
    let response = handler.handle(request, entry_point, &|| false);
    assert!((200..600).contains(&response.status));
    for (name, value) in &response.headers {
        assert!(!value.contains(['\r', '\n', '\0']), "{name}: {value:?}");
        if *name == "Location" {
            let mut letters = value.chars();
            assert_eq!(letters.next(), Some('/'));
            assert!(!matches!(letters.next(), Some('/' | '\\')), "{value}");
        }
    }
}

/// A recorder that never starts, so that no files are created.
struct NeverStarts;

impl Recorder for NeverStarts {
    fn recording(&self) -> Option<PathBuf> {
        None
    }

    fn labels(&self) -> Vec<(String, String)> {
        vec![("role".to_owned(), "worker".to_owned())]
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
        work();
        Ok(())
    }

    fn spawn_to_join(&self, work: Box<dyn FnOnce() + Send>) -> io::Result<Join> {
        work();
        Ok(Box::new(|| {}))
    }
}

fn handler(name: &str, token: Option<&str>) -> Handler {
    let folder = std::env::temp_dir().join(format!("heaptide-fuzz-{name}-{}", std::process::id()));
    let session = folder.join("sessions/20261116-000000-000-1");
    std::fs::create_dir_all(&session).expect("a folder for a session");
    std::fs::create_dir_all(folder.join("group")).expect("a folder for a group");
    std::fs::write(session.join("session.json"), "{}").expect("a session");
    std::fs::write(session.join("1.tide"), "not a capture").expect("a capture");
    let option = |name: &str, takes_value| ReportOption {
        name: name.to_owned(),
        help: String::new(),
        takes_value,
        values: Vec::new(),
    };
    let command = |name: &str| ReportCommand {
        name: name.to_owned(),
        about: String::new(),
        options: vec![
            option("leaks", false),
            option("include", true),
            option("json", false),
        ],
    };
    let config = Config {
        name: "job".to_owned(),
        directory: folder.join("sessions"),
        group: folder.join("group"),
        run: "nightly".to_owned(),
        run_folder: folder.join("run"),
        jobs_folder: Some(folder.join("jobs")),
        prefix: String::new(),
        token: token.map(Token::chosen),
        token_header: Some("X-Token".to_owned()),
        cors_origin: Some("https://allowed.example".to_owned()),
        keep_sessions: 10,
        keep_bytes: 1 << 30,
        requests_per_second: u32::MAX,
        interpreter_timeout: Duration::from_secs(1),
        // With an empty command, a request for a report gets an error and starts no process.
        render: RenderConfig {
            command: Vec::new(),
            environment: Vec::new(),
            time_limit: Duration::from_secs(1),
        },
        commands: ["flamegraph", "stats", "diff"].map(command).to_vec(),
        leaks: false,
        command: "job".to_owned(),
    };
    Handler::new(config, Arc::new(NeverStarts))
}
