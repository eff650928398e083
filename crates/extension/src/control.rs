//! The control API of this process: a request handler with its servers, connected to this process's agent.

use heaptide_capture::reason::without_error_numbers;
use std::ffi::{OsString, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use heaptide_agent::host::libc_heap::LibcHeap;
use heaptide_agent::host::{own_thread, sys};
use heaptide_agent::record::threads::{OwnPython, Unrecorded};
use heaptide_agent::session::{self, fork};
use heaptide_capture::Mode;
use heaptide_control::config::RenderConfig;
use heaptide_control::peer;
use heaptide_control::recorder::{HeapOptions, Join, ModeOptions, Options, Recorder};
use heaptide_control::security::{self, EntryPoint, Reach};
use heaptide_control::token::Token;
use heaptide_control::{
    Address, Body, Config, Handler, ReportCommand, ReportOption, Request, Server, group,
};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::client::{self, Client};
use crate::recording::{self, change_mode_here, options_to_dict};
use crate::text::{FsText, Text};

/// Address space of a thread's stack; only the used part takes memory. Python code also runs on these threads.
const STACK_BYTES: usize = 1 << 20;

/// This process. It starts and stops recordings through the same Python functions as other callers.
struct Process {
    start: Py<PyAny>,
    stop: Py<PyAny>,
    heap: Py<PyAny>,
    /// Set when the interpreter is about to exit and must not be called any more.
    is_closing: AtomicBool,
    /// Number of threads that wait for the GIL or hold it.
    n_inside: AtomicUsize,
}

impl Process {
    fn with_python<T>(&self, work: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T, String> {
        let _own = OwnPython::begin();
        self.n_inside.fetch_add(1, Ordering::SeqCst);
        let result = if self.is_closing.load(Ordering::SeqCst) {
            None
        } else {
            Python::try_attach(|py| work(py).map_err(|error| error.value(py).to_string()))
        };
        self.n_inside.fetch_sub(1, Ordering::SeqCst);
        result.unwrap_or_else(|| Err("the program is exiting".to_owned()))
    }
}

impl Recorder for Process {
    fn recording(&self) -> Option<PathBuf> {
        session::active_path()
    }

    fn has_failed(&self) -> bool {
        session::has_failed()
    }

    fn labels(&self) -> Vec<(String, String)> {
        recording::labels()
    }

    fn start(&self, path: &Path, options: &Options) -> Result<Option<String>, String> {
        self.with_python(|py| {
            let options = options_to_dict(py, options.mode, options.interval_ms)?;
            let arguments = (FsText::from(path.to_owned()), options);
            self.start.call1(py, arguments)?.extract(py)
        })
    }

    fn stop(&self) -> Result<(), String> {
        self.with_python(|py| self.stop.call0(py).map(|_| ()))
    }

    fn mode(&self) -> Option<Mode> {
        session::active_mode()
    }

    fn change_mode(&self, wanted: &ModeOptions) -> Result<bool, String> {
        let ModeOptions {
            objects,
            sample_bytes,
            native,
        } = *wanted;
        self.with_python(|_| Ok(change_mode_here(objects, sample_bytes, native)))?
            .map_err(|error| error.to_string())
    }

    fn heap(&self, path: &Path, options: &HeapOptions) -> Result<f64, String> {
        let options = (
            FsText::from(path.to_owned()),
            options.values,
            options.redact.clone(),
            options.fork,
        );
        self.with_python(|py| self.heap.call1(py, options)?.extract(py))
    }

    fn spawn(&self, work: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
        let work = move || {
            work();
            std::ptr::null_mut()
        };
        own_thread::spawn(STACK_BYTES, Box::new(work)).map(own_thread::Handle::detach)
    }

    fn spawn_to_join(&self, work: Box<dyn FnOnce() + Send>) -> std::io::Result<Join> {
        let number = Arc::new(AtomicU32::new(0));
        let written = number.clone();
        let work = move || {
            written.store(sys::thread_id(), Ordering::SeqCst);
            work();
            std::ptr::null_mut()
        };
        let handle = own_thread::spawn(STACK_BYTES, Box::new(work))?;
        Ok(Box::new(move || {
            handle.join();
            own_thread::wait_until_gone(number.load(Ordering::SeqCst));
        }))
    }
}

/// The listening servers of a control. Locked only with the GIL held, so that a forked child finds the lock free.
type Servers = Mutex<Vec<Server>>;

/// The servers of all controls of this process.
static ALL_SERVERS: Mutex<Vec<Weak<Servers>>> = Mutex::new(Vec::new());

fn for_all_servers(mut work: impl FnMut(&mut Server)) {
    let _unrecorded = Unrecorded::begin();
    let mut all = ALL_SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|servers| servers.strong_count() > 0);
    for servers in all.iter().filter_map(Weak::upgrade) {
        let mut servers = servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.iter_mut().for_each(&mut work);
    }
}

/// Ends the listening threads before Python forks.
#[pyfunction]
pub fn pause_servers() {
    for_all_servers(Server::pause);
}

/// Starts the listening threads again in the parent after a fork.
#[pyfunction]
pub fn resume_servers() {
    extern "C" fn resume(_: *mut c_void) -> c_int {
        // If a thread cannot be started now, the next fork tries again.
        for_all_servers(|server| drop(server.resume()));
        0
    }
    // SAFETY: Python calls this function as an `after_in_parent` hook, with the GIL and without a Python frame.
    // `resume` ignores its argument and raises nothing.
    unsafe { fork::resume_after_thread_count(resume) };
}

/// The control API: `handle` answers a request of another server, `listen` starts a server.
#[pyclass(module = "heaptide._native", frozen)]
pub struct Control {
    handler: Arc<Handler>,
    process: Arc<Process>,
    servers: Arc<Servers>,
}

impl Control {
    fn servers(&self) -> MutexGuard<'_, Vec<Server>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, address: &Address, reach: Reach) -> PyResult<String> {
        let _unrecorded = Unrecorded::begin();
        let server = Server::start(address, reach, self.handler.clone(), self.process.clone())
            .map_err(|error| {
                PyOSError::new_err((
                    error.raw_os_error(),
                    without_error_numbers(&error.to_string()),
                ))
            })?;
        let address = server.address.to_string();
        if reach != Reach::Private {
            self.handler.add_address(server.bound_to());
        }
        self.servers().push(server);
        Ok(address)
    }
}

