"""``heaptide run``: records a program from its first line to the end of its last thread.

The program must not notice: arguments, import path, ``__main__`` module, exit code and tracebacks are the same as with
plain Python. If the recording fails, the program still runs.
"""

from __future__ import annotations

import atexit
import builtins
import io
import os
import sys
from _weakref import ref  # importing `weakref` would cost the program time
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from types import ModuleType

from heaptide import _native
from heaptide.containment import contained, untraced
from heaptide.messages import print_message
from heaptide.recording import program, tracker

# Not imported from `typing`: an import here costs the program time and changes its `sys.modules`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, TypedDict

    from heaptide.commands import run_summary

    class Target(TypedDict):
        """A program and its arguments."""

        kind: str
        target: str
        arguments: list[str]

    class Plan(Target):
        """The arguments of the command."""

        output: str | None
        force: bool
        quiet: bool
        report: str | None
        open: bool
        python: str | None
        options: dict[str, Any]


# The exit code if the capture cannot be written; the program is then not started. As in crates/cli/src/exit.rs.
CANNOT_RECORD = 125
# The variables of the setting `act_at`.
_ACT_AT = ("HEAPTIDE_ACT_AT", "HEAPTIDE__PROFILING__ACT_AT")
# The variables that limit the captures of children.
_RETENTION = ("HEAPTIDE_KEEP_CHILDREN", "HEAPTIDE_KEEP_AGE", "HEAPTIDE_KEEP_TOTAL")


def run(plan: Plan) -> int:
    """Record the program and run it. Returns the exit code, or exits as the program does."""
    # An import costs the program time, so the functions in this file import only the modules that this run needs.
    if plan["python"] is not None or "VIRTUAL_ENV" in os.environ:
        from heaptide.commands import other_python

        python = other_python.wanted(plan["python"])
    else:
        python = ""
    if python:
        if plan["python"] is None and not plan["quiet"]:
            other_python.announce(python)
        try:
            other_python.start(python)
        except OSError as error:
            print_message(f"cannot run {python} ({error.strerror}): name an interpreter with --python")
            return CANNOT_RECORD
    return run_program(plan, lambda: _start_recording(plan))


# The exit handler that ends this process's recording, if there is one.
ending_of_process: list[_Ending] = []


def run_program(plan: Target, begin: Callable[[], int]) -> int:
    """Call `begin`, then run the program as Python would.

    If `begin` returns an exit code other than 0, return that code and do not run the program.
    """
    prepare = {"script": _script, "module": _module, "code": _code, "stdin": _stdin}[plan["kind"]]
    try:
        call = prepare(plan["target"], plan["arguments"])
    except (OSError, SyntaxError, ValueError, EOFError, TypeError) as reason:
        if plan["kind"] == "stdin":
            _native.print_exception(reason.with_traceback(None))
            return 1
        _leave_to_python(plan)
    program.set_original_arguments(_first_words(plan) + plan["arguments"])
    refusal = begin()
    if refusal:
        return refusal
    error = _native.call_as_main(*call)
    _native.unrecorded(_restore_endings)
    if plan["kind"] in ("script", "stdin") and call[0] is exec:
        # As with plain Python, these names no longer exist when exit handlers run.
        call[2].pop("__file__", None)
        call[2].pop("__cached__", None)
    del call
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        if plan["kind"] == "module" and "No module named" in str(error.code):
            _native.unrecorded(_explain_missing_module)
        raise error.with_traceback(None)
    _native.print_exception(error)
    if isinstance(error, ModuleNotFoundError):
        _native.unrecorded(_explain_missing_module)
    if isinstance(error, KeyboardInterrupt):
        # The interpreter exits by SIGINT after an uncaught interrupt. The traceback has already been printed.
        sys.excepthook = lambda *_: None
        raise KeyboardInterrupt
    return 1


@untraced
def _explain_missing_module() -> None:
    """Print a hint if the module may be missing because the program ran in Heaptide's own environment."""
    from heaptide.commands import other_python

    sentence = other_python.advice_if_project_is_missing()
    if sentence:
        print_message(sentence)


@untraced
def _restore_endings() -> None:
    """Register the endings again if the program removed all exit handlers, and let Python instrument these frames.

    A trace function that the program set has instrumented only the frames that it could see. Python 3.15 crashes if an
    exception then passes through another frame, such as the SystemExit of this command.
    """
    for ending in ending_of_process:
        ending.register_again()
    if sys.version_info >= (3, 15):
        sys.monitoring.restart_events()


