"""Components of a service: selected by configuration, recorded under their documented name, never stopped by us.

The rows are those of Airflow's checklist; the program below is built as Airflow's components are.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.commands import heaptide, python

SIZE = 3_000_000 + sys.getsizeof(b"")

PROGRAM = """
import sys
import heaptide

@heaptide.component(sys.argv[1])
def run(value: int) -> int:
    "Run."
    global held
    held = bytes(3_000_000)
    return value

print(run(5), "heaptide._native" in sys.modules, run.__name__, run.__doc__)
"""
ENV = "AIRFLOW__PROFILING__MEMRAY_TRACE_COMPONENTS"
OURS = "HEAPTIDE__PROFILING__TRACE_COMPONENTS"


def component(folder: Path, name: str, check: bool = True, **env: str) -> tuple[bool, str]:
    """Run a component. Returns whether the native part was loaded, and what was said."""
    (folder / "service.py").write_text(PROGRAM)
    done = python("service.py", name, cwd=folder, check=check, **env)
    value, loaded, *rest = done.stdout.split()
    assert (value, rest) == ("5", ["run", "Run."])
    return loaded == "True", done.stderr


def has_block(capture: Path) -> bool:
    return f" size={SIZE} " in heaptide("parse", capture).stdout


@pytest.mark.once
def test_A1_exactly_the_selected_components_are_recorded(tmp_path: Path) -> None:
    for env in ({ENV: " scheduler , api"}, {OURS: "scheduler,api"}):
        assert component(tmp_path, "scheduler", AIRFLOW_HOME=str(tmp_path), **env)[0]
        assert component(tmp_path, "dag_processor", AIRFLOW_HOME=str(tmp_path), **env) == (False, "")
    (tmp_path / "airflow.cfg").write_text("[profiling]\nmemray_trace_components = triggerer\n")
    assert component(tmp_path, "triggerer", AIRFLOW_HOME=str(tmp_path))[0]
    assert component(tmp_path, "triggerer", AIRFLOW_HOME=str(tmp_path), **{ENV: ""}) == (False, "")


@pytest.mark.once
def test_A1_unknown_names_are_told_once_each_and_ignored(tmp_path: Path) -> None:
    loaded, said = component(tmp_path, "scheduler", **{ENV: "Scheduler,dag-processor,,api"}, AIRFLOW_HOME=str(tmp_path))
    assert not loaded and said.count("\n") == 3
    for name in ("'Scheduler'", "'dag-processor'", "''"):
        assert said.count(f"trace_components names {name}, which is no component") == 1, said
    assert "api, dag_processor, scheduler, triggerer" in said


@pytest.mark.once
def test_A1_unset_means_the_profiler_is_never_imported(tmp_path: Path) -> None:
    assert component(tmp_path, "scheduler") == (False, "")
    assert sorted(os.listdir(tmp_path)) == ["service.py"]


@pytest.mark.parametrize("name", ["scheduler", "dag_processor", "api", "triggerer"])
def test_A2_capture_lies_in_the_home_under_its_documented_name(name: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    _, said = component(tmp_path, name, **{ENV: name}, AIRFLOW_HOME=str(home))
    capture = home / f"{name}_memory.bin"
    assert os.listdir(home) == [capture.name] and has_block(capture)
    assert said == f"heaptide: component {name}: recording into {capture}\n"


@pytest.mark.once
def test_A3_detailed_tracing_records_every_object_and_native_functions(tmp_path: Path) -> None:
    for word, objects in (("True", "true"), ("f", "false")):
        env = {ENV: "api", "AIRFLOW__PROFILING__MEMRAY_DETAILED_TRACING": word}
        component(tmp_path, "api", AIRFLOW_HOME=str(tmp_path), **env)
        head = heaptide("parse", tmp_path / "api_memory.bin").stdout.splitlines()[0]
        assert f" objects={objects} " in head and f" native={objects}" in head


@pytest.mark.once
def test_A4_whatever_fails_the_component_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    _, said = component(tmp_path, "api", **{ENV: "api"}, AIRFLOW_HOME=str(tmp_path / "file" / "home"))
    assert said.startswith("heaptide: component api: ") and said.count("\n") == 1
    (tmp_path / "folder" / "api_memory.bin").mkdir(parents=True)
    _, said = component(tmp_path, "api", **{ENV: "api"}, AIRFLOW_HOME=str(tmp_path / "folder"))
    assert "it runs without being recorded" in said and said.count("\n") == 1
    _, said = component(tmp_path, "api", **{ENV: "api"}, AIRFLOW_HOME=str(tmp_path), HEAPTIDE_OBJECTS="perhaps")
    assert "HEAPTIDE_OBJECTS is 'perhaps'" in said and has_block(tmp_path / "api_memory.bin")


@pytest.mark.once
def test_A4_profiler_that_cannot_be_loaded_is_a_warning(tmp_path: Path) -> None:
    broken = "import sys; sys.modules['heaptide._native'] = None"
    (tmp_path / "sitecustomize.py").write_text(broken)
    loaded = component(tmp_path, "api", **{ENV: "api"}, AIRFLOW_HOME=str(tmp_path), PYTHONPATH=str(tmp_path))
    assert "component api: " in loaded[1] and loaded[1].count("\n") == 1


@pytest.mark.once
def test_A4_full_disk_does_not_stop_the_component(tmp_path: Path) -> None:
    _, said = component(tmp_path, "api", **{ENV: "api"}, HEAPTIDE_OUT="/dev/full")
    assert "it runs without being recorded" in said


@pytest.mark.once
def test_A5_second_start_keeps_the_first_capture_under_a_time_stamp(tmp_path: Path) -> None:
    seen = set()
    for n_starts in range(1, 5):
        component(tmp_path, "api", **{ENV: "api"}, AIRFLOW_HOME=str(tmp_path), HEAPTIDE_KEEP="2")
        names = sorted(name for name in os.listdir(tmp_path) if name.endswith(".bin"))
        assert "api_memory.bin" in names and len(names) == min(n_starts, 3)
        seen.update(names)
    assert len(seen) == 4  # the latest, and the three that made room for it
    assert all(has_block(tmp_path / name) for name in names)
    component(tmp_path, "api", **{ENV: "api"}, AIRFLOW_HOME=str(tmp_path), HEAPTIDE_KEEP="0")
    assert [name for name in os.listdir(tmp_path) if name.endswith(".bin")] == ["api_memory.bin"]


@pytest.mark.once
def test_A11_reports_of_a_component_lie_beside_its_capture(tmp_path: Path) -> None:
    component(tmp_path, "scheduler", **{ENV: "scheduler"}, AIRFLOW_HOME=str(tmp_path))
    capture = tmp_path / "scheduler_memory.bin"
    for report in ("flamegraph", "table"):
        heaptide(report, capture, cwd=tmp_path.parent)
        assert (tmp_path / f"heaptide-{report}-scheduler_memory.html").read_text().startswith("<!")
    for report in ("summary", "stats", "tree"):
        assert "service.py" in heaptide(report, capture).stdout


@pytest.mark.once
def test_component_is_a_context_manager_and_decorates_async_functions(tmp_path: Path) -> None:
    program = """
