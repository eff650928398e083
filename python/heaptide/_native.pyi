from collections.abc import Callable
from os import PathLike
from types import CodeType
from typing import Any, final

__all__ = [
    "Control",
    "LineWatch",
    "MemoryLooker",
    "MemorySampler",
    "RecordingError",
    "Response",
    "Watched",
    "__version__",
    "active",
    "after_fork_in_parent",
    "before_fork",
    "call_as_main",
    "check_report_options",
    "closing_words",
    "docs_page",
    "heap_bytes",
    "main",
    "name_thread",
    "on_line",
    "on_return",
    "on_start",
    "on_yield",
    "print_exception",
    "render_lines",
    "resident_bytes",
    "session_id",
    "set_aside",
    "set_line_trace",
    "start",
    "start_in_child",
    "stop",
    "unset_line_trace",
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

@final
class Watched:
    def run(self, python: list[str]) -> int: ...

def main(arguments: list[str]) -> int | dict[str, Any] | Watched: ...

@final
class LineWatch:
    def __new__(
        cls,
        codes: list[tuple[CodeType, int, bool]],
        first_line: int,
        backend: str | Callable[[], int],
        from_nothing: bool,
    ) -> LineWatch: ...
    def enter(self) -> None: ...
    def leave(self) -> None: ...
    def rows(self) -> list[tuple[int, int, int, int]]: ...
    def first_and_last(self) -> tuple[int, int]: ...

def set_line_trace(ours: object, present: object | None) -> bool: ...
def unset_line_trace() -> None: ...
def set_aside(bytes: int) -> None: ...
def resident_bytes() -> int | None: ...
def render_lines(
    functions: list[
        tuple[str, str, list[tuple[int, str, tuple[int, int, int] | None, tuple[int, int, int, int] | None]]]
    ],
    *,
    precision: int,
    columns: list[str],
    form: str,
) -> str: ...
def on_line(*arguments: object) -> None: ...
def on_start(*arguments: object) -> None: ...
def on_return(*arguments: object) -> None: ...
def on_yield(*arguments: object) -> None: ...

@final
class Control:
    def __new__(
        cls,
        *,
        name: str,
        command: str,
        directory: str | PathLike[str],
        group: str | PathLike[str],
        prefix: str,
        token: str | None,
        token_header: str | None,
        cors_origin: str | None,
        keep_sessions: int,
        keep_bytes: int,
        requests_per_second: int,
        patience_seconds: float,
        render_command: list[str],
        render_environment: list[tuple[str, str]],
        render_seconds: float,
        leaks: bool,
        start: Callable[[str, bool, int, bool, bool, int], str | None],
        stop: Callable[[], None],
    ) -> Control: ...
    def listen(self, address: str) -> str: ...
    def join_group(self) -> str: ...
    def siblings(self) -> list[int]: ...
    def handle(
        self, method: str, path: str, query: str, headers: list[tuple[str, str]], body: bytes, trusted: bool
    ) -> Response: ...
    def stop(self, seconds: float) -> None: ...
    def forget(self) -> None: ...

@final
class Response:
    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> list[tuple[str, str]]: ...
    def read(self) -> bytes: ...

def docs_page() -> str: ...
def heap_bytes() -> int | None: ...

@final
class MemorySampler:
    def __new__(cls, pid: int, interval: float, backend: str, children: bool) -> MemorySampler: ...
    def stop(self) -> list[tuple[float, int, list[tuple[int, int]]]]: ...

@final
class MemoryLooker:
    def __new__(cls, pid: int, backend: str, children: bool) -> MemoryLooker: ...
    def look(self) -> tuple[float, int, list[tuple[int, int]]] | None: ...