def _start_recording(plan: Plan) -> int:
    """Start a recording. Returns 0, or an exit code if the capture cannot be written: the program must not start."""
    output = plan["output"] or f"heaptide-{_label(plan)}.{os.getpid()}.tide"
    try:
        ending = _Ending(os.path.abspath(output), plan)
        # Registered before the program's exit handlers, so that it runs after them.
        ending.register()
        ending_of_process.append(ending)
        warning = tracker.start(
            ending.path,
            tracker.RecordingOptions(**plan["options"]),
            overwrite=plan["force"],
            whole_program=True,
            command=_command(plan),
        )
        if warning is not None:
            print_message(f"{warning}; Python stacks are left out of the capture")
        if not plan["quiet"]:
            is_followed = plan["options"]["follow_fork"]
            rest = "" if is_followed else ", which is not recorded: record it with --follow-fork"
            _native.announce_exec(f"recorded into {output}, until the program replaced itself with", rest)
        if any(name in os.environ for name in _ACT_AT):
            _native.unrecorded(contained(_watch_pressure))
        if plan["options"]["follow_fork"]:
            from heaptide.recording import session

            session.publish(ending.path, is_quiet=plan["quiet"], **plan["options"])
            if any(name in os.environ for name in _RETENTION):
                _native.unrecorded(contained(_limit_captures), ending.path)
        elif ending.forks is not None:
            # Count before the fork. A Python function after the fork would give Heaptide's own thread time to start
            # again. Python would then count that thread, and warn that the process has several threads.
            os.register_at_fork(before=untraced(ending.forks.count))
    except FileExistsError:
        print_message(f"{output} exists already: choose another name with -o, or overwrite it with --force")
        return CANNOT_RECORD
    except OSError as error:
        message = str(error.args[-1])
        cause = message if output in message else f"could not create {output}: {message}"
        print_message(f"{cause}; the program was not started: choose another file with -o")
        return CANNOT_RECORD
    except Exception as error:
        print_message(f"{error}; the program runs without being recorded")
    return 0


def _limit_captures(path: str) -> None:
    """Delete captures of children as configured. Without a setting, an explicit recording keeps all of them."""
    from heaptide import settings
    from heaptide.recording import retention

    retention.begin(path, settings.load())


def _watch_pressure() -> None:
    """Watch memory pressure as configured. The bootstrap does not apply settings to commands of Heaptide."""
    from heaptide import pressure, settings

    chosen = settings.load()
    if chosen.act_at:
        pressure.watch(chosen.act_at, command=chosen.act_command)


class _Ending:
    """Stops the recording and prints the summary, after the program's last exit handler."""

    def __init__(self, path: str, plan: Plan) -> None:
        self.path = path
        self.plan = plan
        self.pid = os.getpid()
        # Absolute paths, because the program may change its working directory.
        self.folder = os.getcwd()
        page = plan["report"] or (os.path.splitext(path)[0] + ".html" if plan["open"] else "")
        self.page = page and os.path.abspath(page)
        self.is_finished = False
        self.forks: run_summary.ForkCounter | None = None
        if not plan["quiet"] or self.page:
            # Imported now, because the program may have blocked imports when it exits.
            from heaptide.commands import run_summary

            self.lines_of_summary = run_summary.lines
            self.forks = run_summary.ForkCounter()

    def register(self) -> None:
        """Register `finish` as an exit handler."""
        handler = untraced(self.finish)
        atexit.register(handler)
        self.registered = ref(handler)  # only `atexit` owns the handler

    def register_again(self) -> None:
        """Register `finish` again if the program removed all exit handlers."""
        if not self.is_finished and self.registered() is None:
            self.register()

    def finish(self) -> None:
        """Complete the capture, and print the summary."""
        self.is_finished = True
        is_running = _native.active() is not None
        # A recording that failed is also stopped: Heaptide's own thread may be about to print the reason.
        recorded = tracker.stop() if is_running or os.getpid() == self.pid else None
        if recorded is None or not is_running or os.getpid() != self.pid:
            return
        if self.forks is None:
            return
        is_quiet = self.plan["quiet"]
        is_incomplete = recorded[1]  # the reason has been printed
        lines = self.lines_of_summary(
            self.path,
            self.folder,
            is_quiet=is_quiet,
            page=self.page,
            is_opened=self.plan["open"],
            is_forced=self.plan["force"],
        )
        if not lines and not is_quiet and not is_incomplete:
            lines = [f"the capture {self.path} was removed during the run"]
        # With --follow-fork the lines name the captures of the children. The processes of `multiprocessing` are counted
        # whether they are recorded or not.
        is_followed = self.plan["options"]["follow_fork"]
        not_recorded = "" if is_quiet or is_followed else self.forks.sentence()
        for line in [*lines, *[not_recorded] * bool(not_recorded)]:
            print_message(line)


