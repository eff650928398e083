"""Airflow: its names for component settings, its configuration file, its components, and the plugin that it loads.

The wheel declares two entry points of Airflow. `airflow.policy` loads :mod:`policy` while Airflow starts, before any
component runs; `airflow.plugins` loads :mod:`plugin`, with listeners for tasks and pages for the UI. Both do nothing,
and do not load the native module, unless a key of the section ``[profiling]`` selects a component or a task.

profiling             the keys of ``[profiling]`` and what they select
components            runs components, recorded or not
component_recording   the capture of a component, its entry in the list of processes, and its control file
children              recordings of processes that components fork: DAG file parses, workers of LocalExecutor
tasks                 recordings of task instances, through Airflow's listener hooks
results               one record per task instance and parse; the only module that knows their format
captures              names, retention and upload of captures
web                   the pages in Airflow's UI
"""

from __future__ import annotations

import os

from heaptide.platforms import Platform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def _config_file(environment: Mapping[str, str]) -> str:
    home = environment.get("AIRFLOW_HOME")
    return environment.get("AIRFLOW_CONFIG") or (os.path.join(home, "airflow.cfg") if home else "")


def _labels(words: list[str], is_child: bool) -> dict[str, str]:
    command = next((word for word in words[1:] if not word.startswith("-")), "")
    return {"component": command} if command and words[:1] != ["-m"] else {}


PLATFORM = Platform(
    variables={
        "home": "AIRFLOW_HOME",
        "trace_components": "AIRFLOW__PROFILING__MEMRAY_TRACE_COMPONENTS",
        "detailed_tracing": "AIRFLOW__PROFILING__MEMRAY_DETAILED_TRACING",
    },
    documented={"AIRFLOW_CONFIG": "Airflow's own configuration file, instead of `airflow.cfg` in `AIRFLOW_HOME`"},
    config_file=_config_file,
    config_section="profiling",
    config_names={
        "trace_components": "memray_trace_components",
        "detailed_tracing": "memray_detailed_tracing",
    },
    components={"scheduler": "", "dag_processor": "", "api": "", "triggerer": "", "worker": ""},
    home="~/airflow",
    labels=_labels,
)
