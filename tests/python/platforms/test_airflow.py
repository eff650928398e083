"""Tests how components of Airflow are selected and recorded, and that a failing profiler never stops them.

`PROGRAM` imitates a component, so these tests do not need Airflow.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.commands import heaptide, python
from support.messages import one_sentence

BLOCK_SIZE = 3_000_000 + sys.getsizeof(b"")

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
HEAPTIDE_ENV = "HEAPTIDE__PROFILING__TRACE_COMPONENTS"


def component(folder: Path, name: str, check: bool = True, **env: str) -> tuple[bool, str]:
    """Run a component. Returns whether the extension module was loaded, and the standard error."""
    (folder / "service.py").write_text(PROGRAM)
    done = python("service.py", name, cwd=folder, check=check, **env)
    value, loaded, *rest = done.stdout.split()
    assert (value, rest) == ("5", ["run", "Run."])
    return loaded == "True", done.stderr


def has_block(capture: Path) -> bool:
    """Return whether a capture contains the block that the program allocates."""
    return f" size={BLOCK_SIZE} " in heaptide("parse", capture).stdout


@pytest.mark.once
@pytest.mark.parametrize("source", [ENV, HEAPTIDE_ENV, "airflow.cfg"])
def test_only_the_selected_components_load_the_profiler_and_are_recorded(tmp_path: Path, source: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    env = {"AIRFLOW_HOME": str(home)}
    configuration = home / "airflow.cfg"
    configuration.write_text("[profiling]\n")
    if source == "airflow.cfg":
        configuration.write_text("[profiling]\nmemray_trace_components = scheduler , api\n")
    else:
        env[source] = " scheduler , api"
    assert component(tmp_path, "dag_processor", **env) == (False, "")
    assert os.listdir(home) == [configuration.name]
    for name in ("scheduler", "api"):
        loaded, _ = component(tmp_path, name, **env)
        assert loaded and has_block(home / f"{name}_memory.bin")
    captures = {"scheduler_memory.bin", "api_memory.bin"}
    assert set(os.listdir(home)) == {configuration.name, *captures}


@pytest.mark.once
def test_empty_variable_deselects_the_components_of_the_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "airflow.cfg").write_text("[profiling]\nmemray_trace_components = triggerer\n")
    assert component(tmp_path, "triggerer", AIRFLOW_HOME=str(tmp_path), **{ENV: ""}) == (False, "")
    assert list(tmp_path.glob("*.bin")) == []
    assert component(tmp_path, "triggerer", AIRFLOW_HOME=str(tmp_path))[0]
    assert has_block(tmp_path / "triggerer_memory.bin")


@pytest.mark.once
def test_unknown_components_are_reported_once_each_and_ignored(tmp_path: Path) -> None:
    loaded, stderr = component(
        tmp_path, "scheduler", **{ENV: "Scheduler,dag-processor,,api"}, AIRFLOW_HOME=str(tmp_path)
    )
    assert not loaded and stderr.count("\n") == 3
    for name in ("'Scheduler'", "'dag-processor'", "''"):
        assert stderr.count(f"unknown component {name} in trace_components") == 1, stderr
    assert "api, dag_processor, scheduler, triggerer" in stderr


@pytest.mark.once
def test_profiler_is_not_imported_unless_configured(tmp_path: Path) -> None:
    assert component(tmp_path, "scheduler") == (False, "")
    assert sorted(os.listdir(tmp_path)) == ["service.py"]


@pytest.mark.parametrize("name", ["scheduler", "dag_processor", "api", "triggerer"])
def test_capture_is_in_airflow_home_under_its_documented_name(name: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    _, stderr = component(tmp_path, name, **{ENV: name}, AIRFLOW_HOME=str(home))
    capture = home / f"{name}_memory.bin"
    assert os.listdir(home) == [capture.name] and has_block(capture)
    assert stderr == f"heaptide: component {name}: recording into {capture}\n"


@pytest.mark.once
def test_detailed_tracing_records_every_object_and_native_functions(tmp_path: Path) -> None:
    for word, objects in (("True", "true"), ("f", "false")):
        env = {ENV: "api", "AIRFLOW__PROFILING__MEMRAY_DETAILED_TRACING": word}
        component(tmp_path, "api", AIRFLOW_HOME=str(tmp_path), **env)
        head = heaptide("parse", tmp_path / "api_memory.bin").stdout.splitlines()[0]
        assert f" objects={objects} " in head and f" native={objects}" in head


@pytest.mark.once
def test_component_runs_when_its_capture_or_settings_fail(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    _, stderr = component(tmp_path, "api", **{ENV: "api"}, AIRFLOW_HOME=str(tmp_path / "file" / "home"))
    assert one_sentence(stderr).startswith("component api: ")
    (tmp_path / "folder" / "api_memory.bin").mkdir(parents=True)
    _, stderr = component(tmp_path, "api", **{ENV: "api"}, AIRFLOW_HOME=str(tmp_path / "folder"))
    assert "it runs without being recorded" in one_sentence(stderr)
    _, stderr = component(tmp_path, "api", **{ENV: "api"}, AIRFLOW_HOME=str(tmp_path), HEAPTIDE_OBJECTS="perhaps")
    assert "HEAPTIDE_OBJECTS is 'perhaps'" in stderr and has_block(tmp_path / "api_memory.bin")


@pytest.mark.once
def test_component_runs_with_a_warning_when_the_profiler_cannot_be_loaded(tmp_path: Path) -> None:
    broken = "import sys; sys.modules['heaptide._native'] = None"
    (tmp_path / "sitecustomize.py").write_text(broken)
    _, stderr = component(tmp_path, "api", **{ENV: "api"}, AIRFLOW_HOME=str(tmp_path), PYTHONPATH=str(tmp_path))
    assert one_sentence(stderr).startswith("component api: ")


@pytest.mark.once
def test_full_disk_does_not_stop_the_component(tmp_path: Path) -> None:
    _, stderr = component(tmp_path, "api", **{ENV: "api"}, HEAPTIDE_OUT="/dev/full")
    assert "it runs without being recorded" in stderr


@pytest.mark.once
def test_restart_keeps_earlier_captures_under_a_time_stamp(tmp_path: Path) -> None:
    seen = set()
    for n_starts in range(1, 5):
        component(tmp_path, "api", **{ENV: "api"}, AIRFLOW_HOME=str(tmp_path), HEAPTIDE_KEEP="2")
        names = sorted(name for name in os.listdir(tmp_path) if name.endswith(".bin"))
        assert "api_memory.bin" in names and len(names) == min(n_starts, 3)
        seen.update(names)
    assert len(seen) == 4  # the latest, and three earlier ones that were renamed
    assert all(has_block(tmp_path / name) for name in names)
    component(tmp_path, "api", **{ENV: "api"}, AIRFLOW_HOME=str(tmp_path), HEAPTIDE_KEEP="0")
    assert [name for name in os.listdir(tmp_path) if name.endswith(".bin")] == ["api_memory.bin"]


@pytest.mark.once
def test_capture_that_another_process_renames_at_the_same_time_is_no_failure(tmp_path: Path) -> None:
    program = """