def _label(plan: Plan) -> str:
    if plan["kind"] == "script":
        return os.path.basename(os.path.normpath(plan["target"]))
    if plan["kind"] == "module":
        return plan["target"]
    return {"code": "string", "stdin": "stdin"}[plan["kind"]]


def _command(plan: Plan) -> list[str]:
    first = {"script": [plan["target"]], "module": ["-m", plan["target"]], "code": ["-c"], "stdin": ["-"]}
    return first[plan["kind"]] + plan["arguments"]


def _leave_to_python(plan: Target) -> NoReturn:
    """Let plain Python report, with its own message and exit code, why the program cannot start."""
    import subprocess

    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    os.execv(sys.executable, [sys.executable, *flags, *_first_words(plan), *plan["arguments"]])


def _first_words(plan: Target) -> list[str]:
    """Return the words of Python's command line that name the program."""
    option = {"module": ["-m"], "code": ["-c"]}.get(plan["kind"], [])
    return [*option, "-" if plan["kind"] == "stdin" else plan["target"]]


def _script(target: str, arguments: list[str]) -> tuple[Any, ...]:
    sys.argv = [target, *arguments]
    path = _absolute(target)
    if _is_importable(path):
        # A folder or an archive with a __main__ module is first on the import path, whatever the flags.
        if _may_set_first_import_path():
            sys.path[0] = path
        else:
            sys.path.insert(0, path)
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
    _name_file(namespace, path)
    loader = SourcelessFileLoader if path.endswith(".pyc") else SourceFileLoader
    namespace["__loader__"] = loader("__main__", path)
    return exec, code, namespace


def _module(target: str, arguments: list[str]) -> tuple[Any, ...]:
    sys.argv = ["-m", *arguments]
    _set_first_import_path(os.getcwd())
    return _runpy(), target, True


def _code(target: str, arguments: list[str]) -> tuple[Any, ...]:
    sys.argv = ["-c", *arguments]
    _set_first_import_path("")
    code = compile(target, "<string>", "exec", dont_inherit=True)
    if sys.version_info >= (3, 13):
        import linecache

        try:  # so that tracebacks can show the text
            key = code if hasattr(linecache, "_interactive_cache") else "<string>"
            linecache._register_code(key, target, "<string>")  # type: ignore[attr-defined]
        except Exception:
            pass
    return exec, code, _new_main()


def _stdin(_target: str, arguments: list[str]) -> tuple[Any, ...]:
    sys.argv = ["-", *arguments]
    _set_first_import_path("")
    code = compile(sys.stdin.read(), "<stdin>", "exec", dont_inherit=True)
    namespace = _new_main()
    _name_file(namespace, "<stdin>")
    return exec, code, namespace


def _runpy() -> Any:
    """Return the function with which the interpreter runs modules, folders and archives."""
    import runpy

    _new_main()
    return runpy._run_module_as_main  # type: ignore[attr-defined]


def _new_main() -> dict[str, Any]:
    """Replace Heaptide's ``__main__`` module with a new one and return its namespace."""
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    namespace = vars(module)
    namespace["__builtins__"] = builtins
    if sys.version_info < (3, 14):
        namespace["__annotations__"] = {}
    namespace["__loader__"] = builtins.__loader__
    return namespace


def _is_importable(path: str) -> bool:
    """Return whether Python would import ``__main__`` from `path` instead of reading it as a script."""
    for hook in sys.path_hooks:
        try:
            hook(path)
        except ImportError:
            continue
        return True
    return False


def _absolute(path: str) -> str:
    """Join the path to the current directory without normalising it, as the interpreter does."""
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


def _name_file(namespace: dict[str, Any], path: str) -> None:
    namespace["__file__"] = path
    if sys.version_info < (3, 15):
        namespace["__cached__"] = None


def _may_set_first_import_path() -> bool:
    return not getattr(sys.flags, "safe_path", False) and not sys.flags.isolated


def _set_first_import_path(path: str) -> None:
    if _may_set_first_import_path():
        sys.path[0] = path
