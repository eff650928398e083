"""HTTP in the running job: switch the recording on and off, and look at it, while the job goes on.

    control = heaptide.control.start("7001")        # loopback; or "unix:/run/job.sock"
    print(control.address)

The server is native and has threads of its own: it answers even while the job holds the GIL. Reports are made by
another process. See docs/guide/control.md for the routes.
"""

from __future__ import annotations

import atexit
import errno
import os
import sys
import zlib
from typing import Any

from heaptide import _native, command_process, settings
from heaptide.recording import tracker
from heaptide.serving import process_group

# The routes begin with this, below whatever prefix.
BASE = "/api/v1/profiler"

DEFAULT_KEEP_SESSIONS = 10
DEFAULT_KEEP_BYTES = 4 << 30
DEFAULT_REQUESTS_PER_SECOND = 200
_MOST_REQUESTS_PER_SECOND = 2**32 - 1
_PATIENCE_SECONDS = 30.0
_RENDER_SECONDS = 300.0
_RENDER_BYTES = 4 << 30
_CLOSING_SECONDS = 3.0

# In the order in which they were made.
_controls: list[Control] = []


class Control:
    """The doors of this process. Made by :func:`start`; `handle` answers requests that another server took."""

    def __init__(self, options: dict[str, Any], follow_fork: bool) -> None:
        self._options = options
        self._follow_fork = follow_fork
        try:
            self._native = _native.Control(**options, start=_start_recording, stop=_stop_recording, heap=_take_heap)
        except OSError as error:
            raise _unusable(options["group"], error) from None
        # Where requests are answered; None if only `handle` and the job's own processes ask.
        self.address: str | None = None
        # Where the other processes of the job, and `heaptide ctl`, ask.
        self.socket: str | None = None

    def handle(
        self,
        method: str,
        path: str,
        query: str = "",
        headers: list[tuple[str, str]] | None = None,
        body: bytes = b"",
        *,
        trusted: bool = False,
    ) -> _native.Response:
        """Answer a request that somebody else took: the routes below any prefix of `path`.

        A `trusted` one comes from the program itself: it needs no token and is not counted.
        """
        return self._native.handle(method, path, query, headers or [], body, trusted)

    def stop(self) -> None:
        """Close the doors. A recording goes on."""
        if self in _controls:
            _controls.remove(self)
        atexit.unregister(self.stop)
        self._native.stop(_CLOSING_SECONDS)

    def _open(self, address: str | None) -> None:
        try:
            self.socket = self._native.join_group()
        except OSError as error:
            raise _unusable(self._options["group"], error) from None
        if address:
            try:
                self.address = self._native.listen(address)
            except OSError as error:
                # Another worker of the same job has it: a request to that one acts on this one, too.
                if error.errno != errno.EADDRINUSE or not self._native.siblings():
                    raise OSError(error.errno, f"control cannot listen at {address} ({error.args[-1]})") from None
        _controls.append(self)
        # Before the interpreter goes; registered early, so that it runs late.
        atexit.register(self.stop)

    def _after_fork_in_child(self) -> None:
        self._native.forget()
        atexit.unregister(self.stop)
        if self._follow_fork:
            Control(self._options, True)._open(None)


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
    """Answer requests that start, stop and look at recordings of this process.

    address               a port, host:port or unix:path; None answers `Control.handle` and `heaptide ctl` alone
    token                 what requests must show; needed for any address that other machines can reach
    prefix                the path that the routes are mounted below, for the documents
    directory             where sessions are kept; by default a folder of this user's in the temporary folder
    name                  what the job is called; by default as the program that its processes come from
    token_header          a header that may carry the token, beside Authorization
    cors_origin           the one other origin whose pages may call
    keep_sessions         older sessions than so many are deleted when a new one begins
    keep_bytes            the same, if all of them take more than this
    requests_per_second   more are answered with 429
    leaks                 flame graphs first show what is still alive
    follow_fork           forked children answer, too, and what is asked of one process is done by all
    """
    for what, number, least in (
        ("keep_sessions", keep_sessions, 0),
        ("keep_bytes", keep_bytes, 0),
        ("requests_per_second", requests_per_second, 1),
    ):
        if not isinstance(number, int) or not least <= number <= sys.maxsize:
            raise ValueError(f"{what} is {number!r}: it must be a whole number from {least} on")
    program = process_group.ProcessGroup.of_this_process()
    options: dict[str, Any] = {
        "name": name or program.name,
        "command": " ".join(sys.orig_argv),
        "directory": os.path.realpath(directory) if directory else _directory(name or f"{program.name}-{program.key}"),
        "group": process_group.group_folder(),
        "prefix": prefix.rstrip("/"),
        "token": token or None,
        "token_header": token_header,
        "cors_origin": cors_origin,
        "keep_sessions": keep_sessions,
        "keep_bytes": keep_bytes,
        "requests_per_second": min(requests_per_second, _MOST_REQUESTS_PER_SECOND),
        "patience_seconds": _PATIENCE_SECONDS,
        "render_command": command_process.command(_RENDER_BYTES),
        "render_environment": list(command_process.environment().items()),
        "render_seconds": _RENDER_SECONDS,
        "leaks": leaks,
    }
    control = Control(options, follow_fork)
    try:
        control._open(address)
    except BaseException:
        control.stop()
        raise
    return control


