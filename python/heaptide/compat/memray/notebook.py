"""``%load_ext memray``: the cell magic ``%%memray_flamegraph``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

FOLDER = "memray-results"


def load_ipython_extension(shell: Any) -> None:
    """Add the magic to a shell."""

    def memray_flamegraph(line: str, cell: str) -> None:
        _record(shell, line, cell)

    memray_flamegraph.__doc__ = "Record a cell and show its flame graph.\n\n" + _parser().format_help()
    shell.register_magic_function(memray_flamegraph, "cell", "memray_flamegraph")


def _parser() -> argparse.ArgumentParser:
    import argparse

    from heaptide.compat.memray.command_line.parsers import add_measures, whole_number

    parser = argparse.ArgumentParser(prog="%%memray_flamegraph")
    parser.add_argument("--native", action="store_true", help="record native functions")
    parser.add_argument("--follow-fork", action="store_true", help="record forked children")
    parser.add_argument("--trace-python-allocators", action="store_true", help="record Python's allocators")
    add_measures(parser, has_leaks=True)
    parser.add_argument("--temporal", action="store_true", help="keep every event, to choose an interval")
    parser.add_argument("--split-threads", action="store_true", help="show one tree per thread")
    parser.add_argument("--inverted", action="store_true", help="show allocating functions at the root")
    parser.add_argument("--max-memory-records", type=whole_number, default=None, help="ignored")
    return parser


def _record(shell: Any, line: str, cell: str) -> None:
    import shlex
    import tempfile

    from IPython.core.error import UsageError  # type: ignore[import-not-found,unused-ignore]
    from IPython.display import IFrame, display  # type: ignore[import-not-found,unused-ignore]

    from heaptide import command_process

    try:
        options = _parser().parse_args(shlex.split(line))
    except SystemExit:
        return  # the parser has printed the reason
    is_temporary = options.temporary_allocation_threshold >= 0
    if options.temporal and is_temporary:
        raise UsageError("Can't create a temporal flame graph of temporary allocations")
    os.makedirs(FOLDER, exist_ok=True)
    folder = os.path.relpath(tempfile.mkdtemp(dir=FOLDER))
    capture, page = os.path.join(folder, "memray.dump"), os.path.join(folder, "flamegraph.html")
    file_format = "ALL_ALLOCATIONS" if options.temporal or is_temporary else "AGGREGATED_ALLOCATIONS"
    body = "".join(f"    {text}" for text in ["pass\n", *cell.splitlines(keepends=True)])
    shell.run_cell(
        "from heaptide.compat.memray import Tracker, FileFormat\n"
        f"with Tracker({capture!r}, native_traces={options.native}, follow_fork={options.follow_fork},\n"
        f"             trace_python_allocators={options.trace_python_allocators},\n"
        f"             file_format=FileFormat.{file_format}):\n{body}\n"
    )
    words = []
    if options.show_memory_leaks:
        words.append("--leaks")
    if is_temporary:
        words += ["--temporary-allocation-threshold", str(options.temporary_allocation_threshold)]
    words += ["--split-threads"] * options.split_threads + ["--inverted"] * options.inverted
    done = command_process.run("flamegraph", *words, "-o", page, capture)
    if done.returncode != 0:
        raise UsageError(done.stderr.removeprefix("heaptide: ") or "the page could not be rendered")
    os.unlink(capture)
    print(f"Results saved to {page}")
    display(IFrame(page, width="100%", height="600"))