#[pymethods]
impl Control {
    #[new]
    #[pyo3(signature = (*, name, command, directory, group, run, run_folder, jobs_folder, prefix, token, token_header, cors_origin, keep_sessions, keep_bytes, requests_per_second, interpreter_timeout_seconds, render_command, render_environment, render_seconds, leaks, start, stop, heap))]
    #[allow(
        clippy::too_many_arguments,
        reason = "keyword arguments, each with its name at the only caller"
    )]
    fn new(
        name: Text,
        command: Text,
        directory: PathBuf,
        group: PathBuf,
        run: Text,
        run_folder: PathBuf,
        jobs_folder: Option<PathBuf>,
        prefix: String,
        token: Option<String>,
        token_header: Option<String>,
        cors_origin: Option<String>,
        keep_sessions: usize,
        keep_bytes: u64,
        requests_per_second: u32,
        interpreter_timeout_seconds: f64,
        render_command: Vec<OsString>,
        render_environment: Vec<(OsString, OsString)>,
        render_seconds: f64,
        leaks: bool,
        start: Py<PyAny>,
        stop: Py<PyAny>,
        heap: Py<PyAny>,
    ) -> PyResult<Control> {
        let seconds = |seconds: f64| {
            Duration::try_from_secs_f64(seconds)
                .map_err(|_| PyValueError::new_err(format!("{seconds} is not a number of seconds")))
        };
        heaptide_files::private_folder(&group).map_err(|error| {
            PyOSError::new_err((
                error.raw_os_error(),
                without_error_numbers(&error.to_string()),
            ))
        })?;
        // Without a token the program still works: nobody has full access over TCP then.
        let token = token.map(Token::chosen);
        let token = token.or_else(|| Token::in_folder(&group).ok());
        let config = Config {
            name: name.0,
            command: command.0,
            directory,
            group,
            run: run.0,
            run_folder,
            jobs_folder,
            prefix,
            token,
            token_header,
            cors_origin,
            keep_sessions,
            keep_bytes,
            requests_per_second,
            interpreter_timeout: seconds(interpreter_timeout_seconds)?,
            render: RenderConfig {
                command: render_command,
                environment: render_environment,
                time_limit: seconds(render_seconds)?,
            },
            commands: report_commands(),
            leaks,
        };
        group::remove_left_overs(&config.group);
        let process = Arc::new(Process {
            start,
            stop,
            heap,
            is_closing: AtomicBool::new(false),
            n_inside: AtomicUsize::new(0),
        });
        let servers = Arc::new(Servers::default());
        let mut all = ALL_SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::downgrade(&servers));
        Ok(Control {
            handler: Arc::new(Handler::new(config, process.clone())),
            process,
            servers,
        })
    }

    /// Listens at an address. Returns it with the actual port.
    fn listen(&self, address: &str) -> PyResult<String> {
        let address = Address::parse(address).map_err(PyValueError::new_err)?;
        let token = self.handler.config().token.as_ref();
        let reach = security::reach(&address, token).map_err(PyValueError::new_err)?;
        self.open(&address, reach)
    }

    /// Returns the file with the token that Heaptide created, unless the user chose a token.
    fn token_file(&self) -> Option<&Path> {
        let token = self.handler.config().token.as_ref();
        token.and_then(Token::file)
    }

    /// Adds an address at which another server passes requests to this one.
    fn add_address(&self, address: String) {
        self.handler.add_address(address);
    }

    /// Listens at the socket by which the processes of a group find each other.
    fn join_group(&self) -> PyResult<String> {
        let group = &self.handler.config().group;
        let socket = group::socket_of(group, std::process::id());
        self.open(&Address::Unix(socket), Reach::Private)
    }

    /// Records this process if its run is being recorded. Returns a warning.
    fn join_wanted(&self, is_forked: bool) -> PyResult<Option<String>> {
        let _own = OwnPython::begin();
        let joined = self.handler.join_wanted(is_forked);
        joined.map_err(recording::RecordingError::new_err)
    }

    /// Returns the other processes of the group that have sockets.
    fn siblings(&self) -> Vec<u32> {
        let own = std::process::id();
        let members = group::members(&self.handler.config().group).into_iter();
        members
            .map(|member| member.0)
            .filter(|pid| *pid != own)
            .collect()
    }

    /// Answers a request that another server received. A trusted request comes from the program itself. A request with a
    /// `connection`, a file descriptor, arrived at the port of `heaptide serve`. A report is cancelled once `client` has left.
    #[allow(clippy::too_many_arguments, reason = "the parts of a request")]
    fn handle(
        &self,
        py: Python<'_>,
        method: &str,
        path: &str,
        query: &str,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
        trusted: bool,
        connection: Option<c_int>,
        client: Option<Py<Client>>,
    ) -> PyResult<Response> {
        let connection = connection.map(client::duplicate).transpose()?;
        let response = py.detach(|| {
            let _own = OwnPython::begin();
            let entry_point = match &connection {
                _ if trusted => EntryPoint::Private,
                Some(connection) => EntryPoint::JobPort(peer::of_tcp(connection)),
                None => EntryPoint::Mounted,
            };
            let is_gone = || {
                let client = client.as_ref().map(Py::get);
                connection.as_ref().is_some_and(heaptide_control::is_gone)
                    || client.is_some_and(Client::is_gone)
            };
            match Request::from_parts(method, path, query, headers, body) {
                Ok(request) => self.handler.handle(&request, entry_point, &is_gone),
                Err(refusal) => {
                    let (status, reason) = (refusal.status, refusal.reason);
                    heaptide_control::Response::error(status, "RequestError", reason)
                }
            }
        });
        let mut headers: Vec<(String, String)> = response
            .headers
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        if let Some(length) = response.body.length() {
            headers.push(("Content-Length".to_owned(), length.to_string()));
        }
        Ok(Response {
            status: response.status,
            headers,
            body: Mutex::new(if method == "HEAD" {
                Body::default()
            } else {
                response.body
            }),
        })
    }

    /// Stops all servers. The recording continues; clients get `seconds` to read responses in progress.
    fn stop(&self, py: Python<'_>, seconds: f64) {
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        self.process.is_closing.store(true, Ordering::SeqCst);
        let servers = std::mem::take(&mut *self.servers());
        py.detach(|| {
            let begin = Instant::now();
            for server in servers {
                server.stop(limit.saturating_sub(begin.elapsed()));
            }
            // Threads that wait for the GIL can take it now. The interpreter must not end before they are done.
            while self.process.n_inside.load(Ordering::SeqCst) > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }

    /// Closes the descriptors of the parent's servers in a forked child, and changes nothing else.
    fn forget(&self) {
        for server in std::mem::take(&mut *self.servers()) {
            server.fds().into_iter().for_each(close);
            std::mem::forget(server);
        }
    }
}

fn close(fd: c_int) {
    unsafe extern "C" {
        fn close(fd: c_int) -> c_int;
    }
    // SAFETY: the caller forgets the server that owns the descriptor, and the server's threads do not exist in this
    // process, so no code uses the number again.
    unsafe { close(fd) };
}

/// A response whose body is read in pieces.
#[pyclass(module = "heaptide._native", frozen)]
pub struct Response {
    #[pyo3(get)]
    status: u16,
    #[pyo3(get)]
    headers: Vec<(String, String)>,
    body: Mutex<Body>,
}

#[pymethods]
impl Response {
    /// Returns the next bytes of the body; empty at its end.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        // A download is Heaptide's own work, also on a thread of the program.
        let _own = OwnPython::begin();
        let piece = py.detach(|| {
            let mut body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
            let mut piece = vec![0; heaptide_control::response::PIECE_BYTES];
            let n_read = body.read(&mut piece)?;
            piece.truncate(n_read);
            std::io::Result::Ok(piece)
        })?;
        Ok(PyBytes::new(py, &piece))
    }
}

/// Returns the page that lists the routes and lets users try them.
#[pyfunction]
pub fn docs_page() -> &'static str {
    heaptide_control::DOCS_PAGE
}

/// Returns the bytes that the C library has allocated; `None` where it does not report them.
#[pyfunction]
pub fn heap_bytes() -> Option<u64> {
    LibcHeap::read().map(|heap| heap.in_use)
}

fn report_commands() -> Vec<ReportCommand> {
    let commands = heaptide_cli::command_options().into_iter();
    commands
        .map(|(name, about, options)| ReportCommand {
            name,
            about,
            options: options
                .into_iter()
                .map(|option| ReportOption {
                    name: option.name,
                    help: option.help,
                    takes_value: option.takes_value,
                    values: option.values,
                })
                .collect(),
        })
        .collect()
}
