"""memray's exceptions."""

from __future__ import annotations

from typing import Any


class MemrayError(Exception):
    """Base of memray's own exceptions."""


class MemrayCommandError(MemrayError):
    """A command failed; the process ends with `exit_code`."""

    def __init__(self, *args: Any, exit_code: int) -> None:
        super().__init__(*args)
        self.exit_code = exit_code
