"""The control API: HTTP in a running program to start, stop and inspect recordings.

    control = heaptide.control.start("7001")        # loopback; or "unix:/run/job.sock"
    print(control.address)

The server is native and has its own threads, so it answers even while the program holds the GIL. Another process
renders the reports. See docs/guide/control.md for the routes.
"""

from __future__ import annotations

import atexit
import errno
import os
import sys
from typing import Any

from heaptide import _native, command_process, labels, redaction, settings
from heaptide.containment import untraced
from heaptide.messages import print_message_after_fork, reason
from heaptide.recording import process_group, program, retention, runs, tracker

# All routes begin with this path, after any prefix.
BASE = "/api/v1/profiler"

DEFAULT_KEEP_SESSIONS = 10
DEFAULT_KEEP_BYTES = 4 << 30
DEFAULT_REQUESTS_PER_SECOND = 200
_MOST_REQUESTS_PER_SECOND = 2**32 - 1
_INTERPRETER_TIMEOUT_SECONDS = 30.0
_RENDER_SECONDS = 300.0
_RENDER_BYTES = 4 << 30
_CLOSING_SECONDS = 3.0

# In the order of their creation.
_controls: list[Control] = []


class Control:
    """The control API of this process, created by :func:`start`.

    address   where it answers requests, or None
    socket    the unix socket for `heaptide ctl` and for other processes of the same program
    """

    def __init__(self, options: dict[str, Any], follow_fork: bool) -> None:
        self._options = options
        self._follow_fork = follow_fork
        try:
            self._native = _native.Control(**options, start=_start_recording, stop=_stop_recording, heap=_take_heap)
        except OSError as error:
            raise _unusable(options["group"], error) from None
        self.address: str | None = None
        self.socket: str | None = None
        self._stop_at_exit = untraced(self.stop)

    def handle(
        self,
        method: str,
        path: str,
        query: str = "",
        headers: list[tuple[str, str]] | None = None,
        body: bytes = b"",
        *,
        trusted: bool = False,
        connection: int | None = None,
        client: _native.Client | None = None,
    ) -> _native.Response:
        """Answer a request that another server received. `path` may have any prefix before the routes.

        A `trusted` request comes from the program itself: it needs no token and does not count against the rate limit.
        Other requests rely on the access control of that server. A server without access control passes the file
        descriptor of its TCP `connection`: clients of other users then need the token, except for Racetrack's routes.
        A report is cancelled once the `client` has disconnected.
        """
        return self._native.handle(method, path, query, headers or [], body, trusted, connection, client)

    @property
    def token_file(self) -> str | None:
        """The file with the token that Heaptide created, or None if a token was chosen."""
        return self._native.token_file()

    def add_address(self, address: str) -> None:
        """Declare an address at which another server passes requests to :meth:`handle`; `heaptide ctl` finds it."""
        self._native.add_address(address)

    def stop(self) -> None:
        """Stop the control API. A running recording continues."""
        if self in _controls:
            _controls.remove(self)
            if not _controls:
                runs.withdraw("control")
                os.environ.pop(settings.RUN_FOLDER, None)
        atexit.unregister(self._stop_at_exit)
        self._native.stop(_CLOSING_SECONDS)

    def _open(self, address: str | None, *, is_forked: bool = False) -> None:
        try:
            self.socket = self._native.join_group()
        except OSError as error:
            raise _unusable(self._options["group"], error) from None
        if address:
            try:
                self.address = self._native.listen(address)
            except OSError as error:
                # Another worker of the same program has the address: requests to it also apply to this process.
                if error.errno != errno.EADDRINUSE or not self._native.siblings():
                    raise OSError(error.errno, f"control cannot listen at {address} ({error.args[-1]})") from None
        _controls.append(self)
        self._join(is_forked)
        # Exit handlers run in reverse order, so this one runs after those that the program registers later.
        atexit.register(self._stop_at_exit)

    def _join(self, is_forked: bool) -> None:
        """Record this process if its run is being recorded. A worker may start later than the recording."""
        try:
            warning = self._native.join_wanted(is_forked)
        except Exception as error:
            warning = f"this process is not recorded: {reason(error)}"
        if warning:
            print_message_after_fork(f"process {os.getpid()}: {warning}")

    def _after_fork_in_child(self) -> None:
        self._native.forget()
        atexit.unregister(self._stop_at_exit)
        if self._follow_fork:
            labels.facts()  # a child may have another role
            Control(self._options, True)._open(None, is_forked=True)


