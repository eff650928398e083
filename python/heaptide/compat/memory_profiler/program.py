"""``python -m memory_profiler``: runs a program with ``profile`` as a builtin, and reports when it exits."""

from __future__ import annotations

import argparse
import atexit
import builtins
import os
import sys
from typing import Any, TextIO

from heaptide.compat.script_search import find_script
from heaptide.containment import untraced
from heaptide.messages import print_message, reason

from .line_profiler import LineProfiler, show_results
from .readings import choose_backend
from .time_stamper import TimeStamper

_BACKENDS = ["tracemalloc", "psutil", "psutil_pss", "psutil_uss", "posix"]


def exec_with_profiler(filename: str, profiler: Any, backend: str, passed_args: list[str] | None = None) -> None:
    """Run a script with `profiler` as the builtin ``profile``."""
    _prepare(profiler, backend, [filename, *(passed_args or [])])
    sys.path.insert(0, os.path.dirname(filename))
    with open(filename, "rb") as file:
        code = compile(file.read(), filename, "exec", dont_inherit=True)
    names = {"__name__": "__main__", "__file__": filename, "__builtins__": builtins, "profile": profiler}
    exec(code, names)


def run_module_with_profiler(module: str, profiler: Any, backend: str, passed_args: list[str] | None = None) -> None:
    """Run a module with `profiler` as the builtin ``profile``."""
    import runpy

    _prepare(profiler, backend, [module, *(passed_args or [])])
    runpy.run_module(module, init_globals={"profile": profiler}, run_name="__main__", alter_sys=False)


def _prepare(profiler: Any, backend: str, words: list[str]) -> None:
    builtins.profile = profiler  # type: ignore[attr-defined]
    if choose_backend(backend) == "tracemalloc":
        import tracemalloc

        tracemalloc.start()
    sys.argv = words


def main() -> int:
    """Run the command line. Returns the exit code, or exits as the program does."""
    from . import __version__

    options = _parser(__version__).parse_args()
    if not options.program:
        print("A program to run must be provided. Use -h for help")
        return 1
    from heaptide.commands.run import run_program

    target, *arguments = options.program
    if target == "-m" and arguments:
        target, *arguments = arguments
        is_script = False
    else:
        is_script = target.endswith(".py")
    output = options.out_filename and os.path.abspath(options.out_filename)
    profiler: TimeStamper | LineProfiler
    if options.timestamp:
        profiler = TimeStamper(options.backend, include_children=options.include_children)
    else:
        profiler = LineProfiler(
            max_mem=options.max_mem, backend=options.backend, include_children=options.include_children
        )

    def begin() -> int:
        # Registered before the program's exit handlers, so that it runs after them.
        atexit.register(_report, profiler, output, options.precision, os.getpid())
        builtins.profile = profiler  # type: ignore[attr-defined]
        return 0

    found = find_script(target) if is_script else target
    return run_program({"kind": "script" if is_script else "module", "target": found, "arguments": arguments}, begin)


@untraced
def _report(profiler: TimeStamper | LineProfiler, output: str | None, precision: int, pid: int) -> None:
    if os.getpid() != pid:
        return
    try:
        if output is not None:
            with open(output, "a", encoding="utf-8", errors="backslashreplace") as stream:
                _show(profiler, stream, precision)
        elif sys.stdout is None:  # closed before Python started
            raise ValueError("it is closed")
        else:
            _show(profiler, sys.stdout, precision)
            sys.stdout.flush()
    except (OSError, ValueError) as error:  # ValueError: the program has closed standard output
        target = output or "standard output"
        remedy = "check the folder and the space left" if output else "name a file with -o"
        # Without the file name, which the message already contains.
        cause = (isinstance(error, OSError) and error.strerror) or reason(error)
        print_message(f"the report could not be written to {target} ({cause}): {remedy}")


def _show(profiler: TimeStamper | LineProfiler, stream: TextIO, precision: int) -> None:
    if isinstance(profiler, TimeStamper):
        profiler.show_results(stream)
    else:
        show_results(profiler, stream, precision)


def _parser(version: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("memory_profiler.py", "python -m memory_profiler script_file.py")
    parser.add_argument("--version", action="version", version=version)
    parser.add_argument(
        "--pdb-mmem", dest="max_mem", metavar="MAXMEM", type=float, help="start the debugger at this size in MiB"
    )
    parser.add_argument("--precision", type=int, default=3, help="decimals of the sizes [default: 3]")
    parser.add_argument("-o", dest="out_filename", help="append the report to this file")
    parser.add_argument("--timestamp", action="store_true", help="report when functions were called, not their lines")
    parser.add_argument("--include-children", action="store_true", help="add the memory of child processes")
    parser.add_argument("--backend", choices=_BACKENDS, default="psutil", help="what is measured [default: psutil]")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="script or module, and its arguments")
    return parser
