"""A terminal for tests: a program runs on a pty of a given size, and the screen can be read as lines of text.

Tests wait for text to appear, never for time to pass: each read blocks until the program draws again or ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.waiting import NEVER

pyte = pytest.importorskip("pyte", reason="pyte, which emulates the terminal, is not installed")


class TerminalScreen:
    """A program that runs on an emulated terminal."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        columns: int = 80,
        lines: int = 24,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        **popen: Any,
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._master, slave = pty.openpty()
        self.resize(columns, lines)
        self.settings_before = termios.tcgetattr(slave)
        self.written = b""
        environment = {**os.environ, "TERM": "xterm-256color", **(env or {})}

        def become_foreground() -> None:
            os.setsid()
            fcntl.ioctl(0 if popen.get("stdin") is None else 1, termios.TIOCSCTTY, 0)

        pipes = {"stdin": slave, "stdout": slave, "stderr": slave, **popen}
        self.process = subprocess.Popen(command, cwd=cwd, env=environment, preexec_fn=become_foreground, **pipes)
        # Kept open, so that the terminal's settings can be read after the program has ended.
        self._slave = slave

    def resize(self, columns: int, lines: int) -> None:
        """Change the size, as dragging a window's corner would."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def lines(self) -> list[str]:
        """Return the lines on the screen."""
        return [line.rstrip() for line in self.screen.display]

    def text(self) -> str:
        """Return the screen as one text."""
        return "\n".join(self.lines())

    def wait(self, until: Callable[[str], Any], what: str = "") -> str:
        """Wait until the text on the screen fulfils a condition, and return it."""
        limit = time.monotonic() + NEVER
        while not until(self.text()):
            assert time.monotonic() < limit, f"never showed {what or until}:\n{self.text()}"
            assert self._read(), f"ended without showing {what or until}:\n{self.text()}"
        return self.text()

    def wait_for(self, *texts: str) -> str:
        """Wait until all of these texts are on the screen."""
        return self.wait(lambda seen: all(text in seen for text in texts), repr(texts))

    def wait_for_full_screen(self) -> None:
        """Wait until the program has switched to the terminal's alternate screen, which it uses as a full screen."""
        self.wait(lambda _: b"\x1b[?1049h" in self.written, "a full screen")

    def finish(self) -> int:
        """Wait until the program has ended, and return its exit code."""
        while self.process.poll() is None:
            ready, _, _ = select.select([self._master], [], [], 0.05)
            if ready:
                self._read()
        while select.select([self._master], [], [], 0)[0] and self._read():
            pass
        return self.process.returncode

    def is_restored(self) -> bool:
        """Return whether the program has restored the terminal: settings, screen and cursor."""
        same_settings = termios.tcgetattr(self._slave) == self.settings_before
        left_full_screen = self.written.rfind(b"\x1b[?1049l") > self.written.rfind(b"\x1b[?1049h")
        return same_settings and left_full_screen and not self.screen.cursor.hidden

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], NEVER)
        assert ready, f"the program stopped drawing:\n{self.text()}"
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:
            return False
        self.written += data
        # pyte has no alternate screen, so this code clears the screen when the program enters or leaves it.
        for part in re.split(rb"(\x1b\[\?1049[hl])", data):
            if part.startswith(b"\x1b[?1049"):
                self.screen.reset()
            self._stream.feed(part)
        return bool(data)

    def close(self) -> None:
        """Kill the program if it still runs, and close the terminal."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
                self.process.kill()
        self.process.wait()
        self.hang_up()

    def hang_up(self) -> None:
        """Close the terminal, as closing its window would."""
        for fd in (self._master, self._slave):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._master = self._slave = -1

    def __enter__(self) -> TerminalScreen:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