def start(
    address: str | None = None,
    *,
    token: str | None = None,
    prefix: str = "",
    directory: str | os.PathLike[str] | None = None,
    name: str | None = None,
    token_header: str | None = None,
    cors_origin: str | None = None,
    keep_sessions: int = DEFAULT_KEEP_SESSIONS,
    keep_bytes: int = DEFAULT_KEEP_BYTES,
    requests_per_second: int = DEFAULT_REQUESTS_PER_SECOND,
    leaks: bool = False,
    follow_fork: bool = True,
) -> Control:
    """Start the control API of this process.

    address               a port, host:port or unix:path; None serves only `Control.handle` and `heaptide ctl`
    token                 token that requests must send; required for an address that other machines can reach.
                          Without one, processes of the same user pass, and others need the token in `token_file`
    prefix                path before the routes, as the documentation pages show it
    directory             folder for sessions; by default one of this user in the temporary folder
    name                  name of the program; by default the name of the script or module
    token_header          a header that may carry the token instead of Authorization
    cors_origin           one other origin whose pages may send requests
    keep_sessions         number of sessions to keep; a new one deletes the oldest
    keep_bytes            bytes that all sessions together may take; a new one deletes the oldest
    requests_per_second   rate limit; further requests are answered with 429
    leaks                 flame graphs initially show memory that is still allocated
    follow_fork           forked children also have the control API, and a request to one process applies to all
    """
    for argument, number, least in (
        ("keep_sessions", keep_sessions, 0),
        ("keep_bytes", keep_bytes, 0),
        ("requests_per_second", requests_per_second, 1),
    ):
        if not isinstance(number, int) or not least <= number <= sys.maxsize:
            raise ValueError(f"{argument} is {number!r}: it must be a whole number from {least} on")
    redaction.hide(token)
    run = runs.publish("control")
    group = process_group.ProcessGroup.of_this_process()
    folder = os.path.realpath(directory) if directory else _sessions_of(name, group)
    run_folder = os.path.join(folder, runs.folder_name(run))
    os.environ[settings.RUN_FOLDER] = run_folder
    labels.facts()  # passes the labels to the native module
    options: dict[str, Any] = {
        "name": name or group.name,
        "command": " ".join(redaction.command(sys.orig_argv)),
        "directory": folder,
        "group": process_group.group_folder(),
        "run": run,
        "run_folder": run_folder,
        "jobs_folder": getattr(redaction.load_settings(), "jobs", None) or None,
        "prefix": prefix.rstrip("/"),
        "token": token or None,
        "token_header": token_header,
        "cors_origin": cors_origin,
        "keep_sessions": keep_sessions,
        "keep_bytes": keep_bytes,
        "requests_per_second": min(requests_per_second, _MOST_REQUESTS_PER_SECOND),
        "interpreter_timeout_seconds": _INTERPRETER_TIMEOUT_SECONDS,
        "render_command": command_process.command(_RENDER_BYTES),
        "render_environment": list(command_process.environment().items()),
        "render_seconds": _RENDER_SECONDS,
        "leaks": leaks,
    }
    _native.check_folder(options["directory"])
    try:
        for folder in process_group.private_folders():
            _native.private_folder(folder)
        _native.check_folder(process_group.runtime_folder())
    except OSError as error:
        raise _unusable(options["group"], error) from None
    control = Control(options, follow_fork)
    try:
        control._open(address)
    except BaseException:
        control.stop()
        raise
    return control


def start_as_set(address: str | None = None, **options: Any) -> Control:
    """Start the control API with the values of the settings, except for those in `options`."""
    chosen = settings.load()
    values = {
        "token": token_as_set(chosen),
        "prefix": chosen.prefix,
        "directory": chosen.sessions or None,
        "token_header": chosen.token_header or None,
        "cors_origin": chosen.cors_origin or None,
        "keep_sessions": chosen.keep_sessions,
        "keep_bytes": chosen.keep_bytes,
        "leaks": chosen.leaks,
    }
    return start(address, **{**values, **options})


