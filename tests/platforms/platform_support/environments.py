"""Installs real platforms, each in its own virtual environment, together with the Heaptide under test.

The environment of a platform is `build/platforms/NAME`. It is built from `tests/platforms/NAME/requirements.txt`, which
pins every package, and is rebuilt only if that file or the interpreter changed. It contains the wheel that
HEAPTIDE_TEST_WHEEL names, or a link to the package that the running interpreter imports.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomllib
from make_venv import make_venv

REPOSITORY = Path(__file__).resolve().parents[3]
TESTS = REPOSITORY / "tests" / "platforms"
BUILD = REPOSITORY / "build" / "platforms"
WHEEL_VARIABLE = "HEAPTIDE_TEST_WHEEL"


class Environment:
    """The installed environment of one platform."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.python = self.bin / "python"

    def variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a process, as if the environment were activated."""
        path = f"{self.bin}{os.pathsep}{os.environ.get('PATH', '')}"
        # A HEAPTIDE variable of the test run could activate Heaptide in the process.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEAPTIDE")}
        return {**inherited, "PATH": path, "VIRTUAL_ENV": str(self.folder), **env}

    def run(self, *command: str | Path, cwd: Path, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment; `python` is its interpreter. A failure prints its output."""
        words = self.words(command)
        done = subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=self.variables(env))
        if check and done.returncode != 0:
            pytest.fail(f"{words} ended with {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}")
        return done

    def start(self, *command: str | Path, cwd: Path, env: Mapping[str, str], **options: Any) -> subprocess.Popen[str]:
        """Start a command of the environment. The caller stops it."""
        return subprocess.Popen(self.words(command), text=True, cwd=cwd, env=self.variables(env), **options)

    def packages(self, requirements: Path) -> Path:
        """Return a folder for PYTHONPATH with the packages that a file pins, installed once."""
        folder = self.folder / requirements.stem
        wanted = _digest(requirements)
        if _marker(folder, "requirements") != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            pip = ("python", "-m", "pip", "install", "--quiet", "--no-deps")
            self.run(*pip, "--target", folder, "-r", requirements, cwd=self.folder)
            (folder / ".requirements").write_text(wanted)
        return folder

    def words(self, command: tuple[str | Path, ...]) -> list[str]:
        """Return the command line, with the path of the program if the environment has it."""
        own = self.bin / command[0]
        return [str(own if own.exists() else command[0]), *map(str, command[1:])]


def install(name: str, variables: Mapping[str, str], release: str = "") -> Environment:
    """Return the environment of a platform, built if it is missing; `variables` configure pip.

    `release` selects another release than the default. If the platform cannot be installed, the test fails.
    """
    ending = f"-{release}" if release else ""
    folder = BUILD / f"{name}{ending}"
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f"{folder.name}.lock").open("w") as lock:
        # Two runs of the tests may need the same environment.
        fcntl.flock(lock, fcntl.LOCK_EX)
        requirements = TESTS / name / f"requirements{ending}.txt"
        wanted = _digest(requirements)
        if _marker(folder, "requirements") != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            python = make_venv(folder)
            _pip(name, python, variables, "--no-deps", "-r", str(requirements))
            (folder / ".requirements").write_text(wanted)
        environment = Environment(folder)
        _install_heaptide(name, environment, variables)
    return environment


def _install_heaptide(name: str, environment: Environment, variables: Mapping[str, str]) -> None:
    wheel = os.environ.get(WHEEL_VARIABLE)
    marker = environment.folder / ".heaptide"
    if not wheel:
        marker.unlink(missing_ok=True)
        _link(environment)
    elif _marker(environment.folder, "heaptide") != (wanted := _digest(Path(wheel))):
        for path in _site_packages(environment).glob("heaptide*"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        _pip(name, environment.python, variables, "--no-deps", "--force-reinstall", wheel)
        marker.write_text(wanted)


def _link(environment: Environment) -> None:
    """Link the package that this interpreter imports, and declare its commands and entry points."""
    site = _site_packages(environment)
    for path in site.glob("heaptide*"):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    spec = importlib.util.find_spec("heaptide")
    assert spec is not None and spec.origin is not None, f"install heaptide, or name a wheel in {WHEEL_VARIABLE}"
    sources = Path(spec.origin).resolve().parent
    for entry in (sources, *sources.parent.glob("*.pth")):
        (site / entry.name).symlink_to(entry)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    groups = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    lines = [f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in entries.items()) for group, entries in groups.items()]
    info = site / "heaptide-0.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: heaptide\nVersion: 0.0.0\n")
    (info / "entry_points.txt").write_text("\n".join(lines))
    for script, target in groups["console_scripts"].items():
        module, _, function = target.partition(":")
        path = environment.bin / script
        path.write_text(
            f"#!{environment.python}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        path.chmod(0o755)


def _pip(name: str, python: Path, variables: Mapping[str, str], *words: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
    done = subprocess.run(command, env=dict(variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        pytest.fail(f"the environment of {name} cannot be installed:\n{done.stdout}")


def _site_packages(environment: Environment) -> Path:
    return environment.folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"


def _marker(folder: Path, step: str) -> str:
    marker = folder / f".{step}"
    return marker.read_text() if marker.exists() else ""


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes() + sys.version.encode()).hexdigest()
