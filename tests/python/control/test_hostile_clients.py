"""Tests that hostile connections do not keep the control API from answering, and cost the program little."""

from __future__ import annotations

import select
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.controlled_program import BASE, ControlledProgram, ask
from support.waiting import wait_until

pytestmark = pytest.mark.once

# More than twice the connections that the server reads at once.
MANY = 130
IDLE = 10_000
# At most this many descriptors are open, including those of the program itself.
MOST_DESCRIPTORS = 260
MOST_THREADS = 64


@pytest.fixture
def hostile(program: ControlledProgram) -> Iterator[Hostile]:
    """Connections to a program."""
    with ExitStack() as stack:
        yield Hostile(program, stack)


class Hostile:
    """Opens connections that stay open until the test ends."""

    def __init__(self, program: ControlledProgram, stack: ExitStack) -> None:
        self._address = program.address.removeprefix("http://").split(":")
        self._stack = stack
        self.connections: list[socket.socket] = []

    def connect(self, data: bytes = b"", receive_bytes: int | None = None) -> None:
        """Open one connection, and send the data."""
        connection = self._stack.enter_context(socket.socket())
        if receive_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.connect((self._address[0], int(self._address[1])))
        connection.sendall(data)
        self.connections.append(connection)

    def open_count(self) -> int:
        """Return how many connections the server has not closed."""
        poll = select.poll()
        for connection in self.connections:
            poll.register(connection, select.POLLRDHUP)
        return len(self.connections) - len(poll.poll(0))


def assert_answers(program: ControlledProgram) -> None:
    """Check that the program answers over TCP and at its private socket, and that the attack costs little."""
    assert program.get("status").json()["pid"] == program.process.pid
    (private,) = (program.folder / "run").glob("*/*.sock")
    assert ask(f"unix:{private}", "GET", f"{BASE}/status").status == 200
    process = Path(f"/proc/{program.process.pid}")
    assert len(list((process / "fd").iterdir())) <= MOST_DESCRIPTORS
    assert len(list((process / "task").iterdir())) <= MOST_THREADS


def test_half_sent_requests_do_not_delay_others(program: ControlledProgram, hostile: Hostile) -> None:
    for _ in range(MANY):
        hostile.connect(f"GET {BASE}/status HTTP/1.1\r\nHost: localhost\r\n".encode())
    assert_answers(program)
    # Hostile connections are still open, so the requests above did not just wait until these timed out.
    assert hostile.open_count() > 0


def test_clients_that_do_not_read_do_not_delay_others(program: ControlledProgram, hostile: Hostile) -> None:
    stopped = (program.post("start"), program.post("stop"))[1]
    # Far larger than all socket buffers; the zeros take no disk space.
    capture, size = Path(stopped["processes"][0]["output"]), 256 << 20
    with capture.open("r+b") as file:
        file.truncate(size)
    for _ in range(MANY):
        hostile.connect(f"GET {BASE}/report HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), receive_bytes=4096)
    assert_answers(program)
    # A client that reads downloads the whole file.
    with urllib.request.urlopen(f"{program.address}{BASE}/report") as answer, capture.open("rb") as file:
        n_received = 0
        while part := answer.read(1 << 20):
            assert part == file.read(len(part)), n_received
            n_received += len(part)
    assert n_received == size
    assert hostile.open_count() > 0


@pytest.mark.usefixtures("many_open_files")
def test_ten_thousand_idle_connections_do_not_delay_others(program: ControlledProgram, hostile: Hostile) -> None:
    for number in range(IDLE):
        hostile.connect()
        if number % 1000 == 0:
            assert_answers(program)
    assert_answers(program)
    assert hostile.open_count() > 0


COUNT_SOCKETS = """
def count_sockets():
    import os
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            pass
    return sum(link.startswith("socket:") for link in links)

def count_in_child():
    import os
    out, into = os.pipe()
    if os.fork() == 0:
        os.write(into, str(count_sockets()).encode())
        os._exit(0)
    return int(os.read(out, 10))
"""


def test_forked_child_does_not_keep_the_connections_of_its_parent(program: ControlledProgram, hostile: Hostile) -> None:
    program.evaluate(f"exec({COUNT_SOCKETS!r})")
    for _ in range(5):
        hostile.connect(b"GET")
    # Two listeners and the five connections, once the server has accepted them.
    wait_until(lambda: int(program.evaluate("count_sockets()")) >= 7, "the connections")
    # The child has only its own private socket.
    assert program.evaluate("count_in_child()") == "1"
    assert hostile.open_count() == 5
    program.get("status")