def token_as_set(chosen: settings.Settings) -> str | None:
    """Return the token in the settings. An empty token file is an error, because it would disable access control."""
    if not chosen.token_file:
        return chosen.token or None
    try:
        with open(chosen.token_file, encoding="utf-8") as file:
            token = file.read().strip()
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"the token in {chosen.token_file} cannot be read ({cause})") from None
    if not token:
        raise ValueError(f"{chosen.token_file} holds no token: write one into it")
    return token


def sessions_in(home: str) -> str | None:
    """Return `home` as the folder for sessions, or None if other users can write to it."""
    try:
        if home:
            _native.check_folder(home)
    except OSError:
        return None
    return home or None


def _unusable(group: str, error: OSError) -> OSError:
    return OSError(error.errno, f"the folder {group} of this program's processes cannot be used ({error.args[-1]})")


def _sessions_of(name: str | None, group: process_group.ProcessGroup) -> str:
    """Return the folder for sessions. All processes of a run share the folder of the process that started it."""
    inherited = os.path.dirname(runs.inherited_folder())
    if inherited and runs.chosen() and os.path.basename(runs.inherited_folder()) == runs.folder_name(runs.name()):
        return inherited
    if name is None:
        first = runs.folder_name(runs.name()) if runs.is_named() else group.name
        name = f"{first}-{group.key}"
    return _directory(name)


def _directory(name: str) -> str:
    own = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"heaptide-{os.geteuid()}")
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in name).strip(".")
    for folder in (own, os.path.join(own, "sessions")):
        try:
            _native.private_folder(folder)
        except PermissionError as error:
            raise PermissionError(
                errno.EACCES, f"{error.strerror}; or choose another directory for sessions with HEAPTIDE_SESSIONS"
            ) from None
    return os.path.realpath(os.path.join(own, "sessions", plain or "job"))


def _start_recording(path: str, options: dict[str, Any]) -> str | None:
    try:
        session = _identity(os.path.basename(os.path.dirname(path)))
        # If the process joins before its program starts, `sys.argv` is not set yet.
        is_early = getattr(sys.modules.get("heaptide.bootstrap"), "is_early", False)
        warning = tracker.start(
            path,
            tracker.RecordingOptions(**options),
            session=session,
            command=sys.orig_argv[1:] if is_early else None,
            first_import_path=program.main_folder() if is_early else None,
        )
        if options["follow_fork"]:
            retention.begin(path, settings.load())
        return warning
    except OSError as error:
        raise RuntimeError(str(error.args[-1])) from None


def _identity(session: str) -> bytes:
    """Return the ID of a session on this host, for its captures: checksum of the host, and digits of the session."""
    number = int("".join(letter for letter in session if letter.isdigit()) or 0) & ((1 << 96) - 1)
    return (runs.checksum(os.uname().nodename.encode()) << 96 | number).to_bytes(16, "big")


def _stop_recording() -> None:
    tracker.stop()


def _take_heap(path: str, values: bool, redact: list[str], fork: bool) -> float:
    """Write a heap snapshot. Returns for how many milliseconds the program was paused."""
    from heaptide.inspection.snapshots import heap_snapshot

    try:
        taken = heap_snapshot(path, values=values, redact=redact, fork=fork)
    except OSError as error:
        raise RuntimeError(str(error.args[-1])) from None
    return taken.paused_seconds * 1000


@untraced
def _after_fork_in_child() -> None:
    """Close the parent's listeners in a forked child, and open a socket for the child."""
    inherited = _controls[:]
    _controls.clear()
    for control in inherited:
        try:
            control._after_fork_in_child()
        except Exception as error:
            print_message_after_fork(f"the forked process {os.getpid()} has no control API: {reason(error)}")


os.register_at_fork(
    before=_native.pause_servers,
    after_in_parent=_native.resume_servers,
    after_in_child=_after_fork_in_child,
)
