"""Airflow: its names for component settings, its configuration file, its components and its home folder."""

from __future__ import annotations

import os

from heaptide.platforms import Platform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def _config_file(environment: Mapping[str, str]) -> str:
    home = environment.get("AIRFLOW_HOME")
    return environment.get("AIRFLOW_CONFIG") or (os.path.join(home, "airflow.cfg") if home else "")


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
    components={"scheduler": "", "dag_processor": "", "api": "", "triggerer": ""},
    home="~/airflow",
)
