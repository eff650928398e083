"""Tests how components are selected and recorded: names, failures, second starts, and memray next to Heaptide."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from platform_support.airflow_stack import PROGRAMS, Home
from platform_support.environments import Environment

MEMRAY = "AIRFLOW__PROFILING__MEMRAY_TRACE_COMPONENTS"
DETAILED = "AIRFLOW__PROFILING__MEMRAY_DETAILED_TRACING"
HEAPTIDE = "AIRFLOW__PROFILING__HEAPTIDE_TRACE_COMPONENTS"

CASES: dict[str, dict[str, Any]] = {
    "selected": {"component": "scheduler", "env": {MEMRAY: " scheduler , api"}},
    "by_heaptides_key": {"component": "triggerer", "env": {HEAPTIDE: "triggerer", MEMRAY: ""}},
    "not_selected": {"component": "dag_processor", "env": {MEMRAY: "scheduler,api"}},
    "unknown": {"component": "scheduler", "env": {MEMRAY: "scheduler,Scheduler,,nonsense"}},
    "unknown_heaptide_name": {"component": "scheduler", "env": {MEMRAY: "", HEAPTIDE: "schedulr"}},
    "plain": {"component": "api", "env": {MEMRAY: "api"}},
    "detailed": {"component": "api", "env": {MEMRAY: "api", DETAILED: "True"}},
    "sampled": {
        "component": "api",
        "env": {MEMRAY: "", HEAPTIDE: "api", "AIRFLOW__PROFILING__HEAPTIDE_MODE": "sampled"},
    },
    "twice": {"component": "dag_processor", "env": {MEMRAY: "dag_processor"}, "times": 2},
    "no_folder": {"component": "api", "env": {MEMRAY: "api", "CASE_HOME": "/dev/null/home"}},
    "full": {
        "component": "api",
        "env": {MEMRAY: "api"},
        "before": "import os; os.symlink('/dev/full', os.path.join(home, 'api_memory.bin'))",
    },
    "full_for_everything": {
        "component": "api",
        "env": {MEMRAY: "api"},
        "before": (
            "import os\n"
            "os.symlink('/dev/full', os.path.join(home, 'api_memory.bin'))\n"
            "os.mkdir(os.path.join(home, 'heaptide'))\n"
            "os.symlink('/dev/full', os.path.join(home, 'heaptide', 'processes'))\n"
        ),
    },
    "full_for_lists": {
        "component": "api",
        "env": {MEMRAY: "api"},
        "before": (
            "import os\n"
            "os.mkdir(os.path.join(home, 'heaptide'))\n"
            "os.symlink('/dev/full', os.path.join(home, 'heaptide', 'processes'))\n"
        ),
    },
    "no_control_file": {
        "component": "api",
        "env": {MEMRAY: "api"},
        "before": (
            "import os\n"
            "os.mkdir(os.path.join(home, 'heaptide'))\n"
            "os.symlink('/proc/self', os.path.join(home, 'heaptide', 'control'))\n"
        ),
    },
    "recorded_already": {
        "component": "api",
        "env": {MEMRAY: "api"},
        "before": "import heaptide; heaptide.Tracker(home + '/other.tide').start()",
    },
    "recorded_by_settings": {
        "component": "api",
        "env": {MEMRAY: "api"},
        "before": (
            "from heaptide import settings\n"
            "from heaptide.recording import from_settings\n"
            "values = {'home': home, 'out': home + '/other.tide'}\n"
            "from_settings.begin(settings.load().with_values(values), 'airflow')\n"
        ),
        "after": "import heaptide; assert heaptide.active(); open(home + '/continued', 'w').close()",
    },
    "by_heaptides_variable": {
        "component": "scheduler",
        "env": {MEMRAY: "", "HEAPTIDE__PROFILING__TRACE_COMPONENTS": "scheduler"},
    },
    "unknown_key": {"component": "api", "env": {MEMRAY: "api", "AIRFLOW__PROFILING__HEAPTIDE_MODES": "sampled"}},
    "standby": {
        "component": "api",
        "env": {MEMRAY: "", "AIRFLOW__PROFILING__HEAPTIDE_STANDBY_COMPONENTS": "api"},
        "inside": (
            "import heaptide, time\n"
            "assert not heaptide.active()\n"
            "for word in ('on', 'off'):\n"
            "    open(home + '/heaptide/control/api', 'w').write(word)\n"
            "    while heaptide.active() != (word == 'on'): time.sleep(0.01)\n"
        ),
    },
    "rotated": {
        "component": "api",
        "env": {MEMRAY: "api", "AIRFLOW__PROFILING__HEAPTIDE_MAX_SIZE": "300k"},
        "inside": (
            "import glob\n"
            "while len(glob.glob(home + '/api_memory*.bin')) < 3: held = [bytes(n) for n in range(600, 2000)]\n"
        ),
    },
    "second_scheduler": {
        "component": "scheduler",
        "env": {MEMRAY: "scheduler"},
        "before": (
            "import fcntl, os, time\n"
            "pid = os.fork()\n"
            "lock = os.open(home + '/.scheduler_memory.lock', os.O_RDWR | os.O_CREAT, 0o600)\n"
            "if pid == 0:\n"
            "    fcntl.lockf(lock, fcntl.LOCK_EX)\n"
            "    open(home + '/locked', 'w').close()\n"
            "    while os.getppid() != 1 and not os.path.exists(home + '/ended'): time.sleep(0.05)\n"
            "    os._exit(0)\n"
            "while not os.path.exists(home + '/locked'): time.sleep(0.01)\n"
        ),
    },
}


class Answers:
    """The results of the cases, and the folders that they wrote to."""

    def __init__(self, environment: Environment, folder: Path, results: dict[str, Any]) -> None:
        self.environment = environment
        self.folder = folder
        self.results = results

    def log(self, case: str) -> str:
        """Return the log of a case."""
        return (self.folder / case / "log").read_text()

    def captures(self, case: str) -> list[str]:
        """Return the names of the captures of a case."""
        return sorted(path.name for path in (self.folder / case).glob("*_memory*.bin"))


def run_cases(environment: Environment, folder: Path, cases: dict[str, dict[str, Any]], **env: str) -> Answers:
    """Run the cases in one process of the environment."""
    home = Home(environment, folder / "airflow", {})
    variables = environment.variables({**home.variables, MEMRAY: "scheduler", **env})
    done = subprocess.run(
        [str(environment.python), str(PROGRAMS / "component_cases.py"), str(folder)],
        input=json.dumps(cases), env=variables, cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return Answers(environment, folder, json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def answers(installed: Callable[[str], Environment], tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Run all cases without memray."""
    return run_cases(installed("airflow"), tmp_path_factory.mktemp("components"), CASES)