def start_as_set(address: str | None = None, **options: Any) -> Control:
    """The same, with what the settings say (docs/reference/settings.md) where `options` do not."""
    chosen = settings.load()
    said = {
        "token": token_as_set(chosen),
        "prefix": chosen.prefix,
        "directory": chosen.sessions or None,
        "token_header": chosen.token_header or None,
        "cors_origin": chosen.cors_origin or None,
        "keep_sessions": chosen.keep_sessions,
        "keep_bytes": chosen.keep_bytes,
        "leaks": chosen.leaks,
    }
    return start(address, **{**said, **options})


def token_as_set(chosen: settings.Settings) -> str | None:
    """What requests must show. A file that holds no token is an error: a door must not be open by mistake."""
    if not chosen.token_file:
        return chosen.token or None
    try:
        with open(chosen.token_file, encoding="utf-8") as file:
            token = file.read().strip()
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"the token in {chosen.token_file} cannot be read ({said})") from None
    if not token:
        raise ValueError(f"{chosen.token_file} holds no token: write one into it")
    return token


def _unusable(group: str, error: OSError) -> OSError:
    return OSError(error.errno, f"the folder {group} of this job's processes cannot be used ({error.args[-1]})")


def _directory(name: str) -> str:
    own = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"heaptide-{os.geteuid()}")
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in name).strip(".")
    for folder in (own, os.path.join(own, "sessions")):
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            if os.lstat(folder).st_uid != os.geteuid():
                raise PermissionError(
                    errno.EACCES, f"{folder} belongs to somebody else: choose another directory for sessions"
                ) from None
    return os.path.realpath(os.path.join(own, "sessions", plain or "job"))


def _start_recording(path: str, options: dict[str, Any]) -> str | None:
    try:
        session = _identity(os.path.basename(os.path.dirname(path)))
        return tracker.start(path, tracker.RecordingOptions(**options), session=session)
    except OSError as error:
        raise RuntimeError(str(error.args[-1])) from None


def _identity(session: str) -> bytes:
    """What all captures of a session have in common: the moment and the process that its name tells, and the host."""
    number = int("".join(letter for letter in session if letter.isdigit()) or 0) & ((1 << 96) - 1)
    return (zlib.crc32(os.uname().nodename.encode()) << 96 | number).to_bytes(16, "big")


def _stop_recording() -> None:
    tracker.stop()


def _take_heap(path: str, values: bool, redact: list[str], fork: bool) -> float:
    """For how many milliseconds the program stood still."""
    from heaptide.inspection.snapshots import heap_snapshot

    try:
        taken = heap_snapshot(path, values=values, redact=redact, fork=fork)
    except OSError as error:
        raise RuntimeError(str(error.args[-1])) from None
    return taken.stood_still * 1000


def _after_fork_in_child() -> None:
    """The parent's listeners are closed here; the child gets a socket of its own. Never raises."""
    inherited = _controls[:]
    _controls.clear()
    for control in inherited:
        try:
            control._after_fork_in_child()
        except Exception as error:
            os.write(2, f"heaptide: the forked process {os.getpid()} has no control: {error}\n".encode())


os.register_at_fork(
    before=_native.pause_servers,
    after_in_parent=_native.resume_servers,
    after_in_child=_after_fork_in_child,
)
