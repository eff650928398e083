"""Tests that one module in `platforms/` is enough to support a platform."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from heaptide import platforms, settings
from heaptide.activation import components, config_files
from heaptide.commands import worker
from heaptide.recording import capture_files
from support.commands import python

pytestmark = pytest.mark.once

GEARMAN = """
from heaptide.platforms import Platform

PLATFORM = Platform(
    variables={"trace_components": "GEARMAN_MEMORY_COMPONENTS", "keep": "GEARMAN_MEMORY_KEEP"},
    documented={"GEARMAN_MEMORY_CONFIG": "Gearman's file"},
    config_file=lambda environment: environment.get("GEARMAN_MEMORY_CONFIG", ""),
    config_section="memory",
    config_names={"objects": "every_object"},
    components={"beat": "gearman * beat"},
    home="/var/lib/gearman",
    task_methods={"apply": "message"},
)
"""


@pytest.fixture
def gearman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A platform that is one file."""
    (tmp_path / "gearman.py").write_text(GEARMAN)
    monkeypatch.setattr(platforms, "__path__", [*platforms.__path__, str(tmp_path)])
    yield
    sys.modules.pop("heaptide.platforms.gearman", None)
    vars(platforms).pop("gearman", None)


def load(**environment: str) -> settings.Settings:
    """Return the settings of a process with this environment."""
    return settings.resolve(environment, config_files.find({"HEAPTIDE_CONFIG": "off", **environment}))


@pytest.mark.usefixtures("gearman")
def test_variables_of_a_new_platform_set_values() -> None:
    assert "gearman" in platforms.names()
    assert load(GEARMAN_MEMORY_KEEP="7").keep == 7
    assert load(GEARMAN_MEMORY_KEEP="7", HEAPTIDE_KEEP="8").keep == 8
    rows = [name for setting in settings.ALL for name in setting.environment_names(platforms.all_platforms())]
    assert "GEARMAN_MEMORY_KEEP" in rows


@pytest.mark.usefixtures("gearman")
def test_configuration_file_of_a_new_platform_sets_values(tmp_path: Path) -> None:
    (tmp_path / "gearman.ini").write_text("[memory]\nevery_object = yes\n")
    assert load(GEARMAN_MEMORY_CONFIG=str(tmp_path / "gearman.ini")).objects is True


@pytest.mark.usefixtures("gearman")
def test_components_of_a_new_platform_are_recorded_in_its_home(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = load(GEARMAN_MEMORY_COMPONENTS="beat")
    assert components.selected(chosen) == ["beat"]
    monkeypatch.setattr(sys, "orig_argv", ["python", "/usr/bin/gearman", "-A", "shop", "beat"])
    assert components.matched(chosen) == "beat"
    assert capture_files.home(chosen) == "/var/lib/gearman"


@pytest.mark.usefixtures("gearman")
def test_worker_runs_tasks_of_a_new_platform() -> None:
    class Task:
        def apply(self, message: dict[str, int]) -> int:
            return message["n"]

    call = worker._callable("shop:Task", Task, {"n": 3})
    assert call.function(**call.params) == 3


def test_start_without_platform_variables_imports_no_platform(tmp_path: Path) -> None:
    code = "import sys; print([name for name in sys.modules if name.startswith('heaptide.platforms.')])"
    assert python("-c", code, cwd=tmp_path, HEAPTIDE_KEEP="3").stdout == "[]\n"
    done = python("-c", code, cwd=tmp_path, HEAPTIDE_KEEP="3", MRQ_GREENLETS="2")
    assert done.stdout == "['heaptide.platforms.mrq']\n"
