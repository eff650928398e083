"""The session that a recorded process passes to the interpreters it starts, in an environment variable.

A process that executes another program keeps its process ID and environment. The new program finds the session of its
own process there, and continues it in a separate capture.
"""

from __future__ import annotations

import os

from heaptide import settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

IS_COMPONENT, IS_CLOSED, IS_JOINED, IS_QUIET = 1, 2, 4, 8


class Session:
    """A session as the environment variable describes it."""

    def __init__(self, id: bytes, pid: int, flags: int, path: str, options: dict[str, Any] | None = None) -> None:
        self.id = id
        # The process that set the variable.
        self.pid = pid
        self.flags = flags
        # The capture of the process that started the session.
        self.path = path
        # The arguments of `RecordingOptions`; None if the settings of each process decide.
        self.options = options

    @property
    def is_component(self) -> bool:
        """Whether the process that started the session is a component."""
        return bool(self.flags & IS_COMPONENT)

    @property
    def is_open(self) -> bool:
        """Whether other processes join the session. If not, they are recorded only if their settings request it."""
        return not self.flags & IS_CLOSED

    @property
    def is_continued(self) -> bool:
        """Whether this process executed another program while it was recorded."""
        return self.pid == os.getpid()

    @property
    def is_quiet(self) -> bool:
        """Whether this process prints nothing at its end: another process started the session, or the user chose so."""
        return not self.is_continued or bool(self.flags & (IS_JOINED | IS_QUIET))

    def text(self) -> str:
        """Return the value of the environment variable."""
        words = [str(self.flags)]
        if self.options is not None:
            # An option that is True is written as its name without a value.
            words += [name if value is True else f"{name}={value}" for name, value in self.options.items() if value]
        return f"{self.id.hex()}:{self.pid}:{','.join(words)}:{self.path}"

    @classmethod
    def read(cls, text: str) -> Session | None:
        """Parse the value of the environment variable. Returns None if it is invalid."""
        parts = text.split(":", 3)
        try:
            identity, pid, path = bytes.fromhex(parts[0]), int(parts[1]), parts[3]
            flags, *words = parts[2].split(",")
            pairs = [word.partition("=") for word in words]
            options = {name: int(value) if equals else True for name, equals, value in pairs}
            session = cls(identity, pid, int(flags), path, options if words else None)
        except (ValueError, IndexError):
            return None
        if len(identity) != 16 or not os.path.isabs(path) or not os.path.isdir(os.path.dirname(path)):
            return None
        return session


def publish(
    path: str, *, is_component: bool = False, is_open: bool = True, is_quiet: bool = False, **options: Any
) -> None:
    """Make processes that this one starts, or programs that it executes, join the session of the capture `path`.

    With `options` they use these instead of their own settings.
    """
    flags = IS_COMPONENT * is_component | IS_CLOSED * (not is_open) | IS_QUIET * is_quiet
    _set(path, flags, options or None)


def publish_joined(joined: Session, *, is_open: bool) -> None:
    """Make processes that this one starts, or programs that it executes, join the session that it has joined."""
    flags = joined.flags & ~IS_CLOSED | IS_CLOSED * (not is_open) | IS_JOINED * (not joined.is_continued)
    _set(joined.path, flags, joined.options)


def _set(path: str, flags: int, options: dict[str, Any] | None) -> None:
    from heaptide import _native

    identity = _native.session_id()
    if identity is not None:
        os.environ[settings.SESSION] = Session(identity, os.getpid(), flags, path, options).text()