import os
from heaptide.recording import capture_files

path, exists = os.path.abspath("api_memory.bin"), os.path.exists
for name in (path, path + ".17"):
    open(name, "x").close()

def exists_but_not_for_long(name):
    found = exists(name)
    if name == path:
        os.rename(path, "renamed.bin")
    return found

os.path.exists = exists_but_not_for_long
capture_files.make_room(path, 5)
print(*sorted(os.listdir()))
"""
    assert python("-c", program, cwd=tmp_path).stdout.split() == ["api_memory.bin.17", "renamed.bin"]


@pytest.mark.once
def test_reports_of_a_component_are_written_next_to_its_capture(tmp_path: Path) -> None:
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
def test_component_is_recognised_by_its_command_line(tmp_path: Path) -> None:
    (tmp_path / "heaptide.cfg").write_text(
        "[profiling]\ntrace_components = worker\n[components]\nworker = job.py work*\nweb = job.py serve\n"
    )
    (tmp_path / "job.py").write_text("held = bytes(3_000_000)\n")
    python("-X", "utf8", "-W", "ignore", "job.py", "serve", cwd=tmp_path)
    assert list(tmp_path.glob("*.bin")) == []
    done = python("-X", "utf8", "-W", "ignore", "-B", tmp_path / "job.py", "worker", "--fast", cwd=tmp_path)
    assert "component worker: recording into" in done.stderr
    assert has_block(tmp_path / "worker_memory.bin")


@pytest.mark.once
def test_guide_lists_every_key_of_the_profiling_section() -> None:
    from heaptide.platforms.airflow import profiling

    guide = Path(__file__).resolve().parents[3] / "docs" / "guide" / "platforms" / "airflow.md"
    listed = {line.split("`")[1] for line in guide.read_text().splitlines() if line.startswith("| `")}
    assert {name for name in listed if name.startswith("heaptide_")} == set(profiling.KEYS)
