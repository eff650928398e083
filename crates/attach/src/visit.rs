//! One visit in a process: a text of Python goes in, an answer comes out through a folder that both can reach.
//!
//! ```text
//! we:           make the folder with `request` in it · have the process run the text · wait for `answer`
//! the process:  take `request` away · act · write `answer`
//! ```
//! Whoever takes `request` away decides: the process acts only if it was faster than us, who take it away when we have
//! waited for too long. So a visit that failed never has an effect later.

use std::ffi::OsStr;
use std::fmt::Write;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heaptide_procfs::{self as procfs, Status};

use crate::preflight::Target;
use crate::refusal::Refusal;
use crate::remote_execution::RemoteExecution;
use crate::shared_folder::{self, SharedFolder};

/// What the process is to run, with `ARGUMENTS` for the arguments.
const TEXT: &str = include_str!("visit.py");

/// The files for remote execution.
const SCRIPT: &str = "script.py";
const TEXT_FILE: &str = "visit.py";

/// Comes first: if a recording runs already, what we do on this thread is no doing of the program's.
const LEAVE_OUT: &str =
    "getattr(__import__('sys').modules.get('heaptide._native'), 'leave_out_thread', int)()";

/// How long the process may take to begin.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// What was begun takes as long as it takes; this long means that something hangs.
const FINISH_TIMEOUT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(1);

/// How a process is to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingRequest {
    /// Where the capture is to be in the end, by its name here.
    pub home: PathBuf,
    /// The process records straight into that file; otherwise into a folder of its own, from which it is fetched.
    pub is_direct: bool,
    pub overwrite: bool,
    pub objects: bool,
    /// Native frames, too.
    pub native: bool,
    pub sample_bytes: u64,
    pub aggregate: bool,
    pub interval_ms: u32,
}

/// What a visit brought about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisitResult {
    /// The capture or snapshot, by its name for the process.
    pub capture: PathBuf,
    /// What the process has to say about it: empty if all is well.
    pub note: String,
    /// Where the capture is wanted in the end; empty if that is where it is.
    pub home: PathBuf,
    /// The longest time that a thread of the process stood still.
    pub paused: Duration,
    pub took: Duration,
}

/// How the objects of a process are to be written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapRequest {
    /// Where the snapshot is to be in the end, by its name here.
    pub home: PathBuf,
    /// The process writes straight into that file; otherwise into a folder of its own, from which it is fetched.
    pub is_direct: bool,
    pub overwrite: bool,
    /// Short texts of what objects hold, too.
    pub values: bool,
    /// Patterns of what is to be hidden.
    pub redact: Vec<String>,
    /// Walk in a forked copy.
    pub fork: bool,
}

/// Begins to record a process.
pub fn attach(target: &Target, request: &RecordingRequest) -> Result<VisitResult, Refusal> {
    let mut arguments = Arguments::new("attach");
    arguments.flag("overwrite", request.overwrite);
    arguments.flag("objects", request.objects);
    arguments.flag("native", request.native);
    arguments.number("sample_bytes", request.sample_bytes);
    arguments.flag("aggregate", request.aggregate);
    arguments.number("interval_ms", request.interval_ms.into());
    let direct = request.is_direct.then_some(());
    visit_with_package(
        target,
        arguments,
        &request.home,
        direct.ok_or("capture.tide"),
    )
}

/// Has a process write down its objects. Its [`VisitResult::note`] is for how many milliseconds it stood still.
pub fn take_heap(target: &Target, request: &HeapRequest) -> Result<VisitResult, Refusal> {
    let mut arguments = Arguments::new("heap");
    arguments.flag("overwrite", request.overwrite);
    arguments.flag("values", request.values);
    arguments.texts("redact", &request.redact);
    arguments.flag("fork", request.fork);
    let direct = request.is_direct.then_some(());
    visit_with_package(
        target,
        arguments,
        &request.home,
        direct.ok_or("snapshot.heap"),
    )
}

