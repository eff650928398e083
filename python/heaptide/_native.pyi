from collections.abc import Callable
from os import PathLike
from typing import Any

__all__ = [
    "RecordingError",
    "__version__",
    "active",
    "after_fork_in_parent",
    "before_fork",
    "call_as_main",
    "check_report_options",
    "closing_words",
    "main",
    "name_thread",
    "print_exception",
    "session_id",
    "start",
    "start_in_child",
    "stop",
]

__version__: str

class RecordingError(RuntimeError): ...

def start(
    path: str | PathLike[str],
    *,
    overwrite: bool,
    objects: bool,
    sample_bytes: int,
    aggregate: bool,
    follow_fork: bool,
    interval_ms: int,
    whole_program: bool,
    session: bytes | None,
    command: list[str],
    executable: str,
    working_directory: str,
    host: str,
    python_version: int,
    python_allocator: str,
    stdlib_paths: list[str],
    import_paths: list[str],
    own_paths: list[str],
) -> str | None: ...
def stop() -> tuple[str, bool] | None: ...
def active() -> str | None: ...
def session_id() -> bytes | None: ...
def name_thread(native_id: int, name: str) -> None: ...
def before_fork() -> None: ...
def after_fork_in_parent() -> None: ...
def start_in_child() -> str | None: ...
def call_as_main(function: Callable[..., object], *arguments: object) -> BaseException | None: ...
def print_exception(exception: BaseException) -> None: ...
def closing_words(path: str | PathLike[str]) -> list[str]: ...
def check_report_options(command: str, options: list[str]) -> str | None: ...
def main(arguments: list[str]) -> int | dict[str, Any]: ...
