"""Walks through Airflow's document on memory profiling, step by step; the command that reads captures is `heaptide`.

Each function is one chapter; they share one home and run in order.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from platform_support.airflow_stack import Home
from platform_support.environments import REPOSITORY, Environment

VARIABLE = "AIRFLOW__PROFILING__MEMRAY_TRACE_COMPONENTS"


@pytest.fixture(scope="module")
def home(installed: Callable[[str], Environment], tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Return a home whose configuration selects nothing yet."""
    return Home(installed("airflow"), tmp_path_factory.mktemp("document") / "home", {})


@pytest.mark.behaviour("document", "selected_components", "documented_names")
def test_steps_one_to_four_enable_restart_run_and_retrieve(home: Home) -> None:
    config = home.folder / "airflow.cfg"
    config.write_text(config.read_text().replace("[profiling]\n", "[profiling]\nmemray_trace_components = scheduler\n"))
    done = home.run("scheduler", "--num-runs", "2")
    assert home.captures()[0] == "scheduler_memory.bin"
    assert f"Heaptide records scheduler into {home.folder}/scheduler_memory.bin" in done.stdout + done.stderr
    assert not [name for name in home.captures() if not name.startswith("scheduler_memory.bin")]


@pytest.mark.behaviour("document", "reports")
def test_step_five_analyze_the_profile(home: Home) -> None:
    capture = home.folder / "scheduler_memory.bin"
    home.heaptide("flamegraph", capture)
    assert (home.folder / "heaptide-flamegraph-scheduler_memory.html").read_text().startswith("<!")
    for report in ("table", "summary", "stats", "tree"):
        home.heaptide(report, capture)
    assert "scheduler_job_runner" in home.heaptide("tree", capture).stdout + home.heaptide("stats", capture).stdout


@pytest.mark.behaviour("document", "second_start")
def test_second_start_with_a_variable_keeps_the_first_capture(home: Home) -> None:
    first = (home.folder / "scheduler_memory.bin").read_bytes()
    home.run("scheduler", "--num-runs", "1", **{VARIABLE: "scheduler,dag_processor,api"})
    (earlier,) = home.folder.glob("scheduler_memory.20*.bin")
    assert earlier.read_bytes() == first
    assert (home.folder / "scheduler_memory.bin").read_bytes() != first


@pytest.mark.behaviour("document", "inert")
def test_empty_list_disables_profiling(home: Home) -> None:
    before = {name: (home.folder / name).stat().st_mtime for name in home.captures()}
    done = home.run("scheduler", "--num-runs", "1", **{VARIABLE: ""})
    assert {name: (home.folder / name).stat().st_mtime for name in home.captures()} == before
    assert "heaptide" not in (done.stdout + done.stderr).lower()


@pytest.mark.behaviour("guide")
def test_example_of_the_guide_selects_the_named_tasks_and_components(home: Home) -> None:
    guide = (REPOSITORY / "docs" / "guide" / "platforms" / "airflow.md").read_text()
    (home.folder / "airflow.cfg").write_text(guide.partition("```ini\n")[2].partition("```")[0])
    program = """
from heaptide.platforms.airflow import profiling
chosen = profiling.current()
tasks = [("etl", "any"), ("reports", "load_one"), ("reports", "other"), ("other", "load")]
print([chosen.selects_task(*task) for task in tasks], chosen.heaptide_components)
"""
    done = home.environment.run("python", "-c", program, cwd=home.folder, **home.variables)
    assert done.stdout.endswith("[True, True, False, False] ['scheduler', 'dag_processor']\n")
