"""Reports of decorated calls: another process renders them, and a sink receives them.

A sink is a function, plain or async, that takes a :class:`Report`. The page is always written to its file. If the user
sets no sink, the platform shows the page, for example Flyte in a task. A report that could not be rendered is also
delivered; its page contains the reason.
"""

from __future__ import annotations

import html
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from heaptide import command_process, platforms, private_files
from heaptide.messages import print_message, reason


class Report:
    """The report of one call, as a sink receives it.

    function   name of the called function
    reporter   `flamegraph` or `table`
    title      title for the page, such as `Memory Flamegraph`
    capture    path of the capture
    captures   paths of the capture and of the captures of forked children
    path       path of the page; the file exists unless it could not be written
    outcome    `ok`, or `failed` if the call raised an exception
    failure    type and text of that exception, or None
    error      why rendering failed, or None
    """

    def __init__(self, function: str, reporter: str, title: str, capture: str, path: str) -> None:
        self.function = function
        self.reporter = reporter
        self.title = title
        self.capture = capture
        self.captures = [capture]
        self.path = path
        self.outcome = "ok"
        # Text only: the exception itself would keep the memory of the failed call alive.
        self.failure: str | None = None
        self.error: str | None = None

    def html(self) -> str:
        """Return the page: one self-contained HTML document that makes no network requests."""
        try:
            with open(self.path, encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError as error:
            return _error_page(self, self.error or reason(error))

    def frame(self) -> str:
        """Return the page in a sandboxed frame, as a fragment of HTML for the page of another tool.

        The frame isolates the styles, scripts and ids of both pages from each other.
        """
        page = self.html()
        # Single quotes delimit the attribute, because pages have fewer of them to escape than double quotes.
        source = page.replace("&", "&amp;").replace("'", "&#39;")
        style = "width:100%;height:85vh;min-height:30rem;border:0;display:block"
        title = html.escape(f"{self.title}: {self.function}")
        attributes = f'title="{title}" sandbox="allow-scripts allow-downloads" style="{style}"'
        return f"<iframe {attributes} srcdoc='{source}'></iframe>"


Sink = Callable[[Report], "Awaitable[None] | None"]


def to_file(report: Report) -> None:
    """Do nothing: the page is in its file. This is the default sink."""


_is_announced = False


def announce(report: Report) -> None:
    """Print the path of the process's first page and the next command to use. Later calls print nothing."""
    global _is_announced
    if _is_announced:
        return
    _is_announced = True
    from heaptide import settings

    if not settings.load().quiet:
        # Quote for a shell: a function may be named <lambda>.
        import shlex

        prefix = os.path.join(os.getcwd(), "")
        page, capture = (shlex.quote(path.removeprefix(prefix)) for path in (report.path, report.capture))
        print_message(
            f"{report.function}: wrote {page}, which opens in a browser; next: heaptide stats {capture} "
            "(later calls are recorded without a message)"
        )


_sink: Sink | None = None


def set_sink(sink: Sink | None) -> Sink | None:
    """Deliver all further reports to `sink`; if it is None, the platform decides.

    Returns the previous sink, or None if none was set. A second call with this value restores the former state.
    """
    global _sink
    before, _sink = _sink, sink
    return before


def current_sink() -> Sink:
    """Return the sink for a call that starts now: the user's, or that of the platform whose task this is."""
    if _sink is not None:
        return _sink
    for platform in platforms.all_platforms():
        sink = platform.report_sink() if platform.report_sink is not None else None
        if sink is not None:
            return sink
    return to_file


def wait_for(delivery: Awaitable[None]) -> None:
    """Wait until an async sink has received its report; if an event loop runs in this thread, only schedule it."""
    import asyncio

    async def finish() -> None:
        await delivery

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(finish())
        return
    task = loop.create_task(finish())
    _deliveries.add(task)
    task.add_done_callback(_delivered)


# Event loops keep only weak references to their tasks.
_deliveries: set[Any] = set()


def _delivered(task: Any) -> None:
    _deliveries.discard(task)
    if not task.cancelled() and task.exception() is not None:
        print_message(f"a report could not be delivered: {reason(task.exception())}")


def render(report: Report, arguments: Sequence[str]) -> None:
    """Render the page in another process. If that fails, write a page with the reason. Never raises."""
    try:
        done = command_process.run(report.reporter, "-o", report.path, *arguments, "--", *report.captures)
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