/// A visit for which the process loads our package, from where it is or from a copy, and that leaves a file: at `home`, or
/// under the name given, in a folder of its own, from which it is to be brought home.
fn visit_with_package(
    target: &Target,
    mut arguments: Arguments,
    home: &Path,
    direct: Result<(), &str>,
) -> Result<VisitResult, Refusal> {
    let began = Instant::now();
    let pid = target.pid;
    let package = shared_folder::own_package().ok_or_else(|| {
        Refusal::Answered(
            "this heaptide is not installed as a Python package, which the process is to load: install it with pip"
                .into(),
        )
    })?;
    let copying = |error: io::Error| Refusal::failed(pid, "copying heaptide into its /tmp", &error);
    let mut copied = None;
    let mut package_there = package.clone();
    if direct.is_err() || !is_readable_there(target) {
        let mut shared = SharedFolder::make(target)?;
        let copied_over = shared.copy(&package).and_then(|()| shared.hand_over());
        copied_over.map_err(copying)?;
        package_there = shared.path.join("heaptide");
        copied = Some(shared);
    }
    let folder = copied.as_ref().map(|shared| shared.path.clone());
    let file = match (&folder, direct) {
        (Some(folder), Err(name)) => {
            arguments.path("home", home);
            folder.join(name)
        }
        _ => home.to_owned(),
    };
    arguments.path("package", &package_there);
    arguments.path("path", &file);
    arguments.path("copied", folder.as_deref().unwrap_or(Path::new("")));
    let visited = visit(target, arguments, began)?;
    if let Some(shared) = copied {
        shared.keep();
    }
    Ok(visited)
}

/// Ends what [`attach`] began.
pub fn detach(target: &Target) -> Result<VisitResult, Refusal> {
    visit(target, Arguments::new("detach"), Instant::now())
}

/// Whether the process can load our package from where it is.
fn is_readable_there(target: &Target) -> bool {
    let [_, own, _, _] = Status::of(std::process::id()).map_or([u32::MAX; 4], |own| own.users);
    procfs::sees_same_files(target.pid) && [own; 4] == target.status.users
}

