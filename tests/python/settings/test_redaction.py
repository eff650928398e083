"""Tests what captures and heap snapshots leave out: texts that match HEAPTIDE_REDACT, and Heaptide's own tokens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import heaptide
from support.controlled_program import ControlledProgram

pytestmark = pytest.mark.once

_SECRET = "ARGSECRET-4711"
_TOKEN = "t0ken-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789"


def _python(folder: Path, *words: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def _command_line(capture: Path) -> str:
    facts = json.loads(heaptide("stats", "--json", capture).stdout)
    return str(facts["metadata"]["command_line"])


def test_redact_setting_applies_to_the_command_line_of_captures(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import sys\nassert 'ARGSECRET-4711' in sys.argv[1]\n")
    words = ["job.py", f"--password={_SECRET}", "--token", _SECRET, "--size", "3"]
    for patterns in ("*secret*", "*password*, *token*"):
        heaptide(
            "run", "-q", "-f", "-o", "x.tide", *words, cwd=tmp_path, env={**os.environ, "HEAPTIDE_REDACT": patterns}
        )
        assert _SECRET.encode() not in (tmp_path / "x.tide").read_bytes()
        assert _SECRET not in heaptide("parse", "x.tide", cwd=tmp_path).stdout
        shown = _command_line(tmp_path / "x.tide")
        assert "job.py '--password=<redacted>'" in shown or "job.py --password=<redacted>" in shown
        assert shown.endswith("--size 3")


def test_redact_setting_applies_to_trackers_the_environment_and_heap_snapshots(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import heaptide, os, sys\n"
        "if not os.environ.get('HEAPTIDE'):\n"
        "    heaptide.Tracker('tracker.tide').start()\n"
        "    heaptide.heap_snapshot('x.heap')\n"
    )
    words = ["job.py", f"--password={_SECRET}"]
    _python(tmp_path, *words, HEAPTIDE_REDACT="*secret*")
    _python(
        tmp_path,
        *words,
        HEAPTIDE_REDACT="*secret*",
        HEAPTIDE="run",
        HEAPTIDE_QUIET="1",
        HEAPTIDE_OUT="environment.tide",
    )
    for name in ("tracker.tide", "environment.tide", "x.heap"):
        content = (tmp_path / name).read_bytes()
        assert _SECRET.encode() not in content and b"<redacted>" in content, name


def test_patterns_of_a_snapshot_apply_to_its_command_line(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("kept = ['ARG' + 'SECRET' + str(n) for n in range(3)]\n")
    words = ["--redact", "*SECRET*", "-o", "x.heap", "job.py", f"--password={_SECRET}"]
    heaptide("heap", "take", "--values", *words, cwd=tmp_path)
    content = (tmp_path / "x.heap").read_bytes()
    assert b"ARGSECRET" not in content and b"<redacted>" in content


def test_redact_setting_also_applies_to_values_of_snapshots(tmp_path: Path) -> None:
    code = """
import sys, heaptide
from heaptide import _native
kept = {"name": "x" * 3 + "PRIVATE" + "y", "other": "pub" + "lic text"}
heaptide.heap_snapshot("x.heap", values=True, redact=["*extra*"])
values = _native.heap_values("x.heap")
assert not any("PRIVATE" in value for value in values), values
assert any("public text" in value for value in values)
"""
    (tmp_path / "job.py").write_text(code)
    # The text is also a constant of the program's code object, which the pattern must cover.
    _python(tmp_path, "job.py", HEAPTIDE_REDACT="*private*")


@pytest.mark.parametrize("way", ["environment", "file", "argument"])
def test_own_token_never_appears_in_a_snapshot_or_a_capture(tmp_path: Path, way: str) -> None:
    environment = {"HEAPTIDE_REDACT": ""}
    argument = ""
    (tmp_path / "token").write_text(_TOKEN + "\n")
    if way == "environment":
        environment["HEAPTIDE_TOKEN"] = _TOKEN
    elif way == "file":
        environment["HEAPTIDE_TOKEN_FILE"] = str(tmp_path / "token")
    else:
        argument = ", token=open('token').read().strip()"
    code = f"""
import sys, heaptide, heaptide.control
control = heaptide.control.start_as_set('0'{argument})
token = open('token').read().strip()
kept = ['Bearer ' + token, 'a long text before the token, so that it is cut ' + token, {{token: 1}}]
heaptide.heap_snapshot('x.heap', values=True)
with heaptide.Tracker('x.tide'):
    pass
print(control.address, flush=True)
sys.stdin.read()
"""
    (tmp_path / "job.py").write_text(code)
    program = ControlledProgram([sys.executable, "job.py", "--token=" + _TOKEN], tmp_path, environment)
    answer = program.ask("POST", "heap", {"values": True}, Authorization=f"Bearer {_TOKEN}")
    program.stop()
    assert answer.status == 200
    for content in (answer.body, (tmp_path / "x.heap").read_bytes(), (tmp_path / "x.tide").read_bytes()):
        assert _TOKEN[:8].encode() not in content
        assert b"<redacted>" in content


def test_redact_setting_applies_to_timelines_and_their_processes(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("kept = [bytearray(100) for _ in range(1_000_000)]\n")
    environment = {**os.environ, "HEAPTIDE_REDACT": "*secret*", "HEAPTIDE_TOKEN": "t0ken-1"}
    for name in ("x.timeline", "x.dat"):
        words = [sys.executable, "job.py", f"--password={_SECRET}", "t0ken-1"]
        heaptide("record", "-q", "-o", name, "--interval", "0.01", *words, cwd=tmp_path, env=environment)
        content = (tmp_path / name).read_text()
        assert _SECRET not in content and "t0ken" not in content
        assert "--password=<redacted>" in content
