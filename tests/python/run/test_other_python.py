"""Tests `heaptide run` with the interpreter of an environment that lacks Heaptide: `--python`, and `VIRTUAL_ENV`."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import heaptide as package
import pytest
from support.commands import heaptide
from support.messages import one_sentence
from support.run_twice import write

pytestmark = pytest.mark.once

JOB = """
import importlib.util, json, os, sys
import only_here
print(json.dumps([sys.prefix, sys.argv, os.environ.get("PYTHONPATH"), importlib.util.find_spec("pytest") is None]))
held = only_here.hold()
raise SystemExit(3)
"""


def environment(folder: Path) -> Path:
    """Create a virtual environment without pip, and return its folder for packages."""
    venv.create(folder, symlinks=True, with_pip=False)
    return next(folder.glob("lib/python*/site-packages"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose own environment has a package and lacks Heaptide."""
    folder = tmp_path_factory.mktemp("project")
    packages = environment(folder / ".venv")
    write(packages / "only_here.py", "def hold():\n    return bytearray(5_000_000)\n")
    write(folder / "job.py", JOB)
    return folder


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with only Heaptide, as `uv tool install` creates it."""
    folder = tmp_path_factory.mktemp("tool")
    (environment(folder) / "heaptide").symlink_to(Path(package.__file__).parent)
    write(folder / "uv-receipt.toml", "")
    return folder / "bin" / "python"


def assert_recorded_in_project(done: subprocess.CompletedProcess[str], project: Path, capture: Path) -> None:
    """Check that the program was recorded and ran in the project's environment, without Heaptide's packages."""
    assert done.returncode == 3, done.stderr
    assert done.stdout == f'["{project}/.venv", ["job.py", "a"], null, true]\n'
    assert "hold:" in heaptide("stats", capture).stdout
    assert "hold (only_here.py:2)" in done.stderr and "allocated by" in done.stderr


def test_program_runs_with_the_named_interpreter(tmp_path: Path, project: Path) -> None:
    capture = tmp_path / "job.tide"
    python = project / ".venv" / "bin" / "python"
    for named in (python, os.path.relpath(python, project)):
        words = ["run", "-f", "-o", capture, "--python", named, "job.py", "a"]
        done = heaptide(*words, check=False, cwd=project)
        assert_recorded_in_project(done, project, capture)


def test_installed_tool_uses_the_active_environment(tmp_path: Path, project: Path, tool: Path) -> None:
    capture = tmp_path / "job.tide"
    command = [tool, "-m", "heaptide", "run", "-o", capture, "job.py", "a"]
    env = {**os.environ, "VIRTUAL_ENV": f"{project}/.venv"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=project, env=env)
    assert_recorded_in_project(done, project, capture)
    assert f"heaptide: running with {project}/.venv/bin/python" in done.stderr.splitlines()[0]


def test_other_environments_ignore_the_active_one(tmp_path: Path, project: Path) -> None:
    env = {**os.environ, "VIRTUAL_ENV": f"{project}/.venv"}
    done = heaptide("run", "-q", "-o", tmp_path / "job.tide", "-c", "import sys; print(sys.prefix)", env=env)
    assert done.stdout == f"{sys.prefix}\n"


def test_missing_interpreter_is_reported(tmp_path: Path) -> None:
    done = heaptide("run", "--python", tmp_path / "missing", "-c", "print('ran')", check=False)
    assert (done.returncode, done.stdout) == (125, "")
    assert "missing" in one_sentence(done.stderr)


def test_program_in_the_environment_of_a_tool_learns_why_a_module_is_missing(project: Path, tool: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    for target in (["job.py"], ["-m", "only_here"]):
        command = [tool, "-m", "heaptide", "run", "-q", "-f", "-o", "missing.tide", *target]
        done = subprocess.run(command, capture_output=True, text=True, cwd=project, env=env)
        assert done.returncode == 1 and "No module named" in done.stderr
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("heaptide: ")]
        assert f"ran with {tool}, which lacks the packages" in line and "use --python .venv/bin/python" in line


def test_missing_module_is_not_explained_in_other_environments(tmp_path: Path, project: Path) -> None:
    done = heaptide("run", "-q", "-o", tmp_path / "job.tide", project / "job.py", check=False)
    assert done.returncode == 1 and "heaptide:" not in done.stderr


def test_environment_of_uvx_uses_the_active_one(tmp_path: Path, project: Path) -> None:
    folder = tmp_path / "archive-v0" / "vUx1"
    (environment(folder) / "heaptide").symlink_to(Path(package.__file__).parent)
    capture = tmp_path / "job.tide"
    command = [folder / "bin" / "python", "-m", "heaptide", "run", "-o", capture, "job.py", "a"]
    env = {**os.environ, "VIRTUAL_ENV": f"{project}/.venv"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=project, env=env)
    assert_recorded_in_project(done, project, capture)


def test_doctor_names_the_environment_of_a_tool(tool: Path) -> None:
    done = subprocess.run([tool, "-m", "heaptide", "doctor"], capture_output=True, text=True)
    (line,) = [line for line in done.stdout.splitlines() if " interpreter " in line]
    assert line.startswith("note") and "environment of a tool" in line and "--python" in line