@pytest.mark.behaviour("selected_components", "documented_names")
def test_exactly_the_selected_components_are_recorded(answers: Answers) -> None:
    assert answers.captures("selected") == ["scheduler_memory.bin"]
    assert answers.captures("by_heaptides_key") == ["triggerer_memory.bin"]
    assert answers.captures("by_heaptides_variable") == ["scheduler_memory.bin"]
    assert answers.captures("not_selected") == []
    assert answers.results["not_selected"] == {"value": 5, "loaded": False, "memray": False}
    path = answers.folder / "selected" / "scheduler_memory.bin"
    assert f"Heaptide records scheduler into {path}" in answers.log("selected")


@pytest.mark.behaviour("unknown_components")
def test_each_unknown_name_gets_one_warning(answers: Answers) -> None:
    log = answers.log("unknown")
    assert answers.captures("unknown") == ["scheduler_memory.bin"]
    for name in ("'Scheduler'", "''", "'nonsense'"):
        assert log.count(f"Failed to convert value {name}") == 1, log
    assert answers.log("unknown_heaptide_name").count("unknown component 'schedulr'") == 1
    assert answers.captures("unknown_heaptide_name") == []
    assert answers.log("unknown_key").count("[profiling] has no key heaptide_modes: use ") == 1


@pytest.mark.behaviour("no_misleading_warning")
def test_log_does_not_ask_to_install_memray(answers: Answers) -> None:
    for case in ("selected", "plain", "twice"):
        assert "please check the memray is installed" not in answers.log(case)
        assert "Heaptide records" in answers.log(case)


@pytest.mark.behaviour("detailed_tracing")
def test_detailed_tracing_records_native_functions_and_objects(answers: Answers) -> None:
    for case, is_detailed in (("plain", False), ("detailed", True)):
        mode = mode_of(answers, case)
        assert (mode["native"], mode["objects"]) == (is_detailed, is_detailed)
    assert mode_of(answers, "sampled")["sample_bytes"] == 524288


@pytest.mark.behaviour("second_start")
def test_second_start_keeps_the_first_capture(answers: Answers) -> None:
    first, latest = answers.captures("twice")
    assert latest == "dag_processor_memory.bin" and first.startswith("dag_processor_memory.20")
    assert answers.results["twice"]["value"] == 5


@pytest.mark.behaviour("size_limit")
def test_capture_that_reaches_its_maximum_size_is_rotated(answers: Answers) -> None:
    assert answers.results["rotated"]["value"] == 5
    assert len(answers.captures("rotated")) >= 3 and "api_memory.bin" in answers.captures("rotated")