fn visit(
    target: &Target,
    mut arguments: Arguments,
    began: Instant,
) -> Result<VisitResult, Refusal> {
    let pid = target.pid;
    let mut shared = SharedFolder::make(target)?;
    arguments.path("folder", &shared.path);
    let text = arguments.text();
    let script = on_own_thread(&shared.path.join(TEXT_FILE));
    let made = shared
        .put("request", b"")
        .and_then(|()| shared.put(TEXT_FILE, text.as_bytes()))
        .and_then(|()| shared.put(SCRIPT, script.as_bytes()))
        .and_then(|()| shared.hand_over());
    made.map_err(|error| Refusal::failed(pid, "writing into its /tmp", &error))?;
    let paused = enter(target, &shared, &text)?;
    let answer = wait(target, &shared)?;
    let mut parts = answer.split(|&byte| byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let sentence = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if part() != b"yes" {
        return Err(Refusal::Answered(sentence(part())));
    }
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    Ok(VisitResult {
        capture: path(part()),
        note: sentence(part()),
        home: path(part()),
        paused,
        took: began.elapsed(),
    })
}

/// Has the process run the text, and returns how long a thread of it stood still.
fn enter(target: &Target, shared: &SharedFolder, text: &str) -> Result<Duration, Refusal> {
    if let Some(remote) = RemoteExecution::find(target)? {
        let timeout = remote.timeout();
        if !timeout.is_zero() && remote.ask(&shared.path.join(SCRIPT))? {
            if is_taken(target, shared, timeout)? {
                return Ok(Duration::ZERO);
            }
            // The main thread waits for something outside. What was asked of it is withdrawn. If that comes too late, it has
            // begun and only has to get its turn: entering by another way, too, would leave it a script that is gone.
            if !remote.withdraw()? && is_taken(target, shared, START_TIMEOUT)? {
                return Ok(Duration::ZERO);
            }
        }
    }
    inject(target, text)
}

#[cfg(target_arch = "x86_64")]
fn inject(target: &Target, text: &str) -> Result<Duration, Refusal> {
    crate::inject::run(target, text, START_TIMEOUT)
}

/// Without an injector, time is all there is.
#[cfg(not(target_arch = "x86_64"))]
fn inject(target: &Target, _: &str) -> Result<Duration, Refusal> {
    Err(Refusal::NoInjector {
        pid: target.pid,
        version: target.interpreter.version,
    })
}

/// The interpreter's remote execution runs on the main thread, which has better things to do, and whose doings are recorded:
/// so it only starts another, which reads the text.
fn on_own_thread(text: &Path) -> String {
    // A text that is gone is that of a visit which has ended without this thread.
    let program = format!(
        "import _thread\n\
         def run():\n\
         \x20   {LEAVE_OUT}\n\
         \x20   try:\n\
         \x20       with open({}) as file: text = file.read()\n\
         \x20   except OSError: return\n\
         \x20   exec(text, {{}})\n\
         _thread.start_new_thread(run, ())",
        as_bytes(text)
    );
    format!("exec({}, {{}})", quoted(&program))
}

/// Whether the process takes the request away within a time.
fn is_taken(target: &Target, shared: &SharedFolder, timeout: Duration) -> Result<bool, Refusal> {
    let deadline = Instant::now() + timeout;
    while shared.has("request") {
        if Status::of(target.pid).map_or(true, |status| status.has_ended()) {
            return Err(Refusal::EndedMeanwhile(target.pid));
        }
        if Instant::now() > deadline {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(true)
}

/// Waits for the answer. Without one, nothing happens in the process any more.
fn wait(target: &Target, shared: &SharedFolder) -> Result<Vec<u8>, Refusal> {
    let began = Instant::now();
    let mut is_withdrawn = false;
    loop {
        if let Some(answer) = shared.take("answer") {
            return Ok(answer);
        }
        if Status::of(target.pid).map_or(true, |status| status.has_ended()) {
            return Err(Refusal::EndedMeanwhile(target.pid));
        }
        if began.elapsed() > START_TIMEOUT && !is_withdrawn {
            is_withdrawn = true;
            if shared.remove("request") {
                return Err(Refusal::NoAnswer(target.pid));
            }
        }
        if began.elapsed() > FINISH_TIMEOUT {
            return Err(Refusal::NoAnswer(target.pid));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Names and values as Python text.
struct Arguments {
    text: String,
}

impl Arguments {
    fn new(what: &str) -> Arguments {
        let version = env!("CARGO_PKG_VERSION");
        Arguments {
            text: format!("\"what\": \"{what}\", \"version\": \"{version}\""),
        }
    }

    fn path(&mut self, name: &str, path: &Path) {
        self.text += &format!(", \"{name}\": {}", as_bytes(path));
    }

    fn flag(&mut self, name: &str, value: bool) {
        self.text += &format!(", \"{name}\": {}", if value { "True" } else { "False" });
    }

    fn number(&mut self, name: &str, value: u64) {
        self.text += &format!(", \"{name}\": {value}");
    }

    fn texts(&mut self, name: &str, texts: &[String]) {
        let texts = texts.iter().map(|text| as_bytes(Path::new(text)));
        let texts: Vec<String> = texts.map(|bytes| format!("{bytes}.decode()")).collect();
        self.text += &format!(", \"{name}\": [{}]", texts.join(", "));
    }

    /// One statement that leaves no name in the main module, in which it runs.
    fn text(&self) -> String {
        let program = TEXT.replace("ARGUMENTS", &format!("{{{}}}", self.text));
        format!("{LEAVE_OUT};exec({}, {{}})", quoted(&program))
    }
}

/// A path as bytes of Python, whatever it holds.
fn as_bytes(path: &Path) -> String {
    let mut digits = String::new();
    for byte in path.as_os_str().as_bytes() {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    format!("bytes.fromhex(\"{digits}\")")
}

/// As a string of Python.
fn quoted(text: &str) -> String {
    let escaped = text.chars().flat_map(|letter| match letter {
        '\n' => vec!['\\', 'n'],
        '\\' | '\'' => vec!['\\', letter],
        other => vec![other],
    });
    format!("'{}'", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_one_line_of_plain_letters_whatever_a_path_holds() {
        let mut arguments = Arguments::new("attach");
        arguments.path("path", Path::new("/tmp/it's a \"path\"\n"));
        let text = arguments.text();
        assert!(text.is_ascii() && !text.contains('\n'));
        assert!(
            text.contains(
                "bytes.fromhex(\"2f746d702f6974277320612022706174682 20a\")"
                    .replace(' ', "")
                    .as_str()
            )
        );
    }
}
