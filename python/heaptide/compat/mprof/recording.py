"""``mprof run`` and ``mprof attach``: translated into ``heaptide record``, which samples out-of-process."""

from __future__ import annotations

import argparse
import logging
import os
import sys

from heaptide.compat.script_search import find_script

# With this variable, the builtin `profile` in the program writes the calls of decorated functions.
from heaptide.lines.builtin import VARIABLE as _BUILTIN_PROFILE

_BACKENDS = ["psutil", "psutil_pss", "psutil_uss", "posix", "tracemalloc"]
# The shortest interval of `heaptide record`.
_MIN_INTERVAL = 0.001


def attach_action() -> None:
    """Record a running process: the same as ``run --attach``."""
    sys.argv.insert(1, "--attach")
    run_action()


def run_action() -> None:
    """Run a program and record its memory over time. Exits with the exit code of the program."""
    options = _parser().parse_args()
    program: list[str] = options.program
    if not program:
        print("A program to run must be provided. Use -h for help")
        sys.exit(1)
    name = os.path.basename(sys.argv[0])
    print(f"{'mprof.py' if name == '__main__.py' else name}: Sampling memory every {options.interval}s")
    if options.backend == "tracemalloc":
        sys.exit("mprof: tracemalloc measures only the process that uses it: choose another --backend")
    words = ["record", "-q", "--dat", "--backend", options.backend]
    words += ["--interval", repr(max(options.interval, _MIN_INTERVAL))]
    words += ["--include-children"] if options.include_children else []
    words += ["--multiprocess"] if options.multiprocess else []
    words += ["--timeout", str(options.timeout)] if options.timeout and options.timeout > 0 else []
    words += ["--fresh", "--output", options.filename] if options.filename else []
    if options.attach_existing:
        print(f"attaching to existing process, using hint: {program[0]}")
        words += ["--attach", program[0]]
    else:
        print("running new process")
        words += ["--nopython", "--", *_words_of_program(program, options)]
    sys.stdout.flush()
    if options.filename:
        _make_folder(os.path.dirname(options.filename))
    code = _record(words)
    if code and options.exit_code:
        logging.basicConfig()
        logging.getLogger("mprof").error("Program resulted with a non-zero exit code: %s", code)
    if code:
        sys.exit(code)


def _make_folder(folder: str) -> None:
    """Create the folder for the samples. COMPSs uses one path for all nodes, and this node may lack the folder."""
    try:
        os.makedirs(folder or os.curdir, exist_ok=True)
    except OSError:
        pass  # `heaptide record` reports it


def _record(words: list[str]) -> int:
    from heaptide import _native

    code = _native.main(words)
    return code if isinstance(code, int) else 1


def _words_of_program(program: list[str], options: argparse.Namespace) -> list[str]:
    """Return the command line of the program. As in mprof, a name that ends in .py is run by Python."""
    is_script = program[0].endswith(".py") and not options.nopython
    is_python = options.python or is_script
    if is_script and options.multiprocess:
        is_python = False
    if not is_python and not is_script:
        return program
    interpreter: list[str] = []
    # The same test as mprof's. Both therefore also take `python_job.py` for an interpreter, and cannot start it;
    # `./python_job.py` runs.
    if program[0].startswith("python"):
        interpreter, program = program[:1], program[1:]
    else:
        interpreter = [sys.executable, *_interpreter_options()]
    if not is_python:
        return [*interpreter, *program]
    print("running as a Python program...")
    os.environ[_BUILTIN_PROFILE] = "children" if options.include_children else "alone"
    if not program or program[0].startswith("-"):
        return [*interpreter, *program]
    if program[0].endswith(".py"):
        return [*interpreter, find_script(program[0]), *program[1:]]
    return [*interpreter, "-m", *program]


def _interpreter_options() -> list[str]:
    from heaptide.recording.program import interpreter_options

    return interpreter_options()


def get_cmd_line(args: list[str]) -> str:
    """Return words as one line, with quotes around those that contain blanks."""
    return " ".join(f"'{word}'" if " " in word or "\t" in word else word for word in args)


def find_first_process(name: str) -> object:
    """Return the first process whose name contains a text, as a ``psutil.Process``; None without a match."""
    import psutil  # type: ignore[import-untyped,unused-ignore]

    return next((process for process in psutil.process_iter() if name in process.name()), None)


def _parser() -> argparse.ArgumentParser:
    from . import VERSION

    parser = argparse.ArgumentParser(usage="mprof run [options] program", formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--version", action="version", version=VERSION)
    parser.add_argument("--python", action="store_true", help="run the program with Python, and record function calls")
    parser.add_argument("--nopython", action="store_true", help="run the program itself, also if its name ends in .py")
    parser.add_argument("--interval", "-T", default=0.1, type=float, help="seconds between samples [default: 0.1]")
    parser.add_argument("--include-children", "-C", action="store_true", help="add up all processes of the program")
    parser.add_argument(
        "--multiprocess", "-M", action="store_true", help="record each child process (no function calls)"
    )
    parser.add_argument("--exit-code", "-E", action="store_true", help="also report a non-zero exit code in the log")
    parser.add_argument(
        "--attach", "-a", dest="attach_existing", action="store_true", help="record a process, by process ID or name"
    )
    parser.add_argument(
        "--timeout",
        "-t",
        type=int,
        help="seconds after which recording ends [default: none; with --attach one hour]",
    )
    parser.add_argument(
        "--output", "-o", dest="filename", help="file for the samples [default: mprofile_<YYYYMMDDhhmmss>.dat]"
    )
    parser.add_argument("--backend", choices=_BACKENDS, default="psutil", help="what is measured [default: psutil]")
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        help="EXECUTABLE ARGS...\nSCRIPT.py ARGS...\n--python PYTHON SCRIPT.py ARGS...\n--python MODULE ARGS...",
    )
    return parser
