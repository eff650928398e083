"""Records Airflow's components: scheduler, DAG processor, API server, triggerer and workers.

Airflow decorates the function that runs a component with `enable_memray_trace`. :func:`install` replaces this
decorator. The replacement records with Heaptide if the configuration selects the component, and otherwise calls
Airflow's decorator. When the function runs, the process has already become a daemon and will not fork again to detach.
Workers have no such decorator; for them Heaptide uses the callback that Airflow runs in the daemon.

If anything fails, the component still runs, and one line in its log names what failed.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any

from heaptide.messages import print_message, reason
from heaptide.platforms.airflow import profiling
from heaptide.recording import program

log = logging.getLogger("heaptide.airflow")

# The component that this process runs under Heaptide's control; empty if there is none.
_component = ""


def install() -> None:
    """Replace Airflow's decorator, so that components that start in this process can be recorded."""
    try:
        from airflow.cli.commands import daemon_utils
        from airflow.utils import memray_utils
    except ImportError:
        print_message("components are recorded in Airflow 3.2 and later; this version runs without being recorded")
        return
    if getattr(memray_utils.enable_memray_trace, "is_heaptide", False):
        return
    of_airflow = memray_utils.enable_memray_trace

    def enable_memray_trace(component: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            traced = of_airflow(component)(function)

            @functools.wraps(function)
            def run(*args: Any, **kwargs: Any) -> Any:
                return run_component(component.value, function, traced, args, kwargs)

            return run

        return decorate

    enable_memray_trace.is_heaptide = True  # type: ignore[attr-defined]
    memray_utils.enable_memray_trace = enable_memray_trace
    if _is_worker() and profiling.current().is_controlled("worker"):
        run_in_daemon = daemon_utils.run_command_with_daemon_option

        @functools.wraps(run_in_daemon)
        def run_recorded(*args: Any, callback: Callable[[], Any], **kwargs: Any) -> Any:
            recorded = functools.partial(run_component, "worker", callback, callback, (), {})
            return run_in_daemon(*args, callback=recorded, **kwargs)

        daemon_utils.run_command_with_daemon_option = run_recorded


def run_component(
    name: str,
    function: Callable[..., Any],
    traced: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Run a component: recorded by Heaptide, by memray (`traced`), or not at all."""
    global _component
    chosen = profiling.current()
    is_controlled = False
    try:
        chosen.report_problems()
        if profiling.has_memray() and name in chosen.memray_components:
            log.info("memray records %s: it is installed, and [profiling] memray_trace_components names it", name)
        elif chosen.is_controlled(name):
            is_controlled = True
            _component = name
            if name in chosen.memray_components:
                _warn_about_unknown_names()
            _prepare(name, chosen)
    except Exception as error:
        log.warning("%s runs without being recorded: %s", name, reason(error))
    if not is_controlled:
        return traced(*args, **kwargs)
    try:
        return function(*args, **kwargs)
    finally:
        stop(name)


def start(name: str) -> bool:
    """Start recording this process as the component, unless it is recorded already. Returns False if that fails."""
    try:
        from heaptide.platforms.airflow import component_recording

        path = component_recording.begin(name, profiling.current())
        if path:
            log.info("Heaptide records %s into %s", name, path)
    except Exception as error:
        log.warning("%s runs without being recorded: %s", name, reason(error))
        return False
    return True


def stop(name: str) -> None:
    """Stop the recording of this process, if Heaptide started one for the component."""
    recording = sys.modules.get("heaptide.platforms.airflow.component_recording")
    if recording is not None:
        try:
            path = recording.end(name)
            if path:
                log.info("Heaptide recorded %s into %s; inspect it with: heaptide flamegraph %s", name, path, path)
        except Exception as error:
            log.warning("the recording of %s did not stop cleanly: %s", name, reason(error))


def join_as_api_worker() -> None:
    """Make a worker of the API server obey the component's control file. Airflow loads plugins in each worker."""
    chosen = profiling.current()
    is_worker = "multiprocessing" in sys.modules and _is_spawned()
    if not is_worker or _component or not chosen.is_controlled("api"):
        return
    try:
        from heaptide.platforms.airflow import component_recording

        component_recording.watch_as_child("api", "worker", chosen)
    except Exception as error:
        log.warning("this worker of the API server is not listed among the components: %s", reason(error))


def _prepare(name: str, chosen: profiling.Profiling) -> None:
    from heaptide.platforms.airflow import children, component_recording

    is_selected = chosen.is_selected(name)
    component_recording.ask(name, chosen, "on" if is_selected else "off")
    has_started = is_selected and start(name)
    try:
        component_recording.note_process(name, "main", chosen)
        component_recording.watch_control_file(name, "main", chosen, start, stop)
        children.follow(name, chosen)
    except Exception as error:
        if has_started:
            log.warning("%s is recorded, but the page of components does not control it: %s", name, reason(error))
        elif not is_selected:
            raise
        # Otherwise `start` has already logged a failure, probably with the same reason.


def _warn_about_unknown_names() -> None:
    """Let Airflow log its own warning about each unknown component."""
    from airflow.configuration import conf
    from airflow.utils.memray_utils import MemrayTraceComponents

    conf.getenumlist("profiling", "memray_trace_components", MemrayTraceComponents)


def _is_worker() -> bool:
    """Return whether this process is a worker of an executor: `airflow celery worker`, `airflow edge worker`.

    The original command line decides: while `python -m airflow` loads Airflow, `sys.argv` does not name it yet.
    """
    words = program.command_words(sys.orig_argv)
    if words[:1] == ["-m"]:
        words = words[1:]
    return words[:3] in (["airflow", "celery", "worker"], ["airflow", "edge", "worker"])


def _is_spawned() -> bool:
    return any("multiprocessing.spawn" in word for word in sys.orig_argv)
