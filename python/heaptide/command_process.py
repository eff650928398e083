"""Runs the heaptide command in another process, so that a report does not add to the memory of the program.

The process has low priority and, on request, bounded memory. It is isolated from the program: it imports nothing from
the program's folders and inherits no variable that is meant for the program, so Heaptide never records it.

The last line on standard error states the exit code, because a program that waits for all of its children may collect
the exit status first.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess

_NICENESS = 10
_PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_CODE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from {} import main; main()"
# Begins the line with the exit code. `crates/control/src/render.rs` also parses this line.
_EXIT_CODE_PREFIX = "\nheaptide-ended: "
# Variables that begin with these are meant for the program, or describe its terminal.
_UNWANTED = ("HEAPTIDE", "MEMRAY", "PYTHON", "LD_PRELOAD", "COLUMNS", "LINES")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run ``heaptide WORDS`` and return its exit code, output and messages."""
    import subprocess

    done = subprocess.run(
        [*command(), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env=environment(),
    )
    messages, has_code, code = done.stderr.rpartition(_EXIT_CODE_PREFIX)
    # Without the line, the process was killed. `returncode` may still be 0, if the program collected the real status.
    done.returncode = int(code) if has_code else done.returncode or 1
    done.stderr = (messages if has_code else code).strip()
    return done


def command(memory_limit: int = 0) -> list[str]:
    """Return the command line to which callers append a heaptide command. A memory limit of 0 means no limit."""
    return [*main_command(__name__), str(memory_limit)]


def main_command(module: str) -> list[str]:
    """Return the command line that calls ``main`` of a module of Heaptide. Callers append its arguments."""
    python = sys.executable or ""
    if not os.path.basename(python).startswith("python"):
        # The interpreter is embedded: `sys.executable` is the program that embeds it, such as a web server.
        python = os.path.join(sys.prefix, "bin", "python3")
    return [python, "-I", "-S", "-c", _CODE.format(module), _PACKAGES]


def environment() -> dict[str, str]:
    """Return the program's environment without the variables that are meant for the program alone."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_UNWANTED)}


def main() -> None:
    """Run the command in the process that :func:`command` starts, and print its exit code as the last line."""
    from heaptide import _native

    memory_limit, *words = sys.argv[1:]
    _yield_to_program(int(memory_limit))
    outcome = _native.main(words)
    code = outcome if isinstance(outcome, int) else 2
    sys.stdout.flush()
    os.write(2, f"{_EXIT_CODE_PREFIX}{code}\n".encode())
    os._exit(code)


def _yield_to_program(memory_limit: int) -> None:
    import resource

    try:
        os.nice(_NICENESS)
        if memory_limit:
            soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            bounds = [bound for bound in (memory_limit, soft, hard) if bound != resource.RLIM_INFINITY]
            resource.setrlimit(resource.RLIMIT_AS, (min(bounds), hard))
    except (OSError, ValueError):  # a sandbox may forbid it; the report is rendered anyway
        pass
