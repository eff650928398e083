"""The command ``memray``: its options, file names, messages and exit codes, carried out by Heaptide's commands."""

from __future__ import annotations

import argparse
import sys

from heaptide.compat.memray.command_line import attaching, parsers, reports, running
from heaptide.compat.memray.errors import MemrayCommandError

COMMANDS = {
    "run": running.run,
    "flamegraph": reports.flamegraph,
    "table": reports.table,
    "live": attaching.live,
    "tree": reports.tree,
    "parse": reports.parse,
    "summary": reports.summary,
    "stats": reports.stats,
    "transform": reports.transform,
    "attach": attaching.attach,
    "detach": attaching.detach,
}


def get_argument_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    return parsers.parser()


def main(args: list[str] | None = None) -> int:
    """Run a command line without the program's name. Returns the exit code."""
    parser = get_argument_parser()
    options = parser.parse_args(sys.argv[1:] if args is None else args)
    try:
        return COMMANDS[options.command](options, parser)
    except MemrayCommandError as error:
        print(error, file=sys.stderr)
        return error.exit_code
