"""Flyte: the decorator of its plugin for memray, decks of flytekit, and report tabs of Flyte 2.

In a task, the report of a profiled call becomes a deck or a tab, also if the task fails. The decorator may be above or
below the task decorator. This module uses Flyte only if the program has imported it.
"""

from __future__ import annotations

import functools
import importlib
import sys

from heaptide.platforms import Platform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from typing import Any

    from heaptide.reports import Report, Sink

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


def _profile_task(task: Any, decorate: Callable[..., Any]) -> Any:
    """Profile the function of a task object, so that the decorator may also be above the task decorator.

    The object keeps its name, interface and configuration; only its function changes, and its deck is enabled.
    """
    function_task: Any = _loaded("flytekit.core.python_function_task", "PythonFunctionTask")
    if function_task is not None and isinstance(task, function_task):
        function = vars(task)["_task_function"]
        vars(task).update(_task_function=decorate(function), _disable_deck=False)
        return task
    template: Any = _loaded("flyte._task", "AsyncFunctionTaskTemplate")
    if template is not None and isinstance(task, template):
        vars(task).update(func=decorate(vars(task)["func"]), report=True)
        return task
    others = (_loaded("flytekit.core.base_task", "Task"), _loaded("flytekit.core.workflow", "WorkflowBase"))
    for other in (*others, _loaded("flyte._task", "TaskTemplate")):
        if other is not None and isinstance(task, other):
            raise TypeError(f"only a task that runs a function can be profiled, not {task!r}: decorate that function")
    return None


def _loaded(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def _report_sink() -> Sink | None:
    """Return the sink for the task that this thread runs, or None."""
    manager = _loaded("flytekit.core.context_manager", "FlyteContextManager")
    if manager is not None:
        context = manager.current_context()
        state = context.execution_state
        if state is not None and state.mode is not None and context.user_space_params is not None:
            return functools.partial(_show_deck, manager, context)
    current = _loaded("flyte", "ctx")
    if current is not None and current() is not None:
        return functools.partial(_show_tab, _loaded("flyte.report", "current_report")())
    return None


def _show_deck(manager: Any, context: Any, report: Report) -> None:
    """Add the report to the decks of a flytekit task, and write the page of decks if flytekit will not."""
    decks: Any = importlib.import_module("flytekit.deck.deck")
    modes = _loaded("flytekit.core.context_manager", "ExecutionState").Mode
    task = context.user_space_params
    # In a local execution, all tasks of the process share one list; remove the decks of other tasks.
    for earlier in [deck for deck in task.decks if getattr(deck, "heaptide_task", task) is not task]:
        task.decks.remove(earlier)
    title = _unused_title(report, {deck.name for deck in task.decks})
    deck = decks.Deck(title, report.frame(), auto_add_to_deck=False)
    deck.heaptide_task = task
    task.decks.append(deck)
    # flytekit writes no page for dynamic tasks or for the items of a map task.
    is_dynamic = context.execution_state.mode in (
        modes.LOCAL_DYNAMIC_TASK_EXECUTION,
        modes.DYNAMIC_TASK_EXECUTION,
    )
    if report.outcome == "failed" or is_dynamic or not task.enable_deck:
        with manager.with_context(context.new_builder()):
            decks._output_deck(task_name=report.function, new_user_params=task)


def _show_tab(page: Any, report: Report) -> Awaitable[None] | None:
    """Add a tab to the report of a Flyte 2 task, and store it at once, because Flyte would not if the task fails."""
    import asyncio

    flush = _loaded("flyte.report", "flush")
    page.get_tab(_unused_title(report, page.tabs)).replace(report.frame())
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        flush()
        return None
    delivery: Awaitable[None] = flush.aio()
    return delivery


def _unused_title(report: Report, taken: Collection[str]) -> str:
    """Return a title that no other deck of the task has."""
    title = report.title
    number = 1
    while title in taken:
        title = f"{report.title}: {report.function}" + (f" {number}" if number > 1 else "")
        number += 1
    return title


PLATFORM = Platform(profile_task=_profile_task, report_sink=_report_sink)
