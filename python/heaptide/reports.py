"""Reports of single calls: made by another process, handed to a sink.

A sink is any callable that takes a :class:`Report`. The one that is there from the start leaves the page where it is,
in a file; a platform replaces it with :func:`set_sink` to show the page in its own place. A report that could not be
made reaches the sink, too: its page says why.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence

from heaptide import command_process
from heaptide.messages import reason


class Report:
    """What a sink gets.

    function   name of the function that was called
    reporter   `flamegraph` or `table`
    title      what a platform may call the page, such as `Memory Flamegraph`
    capture    the capture's path
    path       the page's path; the file is there unless even that could not be written
    error      why the report could not be made, or None
    """

    def __init__(self, function: str, reporter: str, title: str, capture: str, path: str) -> None:
        self.function = function
        self.reporter = reporter
        self.title = title
        self.capture = capture
        self.path = path
        self.error: str | None = None

    def html(self) -> str:
        """The page: one whole document that asks no network for anything."""
        try:
            with open(self.path, encoding="utf-8") as file:
                return file.read()
        except OSError as error:
            return _apology(self, self.error or reason(error))


Sink = Callable[[Report], None]


def to_file(report: Report) -> None:
    """Leave the page where it was made. The sink that is used unless another was set."""


_sink: Sink = to_file


def set_sink(sink: Sink | None) -> Sink:
    """Have reports handed to `sink` from now on, or with None left in files. Returns the sink so far."""
    global _sink
    before, _sink = _sink, sink or to_file
    return before


def deliver(report: Report, sink: Sink | None) -> None:
    """Hand the report to its own sink, or to the one that was set."""
    (sink or _sink)(report)


def render(report: Report, arguments: Sequence[str], captures: Sequence[str]) -> None:
    """Make the page in another process; if that fails, a page that says so. Never raises."""
    try:
        done = command_process.run(report.reporter, "-o", report.path, *arguments, "--", *captures)
        if done.returncode != 0:
            report.error = (done.stderr.splitlines() or [f"the reporter ended with {done.returncode}"])[-1]
    except Exception as error:
        report.error = reason(error)
    if report.error is not None:
        try:
            with open(report.path, "w", encoding="utf-8") as file:
                file.write(_apology(report, report.error))
        except OSError:
            pass


def _apology(report: Report, error: str) -> str:
    """A page that says what happened, for a person who expected a report."""
    sentence = html.escape(f"The {report.reporter} of {report.function} could not be made: {error}")
    capture = html.escape(report.capture)
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{html.escape(report.title)}</title>\n'
        f"<p>{sentence}</p>\n<p>The capture is <code>{capture}</code>.</p>\n</html>\n"
    )
