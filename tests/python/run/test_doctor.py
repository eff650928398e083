"""Tests `heaptide doctor`, and the warning about misspelt variables in a recorded program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.commands import heaptide, python
from support.messages import one_sentence

NAMES = ["interpreter", "version", "recording", "this folder", "settings", "attach", "memory limit"]


def examine(folder: Path, **env: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Run the command. Returns its exit code, and sign and sentence of each check."""
    # `heaptide doctor` also checks the version of the `heaptide` on PATH, so PATH contains none.
    done = heaptide("doctor", check=False, cwd=folder, env={**os.environ, "PATH": "/nowhere", **env})
    assert done.stderr == ""
    rows = [(line[:6].strip(), line[6:20].strip(), line[20:]) for line in done.stdout.splitlines()]
    return done.returncode, {name: (sign, sentence) for sign, name, sentence in rows}


def test_doctor_succeeds_where_programs_can_be_recorded(tmp_path: Path) -> None:
    code, checks = examine(tmp_path)
    assert code == 0 and list(checks) == NAMES
    assert checks["recording"] == ("ok", "a test program was recorded")
    assert all(sign in ("ok", "note") for sign, _ in checks.values())


def test_doctor_fails_with_a_misspelt_variable(tmp_path: Path) -> None:
    code, checks = examine(tmp_path, HEAPTIDE_OBJECT="yes")
    assert code == 1
    assert checks["settings"] == ("FAIL", "HEAPTIDE_OBJECT has no effect: did you mean HEAPTIDE_OBJECTS?")
    assert checks["recording"] == ("ok", "a test program was recorded")


def test_doctor_fails_if_the_command_has_another_version(tmp_path: Path) -> None:
    other = tmp_path / "heaptide"
    other.write_text("#!/bin/sh\necho heaptide 0.0.1\n")
    other.chmod(0o755)
    code, checks = examine(tmp_path, PATH=str(tmp_path))
    assert code == 1 and checks["version"][0] == "FAIL" and "0.0.1" in checks["version"][1]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("HEAPTIDE_OBJECT", "HEAPTIDE_OBJECTS"),
        ("HEAPTIDE_SAMPEL", "HEAPTIDE_SAMPLE"),
        ("HEAPTIDE_FOLOW_FROK", "HEAPTIDE_FOLLOW_FORK"),
        ("HEAPTIDE_objects", "HEAPTIDE_OBJECTS"),
    ],
)
def test_misspelt_variable_is_reported_once_in_a_recorded_program(tmp_path: Path, name: str, meant: str) -> None:
    done = python("-c", "print('ran')", cwd=tmp_path, HEAPTIDE="run", HEAPTIDE_QUIET="yes", **{name: "yes"})
    assert done.stdout == "ran\n"
    assert one_sentence(done.stderr) == f"{name} is not a setting of Heaptide; did you mean {meant}?"


def test_other_variables_with_the_prefix_are_not_reported(tmp_path: Path) -> None:
    names = {"HEAPTIDE_FORKY_ROOT": "x", "HEAPTIDE_TEST_WHEEL": "x", "HEAPTIDE_BUCKET": "x"}
    done: subprocess.CompletedProcess[str]
    done = python("-c", "pass", cwd=tmp_path, HEAPTIDE="run", HEAPTIDE_QUIET="yes", **names)
    assert done.stderr == ""