import asyncio, os, heaptide

@heaptide.component("worker")
async def work():
    await asyncio.sleep(0)
    assert heaptide.active()
    return bytes(3_000_000)

assert len(asyncio.run(work())) == 3_000_000 and not heaptide.active()
try:
    with heaptide.component("worker"):
        assert heaptide.active()
        with heaptide.component("worker"): pass
        assert heaptide.active()
        raise KeyError("mine")
except KeyError as error:
    assert error.args == ("mine",)
assert not heaptide.active() and "HEAPTIDE_SESSION" not in os.environ
"""
    (tmp_path / "heaptide.toml").write_text('[profiling]\ntrace_components = ["worker"]\n')
    python("-c", program, cwd=tmp_path)
    assert len(list(tmp_path.glob("worker_memory*.bin"))) == 2


@pytest.mark.once
def test_component_is_found_by_its_command_line(tmp_path: Path) -> None:
    (tmp_path / "heaptide.cfg").write_text(
        "[profiling]\ntrace_components = worker\n[components]\nworker = job.py work*\nweb = job.py serve\n"
    )
    (tmp_path / "job.py").write_text("held = bytes(3_000_000)\n")
    python("-X", "utf8", "-W", "ignore", "job.py", "serve", cwd=tmp_path)
    assert list(tmp_path.glob("*.bin")) == []
    done = python("-X", "utf8", "-W", "ignore", "-B", tmp_path / "job.py", "worker", "--fast", cwd=tmp_path)
    assert "component worker: recording into" in done.stderr
    assert has_block(tmp_path / "worker_memory.bin")
