"""Tests that other users cannot use the folder of sessions to read or change files of the program's user.

Some of these tests need root, because they change the owner of files with chown.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from pathlib import Path

import pytest
from support.commands import python
from support.controlled_program import ControlledProgram, start_program

pytestmark = pytest.mark.once

OTHER = 65534
PLANTED = "20990101-000000-000-1"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("hunter2")
    path.chmod(0o600)
    return path


def _plant(sessions: Path, secret: Path, *, owner: int) -> Path:
    """Make a session whose capture is a link to the secret."""
    folder = sessions / PLANTED
    folder.mkdir(mode=0o755)
    (folder / "session.json").write_text(json.dumps({"id": PLANTED, "started_unix_ms": 1}))
    (folder / "1.tide").symlink_to(secret)
    for path in (folder, folder / "session.json", folder / "1.tide"):
        os.lchown(path, owner, owner)
    return folder


def _listed(program: ControlledProgram) -> list[str]:
    return [session["id"] for session in program.get("sessions").json()["sessions"]]


@needs_root
def test_folder_for_sessions_of_another_user_is_refused_to_all_but_root() -> None:
    program = f"""
import os, sys
from heaptide import _native
sticky, own = sys.argv[1:]
_native.check_folder(sticky)
os.setuid({OTHER})
_native.check_folder(own)
try:
    _native.check_folder(sticky)
except PermissionError as error:
    print(error)
"""
    # Other users cannot enter the folders of pytest.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for below, owner, mode in (("sticky", OTHER + 1, 0o1777), ("own", OTHER, 0o755)):
            (folder / below).mkdir()
            (folder / below).chmod(mode)
            os.chown(folder / below, owner, owner)
        done = python("-c", program, str(folder / "sticky"), str(folder / "own"), cwd=folder)
    assert f"the folder {folder}/sticky belongs to another user, who can replace its files" in done.stdout


@needs_root
def test_session_folder_of_another_user_is_ignored(tmp_path: Path, program: ControlledProgram, secret: Path) -> None:
    session = program.post("start")["session"]
    program.post("stop")
    _plant(tmp_path / "sessions", secret, owner=OTHER)
    assert _listed(program) == [session]
    for route in ("report", "stats"):
        answer = program.ask("GET", f"sessions/{PLANTED}/{route}")
        assert answer.status == 404 and b"hunter2" not in answer.body
    assert program.ask("DELETE", f"sessions/{PLANTED}", Authorization=program.bearer()).status == 404


def test_link_in_a_session_folder_is_not_a_capture(tmp_path: Path, program: ControlledProgram, secret: Path) -> None:
    program.post("start")
    program.post("stop")
    _plant(tmp_path / "sessions", secret, owner=os.geteuid())
    assert program.get(f"sessions/{PLANTED}").json()["processes"] == []
    answer = program.ask("GET", f"sessions/{PLANTED}/report")
    assert answer.status == 404 and b"hunter2" not in answer.body


@needs_root
def test_capture_of_another_user_in_a_session_folder_is_ignored(
    tmp_path: Path, program: ControlledProgram, secret: Path
) -> None:
    session = program.post("start")["session"]
    program.post("stop")
    planted = tmp_path / "sessions" / session / "1.tide"
    planted.write_text("planted")
    os.chown(planted, OTHER, OTHER)
    shown = program.get(f"sessions/{session}").json()
    assert [process["pid"] for process in shown["processes"]] == [program.process.pid]


def test_session_folder_that_is_a_link_is_ignored(tmp_path: Path, program: ControlledProgram) -> None:
    session = program.post("start")["session"]
    program.post("stop")
    (tmp_path / "sessions" / PLANTED).symlink_to(tmp_path / "sessions" / session)
    assert _listed(program) == [session]


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_sessions_folder_that_others_can_write_is_refused_with_advice(tmp_path: Path, mode: int) -> None:
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    sessions.chmod(mode)
    with pytest.raises(AssertionError, match=r"other users can write to the folder .*chmod go-w"):
        start_program(tmp_path)


def test_sessions_folder_that_becomes_writable_later_is_refused(tmp_path: Path, program: ControlledProgram) -> None:
    program.post("start")
    program.post("stop")
    (tmp_path / "sessions").chmod(0o777)
    for method, route in (("POST", "start"), ("GET", "stats"), ("POST", "heap")):
        answer = program.ask(method, route)
        assert answer.status >= 400 and "chmod go-w" in answer.json()["error"]


def test_sessions_may_be_kept_in_a_sticky_folder(tmp_path: Path) -> None:
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    sessions.chmod(0o1777)
    program = start_program(tmp_path)
    session = program.post("start")["session"]
    program.post("stop")
    assert program.get("stats").status == 200
    assert stat.S_IMODE((sessions / session).stat().st_mode) == 0o700
    # Heaptide uses no temporary file whose name another user could create first.
    assert sorted(os.listdir(sessions)) == [session]
    program.stop()


def _control(folder: Path, **environment: str) -> ControlledProgram:
    """Start a program whose control API keeps its sessions in the default folder."""
    code = "import heaptide.control, sys; c = heaptide.control.start('0'); print(c.address); sys.stdin.read()"
    environment = {"HEAPTIDE_SESSIONS": "", "TMPDIR": str(folder), **environment}
    return ControlledProgram([sys.executable, "-c", code], folder, environment)


def test_private_folder_that_others_can_read_is_made_private(tmp_path: Path) -> None:
    own = tmp_path / f"heaptide-{os.geteuid()}"
    own.mkdir()
    own.chmod(0o755)
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o755)
    program = _control(tmp_path)
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    program.stop()


def test_private_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    own = tmp_path / f"heaptide-{os.geteuid()}"
    own.mkdir()
    own.chmod(0o777)
    with pytest.raises(AssertionError, match=r"other users can write to .*chmod go-rwx"):
        _control(tmp_path)


@needs_root
def test_private_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    own = tmp_path / f"heaptide-{os.geteuid()}"
    own.mkdir()
    os.chown(own, OTHER, OTHER)
    with pytest.raises(AssertionError, match="belongs to another user"):
        _control(tmp_path)


def test_sessions_are_not_kept_in_a_home_that_others_can_write(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o775)
    code = "import heaptide.control as c, sys; print(c._controls[0].address); sys.stdin.read()"
    program = ControlledProgram(
        [sys.executable, "-c", code],
        tmp_path,
        {"HEAPTIDE_SESSIONS": "", "HEAPTIDE_CONTROL": "0", "HEAPTIDE_HOME": str(home), "TMPDIR": str(tmp_path)},
    )
    output = program.post("start")["output"]
    assert Path(output).is_relative_to(tmp_path / f"heaptide-{os.geteuid()}" / "sessions")
    assert list(home.iterdir()) == []
    program.stop()
