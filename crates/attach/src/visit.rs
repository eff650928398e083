//! A visit to a process: makes it run Python code, and receives an answer through a shared folder.
//!
//! ```text
//! this process:    create the folder with `request` · make the target run the code · wait for `answer`
//! target process:  remove `request` · act · write `answer`
//! ```
//! Only one side can remove `request`. The target acts only if it removed the file; this process removes it after a timeout.
//! So a visit that fails because the target did not start in time never has an effect later. A target that started and did
//! not finish in time may still act.

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

/// The code that the process runs; `ARGUMENTS` is replaced by the arguments.
const TEXT: &str = include_str!("visit.py");

/// The files for remote execution.
const SCRIPT: &str = "script.py";
const TEXT_FILE: &str = "visit.py";

/// Runs first: if a recording is active, it must not contain the allocations of this thread.
const LEAVE_OUT: &str =
    "getattr(__import__('sys').modules.get('heaptide._native'), 'leave_out_thread', int)()";

/// How long the process may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the process may take to finish. If it takes longer, this process assumes that it hangs.
const FINISH_TIMEOUT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(1);

/// The options of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingRequest {
    /// Final path of the capture, as this process sees it.
    pub final_path: PathBuf,
    /// Whether the process records directly into that file. Otherwise it records into the shared folder, and the file
    /// is fetched.
    pub is_direct: bool,
    pub overwrite: bool,
    pub objects: bool,
    /// Whether to record native frames.
    pub native: bool,
    pub sample_bytes: u64,
    pub aggregate: bool,
    /// Whether to also record forked children.
    pub follow_fork: bool,
    pub interval_ms: u32,
    /// Resident size of the process before this visit loads anything into it.
    pub resident_bytes: u64,
}

/// The result of a visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisitResult {
    /// Path of the capture or snapshot, as the process sees it.
    pub capture: PathBuf,
    /// A warning from the process; empty if there is none. After [`take_heap`] the pause in milliseconds.
    pub note: String,
    /// Final path of the capture; empty if it is already there.
    pub final_path: PathBuf,
    /// The longest pause of a thread of the process.
    pub paused: Duration,
    pub took: Duration,
}

/// The options of a heap snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapRequest {
    /// Final path of the snapshot, as this process sees it.
    pub final_path: PathBuf,
    /// Whether the process writes directly into that file. Otherwise it writes into the shared folder, and the file is
    /// fetched.
    pub is_direct: bool,
    pub overwrite: bool,
    /// Whether to include previews of values.
    pub values: bool,
    /// Patterns of names and values to hide.
    pub redact: Vec<String>,
    /// Whether to walk the heap in a forked child.
    pub fork: bool,
}

/// Starts recording a process.
pub fn attach(target: &Target, request: &RecordingRequest) -> Result<VisitResult, Refusal> {
    let mut arguments = Arguments::new("attach");
    arguments.flag("overwrite", request.overwrite);
    arguments.flag("objects", request.objects);
    arguments.flag("native", request.native);
    arguments.number("sample_bytes", request.sample_bytes);
    arguments.flag("aggregate", request.aggregate);
    arguments.flag("follow_fork", request.follow_fork);
    arguments.number("interval_ms", request.interval_ms.into());
    arguments.number("resident_bytes", request.resident_bytes);
    let direct = request.is_direct.then_some(());
    visit_with_package(
        target,
        arguments,
        &request.final_path,
        direct.ok_or("capture.tide"),
    )
}

/// Makes a process write a heap snapshot. [`VisitResult::note`] is the pause in milliseconds.
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
        &request.final_path,
        direct.ok_or("snapshot.heap"),
    )
}

