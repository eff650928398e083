"""mprof on Heaptide: ``HEAPTIDE_COMPAT=mprof`` (or ``memory_profiler``) lets ``python -m mprof`` find it.

Commands, options, printed lines and file names are mprof's. The sampler is native, and charts need no matplotlib. Four
differences are deliberate, because jobs depend on them:

- The exit code is always the program's. If a signal kills the program, this command ends by the same signal.
- Interpreter options of this command, such as ``-O`` and ``-u``, also apply to the program.
- Each run writes a new file. A file that exists under the name of ``--output`` is renamed first: its new name contains
  the time of its last write.
- MPI ranks on one host write separate files: ``--output node.dat`` becomes ``node-rank3.dat``.
"""

from __future__ import annotations

import logging
import os
import re
import sys

from .profiles import (
    NoProfile,
    filter_mprofile_mem_usage_by_function,
    function_labels,
    get_profile_filenames,
    profiles_to_read,
    read_mprofile_file,
)
from .recording import attach_action, find_first_process, get_cmd_line, run_action

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

__all__ = [
    "ALL_ACTIONS",
    "attach_action",
    "clean_action",
    "filter_mprofile_mem_usage_by_function",
    "find_first_process",
    "function_labels",
    "get_action",
    "get_cmd_line",
    "get_profile_filenames",
    "get_profiles",
    "help_msg",
    "list_action",
    "main",
    "peak_action",
    "plot_action",
    "print_usage",
    "read_mprofile_file",
    "rm_action",
    "run_action",
]

# The version of memory_profiler whose mprof this is.
VERSION = "0.61.0"

ALL_ACTIONS = ("run", "rm", "clean", "list", "plot", "attach", "peak")
help_msg = """
Available commands:

    run      run a command or a Python script, and record its memory over time
    attach   record a running process, by process ID or name
    rm       remove recorded files
    clean    remove all recorded files of this folder
    list     list recorded files with their numbers
    plot     draw recorded files
    peak     print the largest size in recorded files

mprof <command> --help shows the options of a command.
"""

logger = logging.getLogger("mprof")


def print_usage() -> None:
    """Print how to call mprof."""
    print(f"Usage: {os.path.basename(sys.argv[0])} <command> <options> <arguments>")
    print(help_msg)


def get_action() -> str:
    """Remove the command from ``sys.argv`` and return it. Without a known command, print the usage and exit."""
    if len(sys.argv) <= 1 or sys.argv[1] not in ALL_ACTIONS:
        print_usage()
        sys.exit(1)
    return sys.argv.pop(1)


def list_action() -> None:
    """List recorded files with their numbers."""
    _parser("mprof list", "List recorded files with their numbers, oldest first.").parse_args()
    for number, name in enumerate(get_profile_filenames("all")):
        stamp = os.path.splitext(name)[0].split("_")[-1]
        time = f"{stamp[8:10]}:{stamp[10:12]}:{stamp[12:14]}"
        print(f"{number} {name} {time} {stamp[6:8]}/{stamp[4:6]}/{stamp[:4]}")


def rm_action() -> None:
    """Remove the named files."""
    parser = _parser("mprof rm [options] numbers_or_filenames", "Remove recorded files.")
    _add_dry_run(parser)
    parser.add_argument("numbers_or_filenames", nargs="*", help="files, by name or by number in mprof list")
    options = parser.parse_args()
    if not options.numbers_or_filenames:
        print("A profile to remove must be provided (number or filename)")
        sys.exit(1)
    try:
        names = get_profile_filenames(options.numbers_or_filenames)
    except ValueError as error:
        sys.exit(f"mprof: {error}")
    _remove(names, options.dry_run)


def clean_action() -> None:
    """Remove all recorded files of this folder."""
    parser = _parser("mprof clean [options]", "Remove all recorded files of this folder.")
    _add_dry_run(parser)
    _remove(get_profile_filenames("all"), parser.parse_args().dry_run)


