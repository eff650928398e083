"""Flyte: the decorator of its plugin for memray, and the folder in which that plugin puts captures and pages."""

from __future__ import annotations

from heaptide.platforms import Platform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PLATFORM = Platform()

FOLDER = "memray_bin"


def memray_profiling(
    task_function: Callable[..., Any] | None = None,
    native_traces: bool = False,
    trace_python_allocators: bool = False,
    follow_fork: bool = False,
    memory_interval_ms: int = 10,
    memray_html_reporter: str = "flamegraph",
    memray_reporter_args: list[str] | None = None,
) -> Any:
    """:func:`heaptide.profile_memory` with the names and defaults of Flyte's plugin for memray.

    Replace ``from flytekitplugins.memray import memray_profiling`` with ``from heaptide import memray_profiling``.

    native_traces             also show the C, C++ and Rust functions between the Python functions
    trace_python_allocators   also record Python's own allocators: every object
    follow_fork               also record forked children
    memory_interval_ms        milliseconds between two samples of the resident size
    memray_html_reporter      `flamegraph` or `table`
    memray_reporter_args      further options of that command, such as `["--leaks"]`
    """
    from heaptide.recording.decorator import Profile, check_options

    options = check_options(
        objects=trace_python_allocators, native=native_traces, follow_fork=follow_fork, interval_ms=memory_interval_ms
    )
    profile = Profile("Memray", options, memray_html_reporter, memray_reporter_args, FOLDER, None)
    return profile if task_function is None else profile(task_function)
