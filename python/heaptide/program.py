"""What the interpreter says of the program that is recorded; it stands in the capture's header."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class Program(TypedDict):
        """Facts for the header of a capture."""

        command: list[str]
        executable: str
        working_directory: str
        host: str
        python_version: int
        python_allocator: str
        stdlib_paths: list[str]
        import_paths: list[str]
        own_paths: list[str]


def describe(command: list[str] | None = None, first_import_path: str | None = None) -> Program:
    """Describe this process.

    Where the program has not begun yet, `command` stands in for `sys.argv`, and `first_import_path` for what Python is
    still to put on its import path.
    """
    paths = sys.path if first_import_path is None else [first_import_path, *sys.path]
    package = os.path.dirname(os.path.abspath(__file__))
    return {
        "command": [str(word) for word in (sys.argv if command is None else command)],
        "executable": sys.executable or "",
        "working_directory": _working_directory(),
        "host": os.uname().nodename,
        "python_version": sys.hexversion,
        "python_allocator": _allocator(),
        "stdlib_paths": _stdlib_paths(),
        "import_paths": [_absolute(path) for path in paths if isinstance(path, str)],
        "own_paths": [package],
    }


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path or os.curdir)
    except OSError:  # the current folder was deleted
        return path


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # the folder was deleted
        return ""


def _stdlib_paths() -> list[str]:
    """Folders of the standard library, told by modules that are loaded anyway: `sysconfig` would take milliseconds."""
    folder = os.path.dirname(os.path.abspath(os.__file__))
    return [folder, os.path.join(folder, "lib-dynload")]


def _allocator() -> str:
    """Tell which allocator Python uses for objects, as far as the environment decides it."""
    if sys.flags.dev_mode:
        return "pymalloc_debug"
    chosen = "" if sys.flags.ignore_environment else os.environ.get("PYTHONMALLOC", "")
    return (
        chosen
        if chosen and chosen not in ("default", "debug")
        else "pymalloc" + ("_debug" if chosen == "debug" else "")
    )
