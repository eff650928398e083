"""Runs the commands of a documentation page in one shell, as a reader would type them.

Pages show fixed values that differ for every reader: process 4711, ports 7000 and 7001, the folder /srv. A session
replaces the process ID and the ports in commands by the real ones, and all real values in outputs by those of the page.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support.commands import REPOSITORY
from support.console_pages import Step, has_shape

PID_OF_PAGES = "4711"
PORTS_OF_PAGES = ("7000", "7001")
FOLDER_OF_PAGES = "/srv"
# Commands take less than a few seconds, so a session that waits this long is stuck.
LIMIT_SECONDS = 240
_FILE_WITH_PID = re.compile(r"\.(\d+)\.(?:tide|timeline|heap)$")

# Functions for all pages. `pip` installs the built wheel into a fresh environment instead of building or downloading;
# other packages must be installed already. `wait_until` waits for a condition.
_PRELUDE = r"""
set -o pipefail
wait_until() { while ! eval "$1" >/dev/null 2>&1; do command sleep 0.02; done; }
fresh_environment() {
    "$PYTHON" -m venv --without-pip environment
    "$PYTHON" -m pip --quiet --python environment install --no-index --no-deps "$WHEEL"
    export PATH="$PWD/environment/bin:$PATH"
}
pip() {
    shift
    for argument in "$@"; do
        case "$argument" in
        . | heaptide) [ -d environment ] || fresh_environment || return ;;
        -*) ;;
        *) "$PYTHON" -c "import importlib.metadata as m; m.version(\"$argument\")" || return ;;
        esac
    done
}
"""


class ConsoleSession:
    """A shell in the folder of a page, with the environment under test first on its path."""

    def __init__(self, folder: Path, setup: str) -> None:
        """Start the shell and prepare the folder with the commands of `setup`."""
        self._folder = folder
        self._pid: str | None = None
        self._background: str | None = None
        self._ports = {shown: str(_free_port()) for shown in PORTS_OF_PAGES}
        # Sockets need a short path. Removed with its content when the session is closed.
        self._runtime = tempfile.TemporaryDirectory(prefix="ht-")
        self._script = Path(self._runtime.name) / "step.sh"
        self._pending = ""
        # Variables that configure the tests are not settings of Heaptide.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HEAPTIDE")}
        environment = kept | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "WHEEL": str(_wheel()),
            "EXAMPLES": str(REPOSITORY / "examples"),
            "HEAPTIDE_RUNTIME_DIR": self._runtime.name,
            "HEAPTIDE_SESSIONS": str(Path(self._runtime.name) / "sessions"),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "120",
            "CURL_HOME": self._runtime.name,
        }
        Path(self._runtime.name, ".curlrc").write_text("silent\nshow-error\nfail\n")
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        done = self.run(Step(_PRELUDE + setup, 0))
        assert done.status == 0, f"the page could not be prepared:\n{done.text}"

    def run(self, step: Step) -> Output:
        """Run a command. After a command in the background, wait until its shown output has appeared."""
        before = set(self._folder.rglob("*"))
        self._script.write_text(self._to_real(step.command) + "\n")
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"source {self._script} </dev/null; printf '\\001%s %s\\n' $? $!\n".encode())
        self._shell.stdin.flush()
        deadline = time.monotonic() + LIMIT_SECONDS
        while "\x01" not in self._pending:
            self._read(deadline)
        text, _, rest = self._pending.partition("\x01")
        while "\n" not in rest:
            self._read(deadline)
            text, _, rest = self._pending.partition("\x01")
        answer, _, self._pending = rest.partition("\n")
        status, *background = answer.split()
        if background and background[0] != self._background:
            self._background = self._pid = background[0]
        if is_background := step.command.split("#")[0].rstrip().endswith("&"):
            while not has_shape(step.output, self._to_shown(text + self._pending)):
                self._read(deadline)
            text, self._pending = text + self._pending, ""
        for path in sorted(set(self._folder.rglob("*")) - before):
            named = _FILE_WITH_PID.search(path.name)
            if named and not is_background:
                self._pid = named[1]
        return Output(int(status), text, self._to_shown(text))

    def close(self) -> None:
        """End the shell and everything it started."""
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()
        self._runtime.cleanup()

    def _read(self, deadline: float) -> None:
        """Append the next part of the output to the pending part."""
        assert self._shell.stdout is not None
        descriptor = self._shell.stdout.fileno()
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(descriptor, 1 << 16) if ready else b""
        assert part, f"the command does not end, or ended the shell; its output:\n{self._pending}"
        self._pending += part.decode(errors="replace")

    def _to_real(self, command: str) -> str:
        """Replace the numbers of the page by the real ones."""
        for shown, real in self._ports.items():
            command = re.sub(rf"\b{shown}\b", real, command)
        return re.sub(rf"\b{PID_OF_PAGES}\b", self._pid, command) if self._pid else command

    def _to_shown(self, text: str) -> list[str]:
        """Replace real numbers and paths by those of the page."""
        text = text.replace(str(self._folder), FOLDER_OF_PAGES)
        for shown, real in self._ports.items():
            text = re.sub(rf"\b{real}\b", shown, text)
        if self._pid:
            text = re.sub(rf"\b{self._pid}\b", PID_OF_PAGES, text)
        return text.splitlines()


class Output:
    """The exit code of a command, its output, and the output with the numbers of the page."""

    def __init__(self, status: int, text: str, lines: list[str]) -> None:
        """Store the three values."""
        self.status = status
        self.text = text
        self.lines = lines


def _free_port() -> int:
    """Return a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _wheel() -> Path:
    """Return the wheel that `make test-python` built."""
    (wheel,) = (REPOSITORY / "build" / "wheels").glob("heaptide-*.whl")
    return wheel
