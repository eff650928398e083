"""``heaptide run``: a program recorded from its first line to the end of its last thread.

The program must not notice: its arguments, its import path, its ``__main__`` module, its exit code and its tracebacks
are what plain Python gives it. Whatever goes wrong with the recording, the program runs.
"""

from __future__ import annotations

import atexit
import builtins
import io
import os
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any, TypedDict

from heaptide import _native, tracker


class Plan(TypedDict):
    """What the command line asks for."""

    kind: str
    target: str
    arguments: list[str]
    output: str | None
    force: bool
    quiet: bool
    objects: bool
    sample_bytes: int
    aggregate: bool
    follow_fork: bool
    interval_ms: int


def run(plan: Plan) -> int:
    """Record the program and run it. Returns the exit code, or ends as the program ends."""
    prepare = {"script": _script, "module": _module, "code": _code, "stdin": _stdin}[plan["kind"]]
    try:
        call = prepare(plan["target"], plan["arguments"])
    except (OSError, SyntaxError, ValueError) as error:
        return _cannot_run(plan, error)
    if not _start_recording(plan):
        return 1
    error = _native.call_as_main(*call)
    del call
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        raise error.with_traceback(None)
    _native.print_exception(error)
    if isinstance(error, KeyboardInterrupt):
        # The interpreter ends by SIGINT after an interrupt that nobody caught; it has been shown already.
        sys.excepthook = lambda *_: None
        raise KeyboardInterrupt
    return 1


def _start_recording(plan: Plan) -> bool:
    """Begin to record; False if the program must not even start, because the output file is somebody else's."""
    path = plan["output"] or f"heaptide-{_label(plan)}.{os.getpid()}.tide"
    path = os.path.abspath(path)
    quiet = plan["quiet"]
    # Registered before anything of the program's, so that it runs after everything of the program's.
    atexit.register(_finish, path, os.getpid(), quiet)
    try:
        tracker.start(
            path,
            overwrite=plan["force"],
            objects=plan["objects"],
            sample_bytes=plan["sample_bytes"],
            aggregate=plan["aggregate"],
            follow_fork=plan["follow_fork"],
            interval_ms=plan["interval_ms"],
            whole_program=True,
            command=_command(plan),
        )
    except FileExistsError as error:
        _say(str(error))
        return False
    except Exception as error:
        message = error.args[-1] if isinstance(error, OSError) else error
        _say(f"{message}; the program runs without being recorded")
    return True


def _finish(path: str, pid: int, quiet: bool) -> None:
    """Complete the capture, after the last of the program's own exit handlers."""
    recorded = tracker.stop() if _native.active() is not None else None
    if recorded is None or quiet or os.getpid() != pid:
        return
    for line in _native.closing_words(path):
        _say(line)


def _label(plan: Plan) -> str:
    if plan["kind"] == "script":
        return os.path.basename(os.path.normpath(plan["target"]))
    if plan["kind"] == "module":
        return plan["target"]
    return {"code": "string", "stdin": "stdin"}[plan["kind"]]


def _command(plan: Plan) -> list[str]:
    first = {"script": [plan["target"]], "module": ["-m", plan["target"]], "code": ["-c"], "stdin": ["-"]}
    return first[plan["kind"]] + plan["arguments"]


def _cannot_run(plan: Plan, error: Exception) -> int:
    """Say why there is no program to run, in the interpreter's words and with its exit code."""
    if isinstance(error, SyntaxError):
        _native.print_exception(error.with_traceback(None))
        return 1
    target = os.path.abspath(plan["target"])
    errno = getattr(error, "errno", None)
    reason = f"[Errno {errno}] {os.strerror(errno)}" if errno else str(error)
    print(f"{sys.executable}: can't open file {target!r}: {reason}", file=sys.stderr)
    return 2


def _script(target: str, arguments: list[str]) -> tuple[Any, ...]:
    sys.argv = [target, *arguments]
    path = os.path.abspath(target)
    if _is_importable(path):
        # A folder or an archive with a __main__ module.
        _set_first_import_path(path)
        return _runpy(), "__main__", False
    _set_first_import_path(os.path.dirname(os.path.realpath(path)))
    if path.endswith(".pyc"):
        import importlib.util
        import marshal

        with io.open_code(path) as file:
            data = file.read()
        if data[:4] != importlib.util.MAGIC_NUMBER:
            raise ValueError("Bad magic number in .pyc file")
        code = marshal.loads(data[16:])
    else:
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    namespace = _new_main()
    namespace["__file__"] = path
    if sys.version_info < (3, 15):
        namespace["__cached__"] = None
    namespace["__loader__"] = SourceFileLoader("__main__", path)
    return exec, code, namespace


def _module(target: str, arguments: list[str]) -> tuple[Any, ...]:
    sys.argv = ["-m", *arguments]
    _set_first_import_path(os.getcwd())
    return _runpy(), target, True


def _code(target: str, arguments: list[str]) -> tuple[Any, ...]:
    sys.argv = ["-c", *arguments]
    _set_first_import_path("")
    return exec, compile(target, "<string>", "exec", dont_inherit=True), _new_main()


def _stdin(_target: str, arguments: list[str]) -> tuple[Any, ...]:
    sys.argv = ["-", *arguments]
    _set_first_import_path("")
    return exec, compile(sys.stdin.read(), "<stdin>", "exec", dont_inherit=True), _new_main()


def _runpy() -> Any:
    """The function by which the interpreter itself runs modules, folders and archives."""
    import runpy

    _new_main()
    return runpy._run_module_as_main  # type: ignore[attr-defined]


def _new_main() -> dict[str, Any]:
    """Put a fresh ``__main__`` module in the place of ours and return its names."""
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    namespace = vars(module)
    namespace["__builtins__"] = builtins
    if sys.version_info < (3, 14):
        namespace["__annotations__"] = {}
    namespace["__loader__"] = builtins.__loader__  # type: ignore[attr-defined]
    return namespace


def _is_importable(path: str) -> bool:
    """Tell whether Python would look for a ``__main__`` module in `path` instead of reading it as a script."""
    for hook in sys.path_hooks:
        try:
            hook(path)
        except ImportError:
            continue
        return True
    return False


def _set_first_import_path(path: str) -> None:
    if not getattr(sys.flags, "safe_path", False) and not sys.flags.isolated:
        sys.path[0] = path


def _say(message: str) -> None:
    try:
        print(f"heaptide: {message}", file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):  # standard error is closed
        pass
