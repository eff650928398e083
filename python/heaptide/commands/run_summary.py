"""The summary of ``heaptide run`` after the program: the peak, the lines responsible, the page, and the next command.

Another process computes it, so that no failure can change the exit code of the program: a capture may be large, and
the program may have little memory left. Functions that run in the program's process import nothing, because the
program may have blocked imports when it exits.
"""

from __future__ import annotations

import os
import sys

from heaptide import command_process


class ForkCounter:
    """Counts the children that the program forks. They are not recorded, and the summary prints this number."""

    # CPython caches the integers up to this one, so counting allocates nothing.
    LIMIT = 256

    def __init__(self) -> None:
        self.n_forks = 0

    def count(self) -> None:
        """Count the fork that is about to happen."""
        if self.n_forks < self.LIMIT:
            self.n_forks += 1

    def sentence(self) -> str:
        """Return the line of the summary; empty if there were no children."""
        n_children = max(self.n_forks, _started_by_multiprocessing())
        if n_children == 0:
            return ""
        if n_children == 1:
            return "one child process was not recorded: record it with --follow-fork"
        number = f"{n_children} or more" if n_children >= self.LIMIT else str(n_children)
        return f"{number} child processes were not recorded: record them with --follow-fork"


def _started_by_multiprocessing() -> int:
    """Return the number of processes that `multiprocessing` started, including those that its fork server forked."""
    module = sys.modules.get("multiprocessing.process")
    text = repr(getattr(module, "_process_counter", None))  # such as count(3): the number of the next process
    number = text[len("count(") : -1]
    return int(number) - 1 if text.startswith("count(") and number.isdecimal() else 0


def lines(path: str, folder: str, *, is_quiet: bool, page: str, is_opened: bool, is_forced: bool) -> list[str]:
    """Render the page, open it, and return the lines of the summary; an empty list if the capture cannot be read."""
    flags = [name for name, is_set in (("quiet", is_quiet), ("open", is_opened), ("force", is_forced)) if is_set]
    try:
        output = _output_of([*command_process.main_command(__name__), path, folder, page, *flags])
    except OSError:  # a sandbox may forbid new processes
        output = None
    if output is None:
        return [f"recorded into {path}", f"next: heaptide flamegraph {path}"]
    return [line.removeprefix("heaptide: ") for line in output.splitlines() if line]


def _output_of(command: list[str]) -> str | None:
    """Run a command without importing anything. Returns its output, or None if it failed."""
    reader, writer = os.pipe()
    try:
        redirected = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writer, 1),
            (os.POSIX_SPAWN_DUP2, writer, 2),
        ]
        environment = command_process.environment()
        pid = os.posix_spawn(command[0], command, environment, file_actions=redirected, setsigmask=())
        os.close(writer)
        writer = -1
        parts = []
        while part := os.read(reader, 1 << 16):
            parts.append(part)
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:  # the program ignores SIGCHLD
            pass
    except KeyboardInterrupt:  # the user does not want to wait for the summary
        return ""
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)
    text, mark, _ = b"".join(parts).decode("utf-8", "replace").rpartition(_COMPLETE)
    return text if mark else None


# The last line that the other process prints. If it is missing, the process was killed.
_COMPLETE = "\nheaptide: complete\n"


def main() -> None:
    """Print the summary, in the process that :func:`lines` starts."""
    from heaptide import _native

    path, folder, page, *flags = sys.argv[1:]
    summary = [] if "quiet" in flags else _native.run_summary(path, folder)
    for line in summary:
        os.write(1, f"{line}\n".encode("utf-8", "surrogateescape"))
    if page and os.path.exists(path):
        from heaptide.recording.capture_files import children_of

        words = ["flamegraph", *["-f"] * ("force" in flags), "-o", page, "--", path, *children_of(path)]
        is_rendered = _native.main(words) == 0
        if is_rendered and "open" in flags:
            from heaptide.commands.browser import open_page

            open_page(page)
    os.write(1, _COMPLETE.encode())
    os._exit(0)