def plot_action() -> None:
    """Draw recorded files: in the terminal, or into a picture or page."""
    description = (
        "Draw recorded files in the terminal, or with -o as .svg, .png, .html or .txt; the newest file by default."
    )
    parser = _parser("mprof plot [options] [file.dat]", description)
    parser.add_argument("--title", "-t", help="title of the chart")
    parser.add_argument("--no-function-ts", "-n", dest="no_timestamps", action="store_true", help="hide function calls")
    parser.add_argument("--output", "-o", help="file for the chart")
    parser.add_argument("--window", "-w", dest="xlim", type=_window, help="only this range of seconds: 0,20.5")
    parser.add_argument("--flame", "-f", dest="flame_mode", action="store_true", help="show calls as stacked bars")
    parser.add_argument("--slope", "-s", action="store_true", help="show a trend line and its slope")
    parser.add_argument("--backend", help="ignored: matplotlib is not used")
    parser.add_argument("profiles", nargs="*", help="files, by name or by number in mprof list")
    options = parser.parse_args()
    names = get_profiles(options)
    for name in names:
        if not _has_samples(name):
            print(
                f"** No memory usage values have been found in the profile file.**\nFile path: {name}\n"
                f'File may be empty or invalid.\nIt can be deleted with "mprof rm {name}"'
            )
            sys.exit(0)
    words = ["plot"]
    words += ["--title", options.title] if options.title is not None else []
    words += ["--output", _picture(options.output)] if options.output else []
    words += ["--window", "{},{}".format(*options.xlim)] if options.xlim else []
    words += ["--no-function-ts"] if options.no_timestamps or len(names) > 1 else []
    words += ["--flame"] if options.flame_mode else []
    words += ["--slope"] if options.slope else []
    _exit_with(_command(*words, *names))


def peak_action() -> None:
    """Print the largest size in recorded files."""
    import argparse

    parser = argparse.ArgumentParser(
        usage="mprof peak [options] [file.dat]",
        description="Print the largest size in recorded files; in the newest file by default.",
    )
    parser.add_argument("profiles", nargs="*", help="files, by name or by number in mprof list")
    parser.add_argument("--func", help="only during calls of this function")
    options = parser.parse_args()
    names = get_profiles(options)
    _exit_with(_command("peak", *(["--func", options.func] if options.func is not None else []), *names))


def get_profiles(args: argparse.Namespace) -> list[str]:
    """Return the files that ``args.profiles`` names, the newest by default. Without any file, print that and exit."""
    try:
        return profiles_to_read(args.profiles)
    except NoProfile as error:
        print(error)
        sys.exit(-1)


def main() -> None:
    """Run the command that ``sys.argv`` names."""
    # argparse would treat the number of a file, such as -1, as an option.
    if sys.argv[1:2] not in (["run"], ["attach"]):
        for at, word in enumerate(sys.argv):
            if re.match("-[0-9]+", word):
                sys.argv.insert(at, "--")
                break
    action = get_action()
    {
        "rm": rm_action,
        "clean": clean_action,
        "list": list_action,
        "run": run_action,
        "attach": attach_action,
        "plot": plot_action,
        "peak": peak_action,
    }[action]()


def _parser(usage: str, description: str) -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(usage=usage, description=description)
    parser.add_argument("--version", action="version", version=VERSION)
    return parser


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", dest="dry_run", action="store_true", help="show the files without removing them")


def _remove(names: list[str], is_dry: bool) -> None:
    if is_dry:
        print("Files to be removed: ")
    for name in names:
        if is_dry:
            print(name)
        else:
            os.remove(name)


def _window(text: str) -> tuple[float, float]:
    import argparse

    try:
        start, end = map(float, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be two numbers separated by a comma") from None
    return start, end


def _picture(path: str) -> str:
    """Return the name for a chart: as with matplotlib, a name without an ending gets .png."""
    return path if os.path.splitext(path)[1] else f"{path}.png"


def _has_samples(name: str) -> bool:
    if not name.endswith(".dat"):
        return True
    with open(name, "rb") as file:
        return any(line.startswith(b"MEM ") for line in file)


def _command(*words: str) -> int:
    from heaptide import _native

    sys.stdout.flush()
    code = _native.main([*words[:1], "--layout=mprof", *words[1:]])
    return code if isinstance(code, int) else 1


def _exit_with(code: int) -> None:
    if code:
        sys.exit(code)
