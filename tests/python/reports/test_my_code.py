"""Tests that findings name the nearest line of the user's own code, also on a machine without that code."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.commands import heaptide, python

pytestmark = pytest.mark.once

LIBRARY = """
def astype(n):
    return bytearray(n)
"""
JOB = """
import frames

def load():
    return frames.astype(30_000_000)

kept = load()
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with a script and, in a virtual environment below it, the library that the script calls."""
    folder = tmp_path / "job"
    site = folder / ".venv" / "lib" / "python3" / "site-packages"
    (site / "frames").mkdir(parents=True)
    (site / "frames" / "__init__.py").write_text(LIBRARY)
    (folder / "etl.py").write_text(JOB)
    return folder


def largest(folder: Path, *program: str, **env: str) -> dict[str, Any]:
    """Record a program, remove its folder, and return the finding about its largest line."""
    site = next(folder.glob("**/site-packages"))
    capture = folder.parent / "job.tide"
    path = os.pathsep.join([str(site), env.pop("PYTHONPATH", "")]).strip(os.pathsep)
    heaptide("run", "-q", "-o", capture, *program, cwd=folder, env={**os.environ, "PYTHONPATH": path, **env})
    shutil.rmtree(folder)
    findings = json.loads(heaptide("stats", "--json", capture).stdout)["heaptide"]["findings"]
    [finding] = [finding for finding in findings if finding["kind"] == "holds_most"]
    return dict(finding)


def test_finding_names_the_line_of_the_script_and_the_line_of_the_library(job: Path) -> None:
    finding = largest(job, "etl.py")
    assert finding["what"] == "load (etl.py:5) holds most at the peak, allocated by astype (frames/__init__.py:3)"
    assert (finding["user"]["function"], finding["user"]["line"]) == ("load", 5)
    assert (finding["place"]["function"], finding["place"]["line"]) == ("astype", 3)


def test_named_package_is_the_users_code(job: Path) -> None:
    finding = largest(job, "etl.py", HEAPTIDE_MY_CODE="other, frames")
    assert finding["what"] == "astype (frames/__init__.py:3) holds most at the peak"


def test_package_of_the_main_module_is_the_users_code_even_if_it_is_installed(job: Path) -> None:
    package = next(job.glob("**/site-packages")) / "etl_package"
    package.mkdir()
    (package / "run.py").write_text(JOB)
    (job / "etl.py").unlink()
    finding = largest(job, "-m", "etl_package.run")
    assert finding["what"].startswith("load (etl_package/run.py:5) holds most at the peak, allocated by astype ")


def test_editable_install_is_the_users_code(job: Path, tmp_path: Path) -> None:
    project = tmp_path / "my project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "steps.py").write_text(JOB)
    installed = next(job.glob("**/site-packages")) / "steps-1.0.dist-info"
    installed.mkdir()
    url = project.as_uri()
    assert "%20" in url
    (installed / "direct_url.json").write_text(json.dumps({"dir_info": {"editable": True}, "url": url}))
    (job / "etl.py").write_text("import steps\n")
    finding = largest(job, "etl.py", PYTHONPATH=str(project / "src"))
    assert finding["what"].startswith("load (steps.py:5) holds most at the peak")


def test_module_in_the_scripts_folder_is_the_users_code_in_a_trackers_capture(job: Path) -> None:
    (job / "body.py").write_text(JOB)
    (job / "etl.py").write_text("import heaptide\nwith heaptide.Tracker('../job.tide'):\n    import body\n")
    site = next(job.glob("**/site-packages"))
    python("etl.py", cwd=job, PYTHONPATH=str(site))
    findings = json.loads(heaptide("stats", "--json", job.parent / "job.tide").stdout)["heaptide"]["findings"]
    [finding] = [finding for finding in findings if finding["kind"] == "holds_most"]
    assert finding["user"]["file"] == str(job / "body.py")


def test_script_that_an_installed_command_runs_is_the_users_code(tmp_path: Path) -> None:
    script = tmp_path / "jobs" / "job.py"
    script.parent.mkdir()
    script.write_text(JOB)
    program = (
        "import sys; from heaptide.recording import user_code\n"
        "command = [sys.prefix + '/bin/runner', 'run', *sys.argv[1:]]\n"
        "print(user_code.describe(command)['user_paths'])"
    )
    shown = python("-c", program, str(script), str(tmp_path / "missing" / "job.py"), cwd=tmp_path).stdout
    assert shown.startswith(f"['{tmp_path}', '{script.parent}'") and "missing" not in shown
