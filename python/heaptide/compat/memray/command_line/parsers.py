"""The options of memray's commands. `docs/coming-from/memray-code.md` describes what each does here."""

from __future__ import annotations

import argparse

from heaptide.compat.memray.version import __version__

EPILOG = "This is Heaptide under memray's name: heaptide --help lists its own commands."
# Format → the ending of the file.
FORMATS = {"gprof2dot": ".json", "csv": ".csv", "speedscope": ".speedscope.json"}
METHODS = ["auto", "sys.remote_exec", "gdb", "lldb"]


def whole_number(text: str) -> int:
    """Parse a number as memray does, with its message."""
    return int(text)


whole_number.__name__ = "int"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    whole = argparse.ArgumentParser(prog="memray", description="Memory profiler for Python", epilog=EPILOG)
    whole.add_argument("-v", "--verbose", action="count", default=0, help="ignored")
    whole.add_argument("-V", "--version", action="version", version=__version__, help="print the version")
    commands = whole.add_subparsers(dest="command", required=True, help="command")
    for add in (_run, _flamegraph, _table, _live, _tree, _parse, _summary, _stats, _transform, _attach, _detach):
        name = add.__name__[1:]
        add(commands.add_parser(name, help=add.__doc__, description=add.__doc__, epilog=EPILOG))
    return whole


def add_measures(parser: argparse.ArgumentParser, *, has_leaks: bool) -> None:
    """Add the options that choose the blocks of a report."""
    group = parser.add_mutually_exclusive_group()
    if has_leaks:
        group.add_argument(
            "--leaks", action="store_true", dest="show_memory_leaks", help="leaked memory instead of the peak"
        )
    group.add_argument(
        "--temporary-allocation-threshold",
        metavar="N",
        type=whole_number,
        default=-1,
        help="memory freed after at most N other allocations",
    )
    group.add_argument(
        "--temporary-allocations",
        action="store_const",
        dest="temporary_allocation_threshold",
        const=1,
        help="the same as --temporary-allocation-threshold=1",
    )


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", default=None, help="output file")
    parser.add_argument("-f", "--force", action="store_true", help="overwrite an existing file")


def _results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", help="capture file")


def _recording(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--aggregate", action="store_true", help="store sums instead of events")
    parser.add_argument("--native", action="store_true", help="also record native frames")
    parser.add_argument("--follow-fork", action="store_true", help="also record forked children")
    parser.add_argument("--trace-python-allocators", action="store_true", help="also record Python's allocators")
    compression = parser.add_mutually_exclusive_group()
    compression.add_argument("--compress-on-exit", action="store_true", default=True, help="ignored")
    compression.add_argument("--no-compress", action="store_true", help="ignored")


def _run(parser: argparse.ArgumentParser) -> None:
    """Run a program and record its allocations"""
    parser.usage = "%(prog)s [-m module | -c cmd | file] [args]"
    output = parser.add_mutually_exclusive_group()
    output.add_argument("-o", "--output", help="capture file (default: memray-<script>.<pid>.bin)")
    output.add_argument("--live", action="store_true", dest="live_mode", help="show the live heap in this terminal")
    output.add_argument(
        "--live-remote", action="store_true", dest="live_remote_mode", help="wait for a live view to connect"
    )
    parser.add_argument("--live-port", "-p", type=whole_number, default=None, help="port of --live-remote")
    _recording(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")
    parser.add_argument("-f", "--force", action="store_true", help="overwrite an existing file")
    parser.add_argument("--buffered-file-io", action="store_true", help="ignored")
    parser.add_argument("-c", action="store_true", dest="run_as_cmd", help="run code")
    parser.add_argument("-m", action="store_true", dest="run_as_module", help="run a module")
    parser.add_argument("script", metavar="file", help=argparse.SUPPRESS)
    parser.add_argument("script_args", metavar="module", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _flamegraph(parser: argparse.ArgumentParser) -> None:
    """Make a page with a flame graph"""
    _output(parser)
    parser.add_argument("--temporal", action="store_true", help="choose an interval in the page, as always")
    add_measures(parser, has_leaks=True)
    parser.add_argument("--split-threads", action="store_true", help="one tree per thread")
    parser.add_argument("--inverted", action="store_true", help="allocating functions at the root")
    parser.add_argument("--max-memory-records", type=whole_number, default=None, help="ignored")
    parser.add_argument("--no-web", action="store_true", help="ignored: pages load nothing")
    parser.add_argument(
        "--confidential-files",
        choices=["all", "none", "default"],
        default="default",
        help="all: no source lines in the page",
    )
    _results(parser)


def _table(parser: argparse.ArgumentParser) -> None:
    """Make a page with a table of allocation sites"""
    _output(parser)
    add_measures(parser, has_leaks=True)
    parser.add_argument("--split-threads", action="store_true", help="one row per thread")
    parser.add_argument("--no-web", action="store_true", help="ignored: pages load nothing")
    _results(parser)


def _live(parser: argparse.ArgumentParser) -> None:
    """Show the live heap of a program"""
    parser.add_argument("port", type=whole_number, help="port that the program printed")


def _tree(parser: argparse.ArgumentParser) -> None:
    """Show a tree of calls in the terminal"""
    _results(parser)
    parser.add_argument("-b", "--biggest-allocs", type=whole_number, default=200, help="number of locations")
    add_measures(parser, has_leaks=False)


def _parse(parser: argparse.ArgumentParser) -> None:
    """Print every record of a capture"""
    _results(parser)


def _summary(parser: argparse.ArgumentParser) -> None:
    """Print the functions that allocate most"""
    _results(parser)
    parser.add_argument("-s", "--sort-column", type=whole_number, default=1, help="column to sort by, from 1")
    parser.add_argument("-r", "--max-rows", type=whole_number, default=None, help="number of rows")
    add_measures(parser, has_leaks=False)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is an invalid positive int value")
    return int(text)


def _stats(parser: argparse.ArgumentParser) -> None:
    """Print statistics of a capture"""
    _results(parser)
    parser.add_argument("-n", "--num-largest", type=_positive, default=5, help="number of largest locations")
    parser.add_argument("--json", action="store_true", help="write a JSON file")
    _output(parser)


def _transform(parser: argparse.ArgumentParser) -> None:
    """Convert a capture to another format"""
    parser.add_argument("format", help=f"one of {', '.join(FORMATS)}, or a format of heaptide transform")
    _output(parser)
    add_measures(parser, has_leaks=True)
    _results(parser)


def _debugger(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--method", choices=METHODS, default="auto", help="ignored: no debugger is needed")
    parser.add_argument("-v", "--verbose", action="store_true", help="print more")
    parser.add_argument("pid", type=whole_number, help="process ID")


def _attach(parser: argparse.ArgumentParser) -> None:
    """Record a running process"""
    parser.add_argument("-o", "--output", metavar="FILE", help="capture file (default: a live view)")
    parser.add_argument("-f", "--force", action="store_true", help="overwrite an existing file")
    _recording(parser)
    parser.add_argument("--duration", type=whole_number, help="seconds to record")
    _debugger(parser)


def _detach(parser: argparse.ArgumentParser) -> None:
    """Stop recording a process"""
    _debugger(parser)