@pytest.mark.behaviour("run_time_control")
def test_component_in_standby_records_on_request(answers: Answers) -> None:
    assert answers.results["standby"]["value"] == 5, answers.results["standby"]
    assert answers.captures("standby") == ["api_memory.bin"]


@pytest.mark.behaviour("shared_home")
def test_second_scheduler_of_a_home_has_its_own_capture(answers: Answers) -> None:
    (answers.folder / "second_scheduler" / "ended").touch()
    (name,) = answers.captures("second_scheduler")
    assert name.startswith("scheduler_memory.") and name != "scheduler_memory.bin"


@pytest.mark.behaviour("failure_does_not_stop")
@pytest.mark.parametrize("case", ["no_folder", "full", "full_for_everything", "no_control_file", "recorded_already"])
def test_component_runs_when_its_recording_fails(case: str, answers: Answers) -> None:
    assert answers.results[case]["value"] == 5, answers.results[case]
    assert answers.log(case).count("api runs without being recorded: ") == 1, answers.log(case)


@pytest.mark.behaviour("failure_does_not_stop")
def test_log_names_the_file_that_cannot_be_written(answers: Answers) -> None:
    file = answers.folder / "no_control_file" / "heaptide" / "control" / "api"
    assert f"api runs without being recorded: could not write to {file}: " in answers.log("no_control_file")


@pytest.mark.behaviour("failure_does_not_stop")
def test_component_that_cannot_be_listed_is_recorded_and_reports_that(answers: Answers) -> None:
    assert answers.results["full_for_lists"]["value"] == 5, answers.results["full_for_lists"]
    log = answers.log("full_for_lists")
    assert "runs without being recorded" not in log and "Heaptide recorded api into" in log, log
    assert log.count("api is recorded, but the page of components does not control it: ") == 1, log


@pytest.mark.behaviour("failure_does_not_stop")
def test_component_does_not_end_a_recording_that_others_started(answers: Answers) -> None:
    assert answers.results["recorded_by_settings"]["value"] == 5, answers.results["recorded_by_settings"]
    assert answers.log("recorded_by_settings").count("api runs without being recorded: ") == 1
    assert "Heaptide recorded" not in answers.log("recorded_by_settings")
    (answers.folder / "recorded_by_settings" / "continued").stat()


@pytest.mark.behaviour("memray_keeps_its_keys")
def test_installed_memray_keeps_its_keys(installed: Callable[[str], Environment], tmp_path: Path) -> None:
    environment = installed("airflow")
    memray_folder = environment.packages(PROGRAMS.parent / "requirements-memray.txt")
    cases = {
        "memray": {"component": "scheduler", "env": {MEMRAY: "scheduler"}},
        "both": {"component": "scheduler", "env": {MEMRAY: "scheduler", HEAPTIDE: "scheduler"}},
        "heaptide": {"component": "api", "env": {MEMRAY: "scheduler", HEAPTIDE: "api"}},
    }
    answers = run_cases(environment, tmp_path, cases, PYTHONPATH=str(memray_folder))
    for case in ("memray", "both"):
        assert answers.results[case] == {"value": 5, "loaded": False, "memray": True}
        assert answers.log(case).count("memray records scheduler: it is installed") == 1
        assert "Memray tracing enabled for scheduler" in answers.log(case)
    assert answers.results["heaptide"] == {"value": 5, "loaded": True, "memray": False}
    assert answers.captures("heaptide") == ["api_memory.bin"]


@pytest.mark.behaviour("inert")
def test_plugin_without_a_selection_is_inert(installed: Callable[[str], Environment], tmp_path: Path) -> None:
    program = """
import sys
from airflow import plugins_manager
from airflow.utils import memray_utils
plugins, errors = plugins_manager._get_plugins()
(plugin,) = [plugin for plugin in plugins if plugin.name == "heaptide"]
assert not errors and plugin.listeners == plugin.fastapi_apps == plugin.external_views == []
assert memray_utils.enable_memray_trace.__module__ == "airflow.utils.memray_utils"
assert "heaptide._native" not in sys.modules and "heaptide.recording" not in sys.modules
print("inert")
"""
    home = Home(installed("airflow"), tmp_path / "home", {})
    (tmp_path / "program.py").write_text(program)
    done = home.environment.run("python", tmp_path / "program.py", cwd=tmp_path, **home.variables)
    assert done.stdout.endswith("inert\n")
    assert not list(home.folder.glob("**/*heaptide*"))


def mode_of(answers: Answers, case: str) -> dict[str, Any]:
    """Return the recording mode of a case's capture."""
    capture = answers.folder / case / "api_memory.bin"
    done = answers.environment.run("heaptide", "transform", "json", "-o", "-", capture, cwd=answers.folder)
    mode: dict[str, Any] = json.loads(done.stdout)["processes"][0]["mode"]
    return mode
