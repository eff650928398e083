"""memray's report commands: Heaptide's reports with memray's file names and messages."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from heaptide import _native
from heaptide.compat.memray.capture_data import memray_reason
from heaptide.compat.memray.command_line.parsers import FORMATS
from heaptide.compat.memray.errors import MemrayCommandError

# Sizes as memray prints them.
_LAYOUT = "--layout=memray"


def flamegraph(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """``memray flamegraph``"""
    if options.temporal and options.temporary_allocation_threshold >= 0:
        parser.error("Can't create a temporal flame graph of temporary allocations")
    words = ["--inverted"] * options.inverted + ["--split-threads"] * options.split_threads
    words += ["--no-source"] * (options.confidential_files == "all")
    return _write(options, "flamegraph", ".html", ["flamegraph", *words])


def table(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """``memray table``"""
    return _write(options, "table", ".html", ["table", *["--split-threads"] * options.split_threads])


def transform(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """``memray transform``"""
    name = options.format.lower()
    suffix = FORMATS.get(name)
    if suffix is None:
        raise MemrayCommandError(f"Format not supported: {options.format}", exit_code=1)
    code = _write(options, name, suffix, ["transform", name])
    if name == "gprof2dot":
        output = options.output or _default_output(Path(options.results), name, suffix)
        for program, command in (("gprof2dot", "gprof2dot"), ("Graphviz", "dot")):
            if shutil.which(command) is None:
                print(f"{program} is not installed: install it to draw the graph")
        print("\nTo generate a graph from the transform file, run for example:")
        print(f"gprof2dot -f json {output} | dot -Tpng -o output.png")
    return code


def stats(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """``memray stats``"""
    results = _existing(options.results)
    words = ["stats", _LAYOUT, "-n", str(options.num_largest)]
    if options.json:
        name = results.name.removeprefix("memray-")
        output = options.output or os.fspath(results.with_name(f"memray-stats-{name}.json"))
        words += ["--json", *_new_file(output, options.force)]
    return _report([*words, "--", options.results], f"Failed to compute statistics for {options.results}")


def summary(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """``memray summary``"""
    if not 1 <= options.sort_column <= 5:
        parser.error("The --sort-column argument must be between 1 and 5")
    _existing(options.results)
    words = ["summary", _LAYOUT, "-s", str(options.sort_column), *_measure(options)]
    if options.max_rows is not None:
        words += ["-r", str(max(options.max_rows, 1))]
    return _report([*words, "--", options.results], _unreadable(options))


def tree(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """``memray tree``"""
    _existing(options.results)
    words = ["tree", _LAYOUT, "-b", str(max(options.biggest_allocs, 1)), *_measure(options), "--", options.results]
    if sys.stdout.isatty():
        return _code(_native.main(words))
    return _report(words, _unreadable(options))


def parse(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """``memray parse``"""
    if os.isatty(1):
        raise MemrayCommandError("You must redirect stdout to a file or shell pipeline.", exit_code=1)
    if not os.path.lexists(options.results):
        raise MemrayCommandError(f"{_unreadable(options)}\nReason: No such file: {options.results}", exit_code=1)
    return _report(["parse", "--", options.results], _unreadable(options))


def _write(options: argparse.Namespace, name: str, suffix: str, words: list[str]) -> int:
    """Write a report into a file with memray's default name."""
    results = _existing(options.results)
    output = options.output or os.fspath(_default_output(results, name, suffix))
    words += [*_new_file(output, options.force), *_measure(options)]
    return _report([*words, "--", options.results], _unreadable(options))


def _existing(results: str) -> Path:
    path = Path(results)
    if not path.is_file():
        raise MemrayCommandError(f"No such file: {results}", exit_code=1)
    return path


def _default_output(results: Path, name: str, suffix: str) -> Path:
    # Like memray, replace the last suffix, although reports of two forked children then have the same name.
    stem = results.with_suffix(suffix).name.removeprefix("memray-")
    return results.parent / f"memray-{name}-{stem}"


def _new_file(output: str, force: bool) -> list[str]:
    path = Path(output).expanduser()
    if not force and path.exists():
        raise MemrayCommandError(f"File already exists, will not overwrite without --force: {output}", exit_code=1)
    # Without this check the command would report an unreadable capture.
    for number, is_wrong in ((errno.ENOENT, not path.parent.is_dir()), (errno.EISDIR, path.is_dir())):
        if is_wrong:
            raise MemrayCommandError(str(OSError(number, os.strerror(number), output)), exit_code=1)
    return ["-f", "-o", os.fspath(path)]


def _measure(options: argparse.Namespace) -> list[str]:
    if getattr(options, "show_memory_leaks", False):
        return ["--leaks"]
    if options.temporary_allocation_threshold >= 0:
        return ["--temporary-allocation-threshold", str(options.temporary_allocation_threshold)]
    return []


def _unreadable(options: argparse.Namespace) -> str:
    return f"Failed to parse allocation records in {options.results}"


def _report(words: list[str], failure: str) -> int:
    """Run a report of Heaptide. If it fails, raise memray's error with Heaptide's message as the reason."""
    with contextlib.ExitStack() as captured:
        messages = captured.enter_context(_captured(2))
        # A notebook, or a caller that collects the output of `main`, has replaced `sys.stdout`.
        output = captured.enter_context(_captured(1)) if sys.stdout is not sys.__stdout__ else []
        code = _code(_native.main(words))
    if output:
        sys.stdout.write("".join(output))
    text = "".join(messages)
    if code != 0:
        lines = text.strip().splitlines() or ["the report failed"]
        reason = memray_reason(lines[-1].removeprefix("heaptide: "))
        raise MemrayCommandError(f"{failure}\nReason: {reason}", exit_code=1)
    sys.stderr.write(text)
    return 0


@contextlib.contextmanager
def _captured(descriptor: int) -> Iterator[list[str]]:
    """Collect the output to a descriptor. After the block, the list contains it as one text."""
    texts: list[str] = []
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    with tempfile.TemporaryFile() as file:
        saved = os.dup(descriptor)
        os.dup2(file.fileno(), descriptor)
        try:
            yield texts
        finally:
            os.dup2(saved, descriptor)
            os.close(saved)
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))


def _code(outcome: object) -> int:
    return outcome if isinstance(outcome, int) else 1
