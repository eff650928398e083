"""``memray attach``, ``detach`` and ``live``: commands on running processes."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from heaptide.__main__ import main as heaptide
from heaptide.compat.memray.errors import MemrayCommandError

# The beginning of the line that ``heaptide attach`` prints when the recording has started.
STARTED = "heaptide: recording process"


def attach(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Attach to a process: into a file, or with a live view."""
    if options.aggregate and not options.output:
        parser.error("Can't use aggregated mode without an output file.")
    _check_process(options.pid)
    words = ["attach", *["--native"] * options.native]
    words += ["--trace-python-allocators"] * options.trace_python_allocators
    words += ["--aggregate"] * options.aggregate
    if not options.output:
        return heaptide([*words, "--live", str(options.pid)])
    words += ["--follow-fork"] * options.follow_fork
    words += [*["-f"] * options.force, "-o", os.path.abspath(options.output), str(options.pid)]
    if options.duration:
        return _attach_for(options.duration, words)
    return heaptide([*words, *_quiet(options)])


def _check_process(pid: int) -> None:
    if not os.path.exists(f"/proc/{pid}"):
        text = "Failed to attach a debugger to the process.\nThe given process ID does not exist."
        raise MemrayCommandError(text, exit_code=1)


def _attach_for(seconds: int, words: list[str]) -> int:
    """Record for some seconds. Like memray, return when the recording has started; another process stops it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "heaptide", *words, "--duration", str(seconds)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    messages = []
    for line in process.stderr:
        if line.startswith(STARTED):
            process.returncode = 0  # the process continues without this one
            return 0
        messages.append(line)
    process.wait()
    text = "".join(messages).strip().removeprefix("heaptide: ")
    raise MemrayCommandError(text or "the process could not be recorded", exit_code=1)


def detach(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Stop the recording of a process."""
    _check_process(options.pid)
    return heaptide(["detach", str(options.pid), *_quiet(options)])


def _quiet(options: argparse.Namespace) -> list[str]:
    return [] if options.verbose else ["-q"]


def live(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Show the live heap of the program at a port. Waits for the program, as memray does."""
    port = options.port
    if not 0 < port < 65536:
        raise MemrayCommandError(f"Invalid port: {port}", exit_code=1)
    from heaptide.compat.memray.live_sockets import connect, greeting_of, open_when_it_exists

    try:
        with connect(port) as connection:
            greeting = greeting_of(connection)
            os.close(open_when_it_exists(greeting["path"], connection))
            return heaptide(["live", "--pid", str(greeting["pid"])])
    except KeyboardInterrupt:
        return 0
    except OSError:
        return heaptide(["live", str(port)])  # a port of `heaptide run --live-remote`