/// Makes a visit for which the process loads the package `heaptide`, installed or copied, and writes a file. If `direct` is
/// `Ok`, the process writes the file at `final_path`. If it is `Err(name)`, the process writes a file of this name in a shared
/// folder, and the caller fetches it from there.
fn visit_with_package(
    target: &Target,
    mut arguments: Arguments,
    final_path: &Path,
    direct: Result<(), &str>,
) -> Result<VisitResult, Refusal> {
    let began = Instant::now();
    let pid = target.pid;
    let package = shared_folder::own_package().ok_or_else(|| {
        Refusal::Answered(
            "this heaptide is not installed as a Python package, which the process must load: install it with pip"
                .into(),
        )
    })?;
    let copying = |error: io::Error| Refusal::failed(pid, "copying heaptide into its /tmp", &error);
    let mut copied = None;
    let mut package_in_target = package.clone();
    if direct.is_err() || !can_load_package(target) {
        let mut shared = SharedFolder::make(target)?;
        let copied_over = shared.copy(&package).and_then(|()| shared.hand_over());
        copied_over.map_err(copying)?;
        package_in_target = shared.path.join("heaptide");
        copied = Some(shared);
    }
    let folder = copied.as_ref().map(|shared| shared.path.clone());
    let file = match (&folder, direct) {
        (Some(folder), Err(name)) => {
            arguments.path("home", final_path);
            folder.join(name)
        }
        _ => final_path.to_owned(),
    };
    arguments.path("package", &package_in_target);
    arguments.path("path", &file);
    arguments.path("copied", folder.as_deref().unwrap_or(Path::new("")));
    let visited = visit(target, arguments, began)?;
    if let Some(shared) = copied {
        shared.keep();
    }
    Ok(visited)
}

/// Stops a recording that [`attach`] started.
pub fn detach(target: &Target) -> Result<VisitResult, Refusal> {
    visit(target, Arguments::new("detach"), Instant::now())
}

/// Returns whether the process can load the installed package.
fn can_load_package(target: &Target) -> bool {
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
        final_path: path(part()),
        paused,
        took: began.elapsed(),
    })
}

/// Makes the process run the code. Returns the longest pause of a thread.
fn enter(target: &Target, shared: &SharedFolder, text: &str) -> Result<Duration, Refusal> {
    if let Some(remote) = RemoteExecution::find(target)? {
        let timeout = remote.timeout();
        if !timeout.is_zero() && remote.request(&shared.path.join(SCRIPT))? {
            if is_taken(target, shared, timeout)? {
                return Ok(Duration::ZERO);
            }
            // The main thread is blocked, so withdraw the request. If that is too late, the thread has accepted it and
            // only waits for the GIL. So wait for it: an injected visit would end first and remove the shared folder, with
            // the script that the thread is about to run.
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

/// There is no injector for this architecture.
#[cfg(not(target_arch = "x86_64"))]
fn inject(target: &Target, _: &str) -> Result<Duration, Refusal> {
    Err(Refusal::NoInjector {
        pid: target.pid,
        version: target.interpreter.version,
    })
}

/// Remote execution runs on the main thread, which must not be delayed and may be recorded. So the script only starts
/// another thread, which reads the code.
fn on_own_thread(text: &Path) -> String {
    // If the file is gone, the visit has ended without this thread.
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

/// Returns whether the process removes the request within the timeout.
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

/// Waits for the answer. If the process does not start in time, removes the request, so that the process never acts on it.
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

/// Names and values as Python source code.
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

    /// Returns one line of Python. An injected line runs in the main module, and defines no names there.
    fn text(&self) -> String {
        let program = TEXT.replace("ARGUMENTS", &format!("{{{}}}", self.text));
        format!("{LEAVE_OUT};exec({}, {{}})", quoted(&program))
    }
}

/// Returns a path as a Python bytes expression.
fn as_bytes(path: &Path) -> String {
    let mut digits = String::new();
    for byte in path.as_os_str().as_bytes() {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    format!("bytes.fromhex(\"{digits}\")")
}

/// Returns a text as a Python string literal.
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
    fn code_is_one_ascii_line_for_any_path() {
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
