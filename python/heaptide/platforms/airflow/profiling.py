"""The keys of Airflow's section ``[profiling]``, which select components and tasks, and set recording options.

Airflow itself reads the values, so ``airflow.cfg``, ``AIRFLOW__PROFILING__…`` and its other sources all work. An
invalid value is reported in one line and its default is used. This module does not load the native module.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from heaptide import setting_values

log = logging.getLogger("heaptide.airflow")

SECTION = "profiling"
VARIABLE = "HEAPTIDE__PROFILING__TRACE_COMPONENTS"
COMPONENTS = ("scheduler", "dag_processor", "api", "triggerer", "worker")
MODES = ("exact", "objects", "sampled", "aggregate")
# Key → meaning; the guide lists the same keys.
KEYS = {
    "heaptide_trace_components": "components to record: scheduler, dag_processor, api, triggerer, worker",
    "heaptide_standby_components": "components that start to record only on request",
    "heaptide_trace_tasks": "patterns of dag_id.task_id of the tasks to record",
    "heaptide_mode": "exact, objects, sampled or aggregate",
    "heaptide_home": "folder for captures and results",
    "heaptide_keep": "earlier captures and snapshots to keep for each component, captures for each task and map index",
    "heaptide_keep_days": "days to keep captures and results of tasks",
    "heaptide_keep_bytes": "size of all captures of tasks and parses together",
    "heaptide_max_size": "size at which the capture of a component is rotated",
    "heaptide_upload": "copy captures of tasks to the remote-logging location",
}


class Profiling:
    """The values of the section in this process."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._check_keys()
        self.memray_components = self._names("memray_trace_components")
        self.is_detailed = self._choice("memray_detailed_tracing", setting_values.boolean, False)
        self.heaptide_components = self._names("heaptide_trace_components") + self._names_in_environment()
        self.standby_components = self._names("heaptide_standby_components")
        self.task_patterns = [word for word in setting_values.words(_text("heaptide_trace_tasks")) if word]
        # Empty means exact mode for components, like memray, and sampled mode for tasks.
        self.mode = self._choice("heaptide_mode", _mode, "")
        self.keep = self._choice("heaptide_keep", setting_values.count, 5)
        self.keep_days = self._choice("heaptide_keep_days", setting_values.count, 30)
        self.keep_bytes = self._choice("heaptide_keep_bytes", setting_values.room, 1 << 30)
        self.max_size = self._choice("heaptide_max_size", setting_values.size, 0)
        self.upload = self._choice("heaptide_upload", setting_values.boolean, False)
        # The folder of component captures; everything else is in its folder `heaptide`.
        self.home = os.path.abspath(os.path.expanduser(_text("heaptide_home") or _airflow_home()))
        self.folder = os.path.join(self.home, "heaptide")

    @property
    def is_configured(self) -> bool:
        """Whether a key selects something, also for memray. Invalid keys and values count, to be reported."""
        return self.selects_something or bool(self._problems or self.memray_components)

    @property
    def selects_something(self) -> bool:
        """Whether any key selects a component or a task. memray's keys do not count if memray itself is installed."""
        memray_selection = [] if has_memray() else self.memray_components
        return bool(memray_selection or self.heaptide_components or self.standby_components or self.task_patterns)

    def is_selected(self, component: str) -> bool:
        """Return whether Heaptide records a component from its start."""
        if component in self.memray_components:
            return not has_memray()
        return component in self.heaptide_components

    def is_controlled(self, component: str) -> bool:
        """Return whether a component can be started and stopped from the UI."""
        return self.is_selected(component) or component in self.standby_components

    def selects_task(self, dag_id: str, task_id: str) -> bool:
        """Return whether a pattern matches the task. A pattern without a dot names a DAG."""
        name = f"{dag_id}.{task_id}"
        return any(
            fnmatchcase(name, pattern) or (("." not in pattern) and fnmatchcase(dag_id, pattern))
            for pattern in self.task_patterns
        )

    def options(self, *, is_task: bool, component: str = "") -> dict[str, Any]:
        """Return the arguments of `RecordingOptions.checked` for a component or a task."""
        mode = self.mode or ("sampled" if is_task else "exact")
        is_detailed = self.is_detailed and component in self.memray_components and not self.mode
        return {
            "objects": mode == "objects" or is_detailed,
            "native": is_detailed,
            "sample": True if mode == "sampled" else None,
            "aggregate": mode == "aggregate",
        }

    def report_problems(self) -> None:
        """Log each invalid value once. Only components and tasks call this, when they start."""
        while self._problems:
            log.warning("%s", self._problems.pop(0))

    def _names(self, key: str) -> list[str]:
        """Return the known components of a list. Airflow itself warns about unknown names in memray's key."""
        names = setting_values.words(_text(key))
        if not key.startswith("memray"):
            for name in dict.fromkeys(names):
                if name not in COMPONENTS:
                    use = ", ".join(COMPONENTS)
                    self._problems.append(f"unknown component {name!r} in [profiling] {key}: use {use}")
        return [name for name in names if name in COMPONENTS]

    def _check_keys(self) -> None:
        """Collect unknown keys that begin with `heaptide`."""
        from airflow.configuration import conf

        for key in conf.getsection(SECTION) or {}:
            if key.startswith("heaptide") and key not in KEYS:
                self._problems.append(f"[profiling] has no key {key}: use {', '.join(KEYS)}")

    def _names_in_environment(self) -> list[str]:
        """Return the components of Airflow in Heaptide's own variable, which may also name parts of other services."""
        return [name for name in setting_values.words(os.environ.get(VARIABLE, "")) if name in COMPONENTS]

    def _choice(self, key: str, parse: Any, default: Any) -> Any:
        text = _text(key)
        if not text:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self._problems.append(f"[profiling] {key} is {text!r}, which is invalid ({error}); it is ignored")
            return default


@cache
def dag_folders() -> list[str]:
    """Return the folders of DAG files, which contain user code."""
    import json

    from airflow.configuration import conf

    folders = [
        conf.get("core", "dags_folder", fallback=""),
        conf.get("dag_processor", "dag_bundle_storage_path", fallback=""),
    ]
    try:
        bundles = json.loads(conf.get("dag_processor", "dag_bundle_config_list", fallback="") or "[]")
        folders += [bundle.get("kwargs", {}).get("path", "") for bundle in bundles]
    except (ValueError, AttributeError):  # Airflow itself reports it
        pass
    return [str(folder) for folder in folders if folder]


@cache
def has_memray() -> bool:
    """Return whether the real memray can be imported. If so, Airflow applies the keys `memray_…` to it."""
    try:
        return importlib.util.find_spec("memray") is not None
    except (ImportError, ValueError):
        return False


@cache
def current() -> Profiling:
    """Return the values for this process. They are read once, like Airflow's own configuration."""
    return Profiling()


def _text(key: str) -> str:
    from airflow.configuration import conf

    return str(conf.get(SECTION, key, fallback="") or "").strip()


def _airflow_home() -> str:
    from airflow.configuration import AIRFLOW_HOME

    return str(AIRFLOW_HOME)


def _mode(text: str) -> str:
    if text not in MODES:
        raise ValueError(f"use {', '.join(MODES)}")
    return text
