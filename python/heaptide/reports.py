"""Reports of decorated calls: rendered by another process and delivered to a sink.

A sink is any callable that takes a :class:`Report`. The default sink leaves the page in its file; a platform installs
another one with :func:`set_sink` to show the page itself. A report that could not be rendered is also delivered: its
page says why.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence

from heaptide import command_process, private_files
from heaptide.messages import reason


class Report:
    """The report of one call, as a sink receives it.

    function   name of the called function
    reporter   `flamegraph` or `table`
    title      title for the page, such as `Memory Flamegraph`
    capture    path of the capture
    path       path of the page; the file exists unless it could not be written
    error      why rendering failed, or None
    """

    def __init__(self, function: str, reporter: str, title: str, capture: str, path: str) -> None:
        self.function = function
        self.reporter = reporter
        self.title = title
        self.capture = capture
        self.path = path
        self.error: str | None = None

    def html(self) -> str:
        """Return the page: one self-contained HTML document that makes no network requests."""
        try:
            with open(self.path, encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError as error:
            return _error_page(self, self.error or reason(error))


Sink = Callable[[Report], None]


def to_file(report: Report) -> None:
    """Leave the page in its file: the default sink."""


_sink: Sink = to_file


def set_sink(sink: Sink | None) -> Sink:
    """Deliver all further reports to `sink`, or with None leave them in files. Returns the previous sink."""
    global _sink
    before, _sink = _sink, sink or to_file
    return before


def deliver(report: Report, sink: Sink | None) -> None:
    """Pass the report to `sink`, or to the one set with :func:`set_sink`."""
    (sink or _sink)(report)


def render(report: Report, arguments: Sequence[str], captures: Sequence[str]) -> None:
    """Render the page in another process; if that fails, write a page that says so. Never raises."""
    try:
        done = command_process.run(report.reporter, "-o", report.path, *arguments, "--", *captures)
        if done.returncode != 0:
            report.error = (done.stderr.splitlines() or [f"the reporter ended with {done.returncode}"])[-1]
    except Exception as error:
        report.error = reason(error)
    if report.error is not None:
        try:
            private_files.write(report.path, _error_page(report, report.error))
        except Exception:
            pass


def _error_page(report: Report, error: str) -> str:
    """Return a page that explains why there is no report."""
    sentence = html.escape(f"The {report.reporter} of {report.function} could not be rendered: {error}")
    capture = html.escape(report.capture)
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{html.escape(report.title)}</title>\n'
        f"<p>{sentence}</p>\n<p>The capture is <code>{capture}</code>.</p>\n</html>\n"
    )
