"""memray's `SocketDestination` and `SocketReader`, on this machine only.

The server sends one line with the path of the capture, which grows while the program runs. The reader opens that file,
so only users who may read the file can use the reader. The server accepts connections of its own user and of root only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from heaptide.compat.memray.capture_data import StackNumbers, summed_records
from heaptide.compat.memray.destinations import SocketDestination
from heaptide.compat.memray.records import AllocationRecord

if TYPE_CHECKING:
    import socket

    from typing_extensions import Self

GREETING = "heaptide-capture"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Seconds for which a reader waits for the greeting of a server.
TIMEOUT = 10.0
# The pause between two attempts to connect.
RETRY_SECONDS = 0.1
# The longest greeting, in bytes.
MAX_GREETING = 65536


class LiveServer:
    """Waits for a reader, sends it the path of the capture, and keeps the connection open until the recording ends."""

    def __init__(
        self, destination: SocketDestination, native_traces: bool, on_listening: Callable[[], None] = lambda: None
    ) -> None:
        if destination.address not in LOOPBACK:
            raise ValueError(f"Heaptide serves live data only on this machine, not on {destination.address}")
        # Imported here: most programs that import memray never use a socket.
        import socket
        import tempfile

        self._folder = tempfile.mkdtemp(prefix="heaptide-live-")
        self.path = os.path.join(self._folder, "live.tide")
        greeting = {
            "format": GREETING,
            "path": self.path,
            "pid": os.getpid(),
            "command_line": " ".join(sys.argv),
            "has_native_traces": native_traces,
        }
        try:
            with socket.create_server(("127.0.0.1", destination.server_port)) as server:
                on_listening()
                self._connection = self._accept(server)
            self._connection.sendall(json.dumps(greeting).encode() + b"\n")
        except BaseException:
            os.rmdir(self._folder)
            raise

    def _accept(self, server: socket.socket) -> socket.socket:
        while True:
            connection, address = server.accept()
            if _user_of(address, connection.getsockname()) in (os.getuid(), 0):
                return connection
            connection.close()

    def close(self) -> None:
        """Close the connection and delete the capture. The reader still has the file open."""
        self._connection.close()
        for name in (self.path, self._folder):
            try:
                os.unlink(name) if name == self.path else os.rmdir(name)
            except OSError:  # the recording did not start
                pass


def _user_of(client: Any, server: Any) -> int | None:
    """Return the user ID of a connection's other end on this machine, from the kernel's table of connections."""
    import socket

    def text(address: Any) -> str:
        return socket.inet_aton(address[0])[::-1].hex().upper() + f":{address[1]:04X}"

    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table:
            fields = line.split()
            if fields[1:3] == [text(client), text(server)]:
                return int(fields[7])
    return None


class SocketReader:
    """Reads the live heap of a Tracker with a `SocketDestination`, or of ``memray run --live-remote``."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self._file = -1
        self._greeting: dict[str, Any] = {}
        self._stacks = StackNumbers()

    def __enter__(self) -> Self:
        if self._socket is not None:
            raise ValueError("Can't enter a SocketReader that has already been entered")
        connection = connect(self._port)
        try:
            self._greeting = greeting_of(connection)
            self._file = open_when_it_exists(self._greeting["path"], connection)
        except BaseException:
            connection.close()
            raise
        self._socket = connection
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._socket is not None:
            self._socket.close()
            os.close(self._file)
        self._socket = None

    @property
    def command_line(self) -> str | None:
        """The command line of the program."""
        return self._greeting.get("command_line")

    @property
    def pid(self) -> int | None:
        """The ID of the program's process."""
        return self._greeting.get("pid")

    @property
    def has_native_traces(self) -> bool:
        """Whether native functions are recorded."""
        return bool(self._greeting.get("has_native_traces"))

    @property
    def is_active(self) -> bool:
        """Whether the recording continues."""
        return self._socket is not None and not _has_ended(self._socket)

    def get_current_snapshot(self, *, merge_threads: bool) -> Iterator[AllocationRecord]:
        """Return the records of memory that is allocated now."""
        if self._socket is None:
            raise RuntimeError("The reader is not connected: use it in a with statement")
        path = f"/proc/{os.getpid()}/fd/{self._file}"
        return summed_records(path, self._stacks, merge_threads, "--leaks")


def connect(port: int) -> socket.socket:
    """Connect to a server on this machine. As memray does, wait until there is one."""
    import socket
    import time

    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), TIMEOUT)
        except ConnectionRefusedError:
            time.sleep(RETRY_SECONDS)


def greeting_of(connection: socket.socket) -> dict[str, Any]:
    """Receive the greeting of a server. Raises OSError if the server is not a Tracker."""
    connection.settimeout(TIMEOUT)
    text = b""
    while not text.endswith(b"\n") and len(text) < MAX_GREETING:
        part = connection.recv(4096)
        if not part:
            break
        text += part
    try:
        greeting = json.loads(text)
        if greeting["format"] == GREETING:
            return dict(greeting)
    except (ValueError, TypeError, KeyError):
        pass
    raise OSError("the port does not belong to a Tracker")


def open_when_it_exists(path: str, connection: socket.socket) -> int:
    """Open the capture, which appears as soon as the Tracker is entered."""
    import time

    while True:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if _has_ended(connection):
                raise
            time.sleep(0.01)


def _has_ended(connection: socket.socket) -> bool:
    import socket

    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
