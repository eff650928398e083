"""Tests who can read the files that Heaptide writes, and that no file appears before its header is complete."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import heaptide

pytestmark = pytest.mark.once

_PROGRAM = """\
kept = [bytearray(100_000) for _ in range(20)]
"""


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _python(folder: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_files_are_readable_only_by_their_user_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    (tmp_path / "job.py").write_text(_PROGRAM)

    def run(*words: str) -> None:
        heaptide(*words, cwd=tmp_path, umask=umask)

    run("run", "-q", "--follow-fork", "-o", "x.tide", "job.py")
    run("record", "-q", "-o", "x.timeline", sys.executable, "job.py")
    run("record", "-q", "-o", "x.dat", sys.executable, "job.py")
    run("heap", "take", "-o", "x.heap", "job.py")
    run("flamegraph", "-o", "x.html", "x.tide")
    run("stats", "--json", "-o", "x.json", "x.tide")
    run("transform", "csv", "-o", "x.csv", "x.tide")
    run("plot", "-o", "x.svg", "x.timeline")
    run("heap", "explore", "-o", "heap.html", "x.heap")
    written = [path for path in tmp_path.iterdir() if path.suffix != ".py"]
    assert len(written) >= 9
    assert {path.name: oct(_mode(path)) for path in written} == {path.name: "0o600" for path in written}


def test_overwritten_files_become_readable_only_by_their_user(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(_PROGRAM)
    for words in (
        ["run", "-q", "-f", "-o", "x.tide", "job.py"],
        ["record", "-q", "-f", "-o", "x.timeline", sys.executable, "job.py"],
        ["heap", "take", "-f", "-o", "x.heap", "job.py"],
        ["flamegraph", "-f", "-o", "x.html", "x.tide"],
    ):
        target = tmp_path / words[words.index("-o") + 1]
        target.write_text("earlier")
        target.chmod(0o644)
        heaptide(*words, cwd=tmp_path)
        assert (target.name, oct(_mode(target))) == (target.name, "0o600")
        assert target.read_bytes()[:7] != b"earlier"


def test_files_of_python_functions_are_readable_only_by_their_user(tmp_path: Path) -> None:
    code = """
import os
os.umask(0)
import heaptide
from heaptide import objects

@heaptide.profile_memory(folder="pages")
def work():
    return bytearray(1_000_000)

work()
heaptide.heap_snapshot("x.heap")
objects.show_refs([[1]], filename="refs.svg")
with heaptide.Tracker("x.tide", follow_fork=True):
    if os.fork() == 0:
        os._exit(0)
    os.wait()
"""
    _python(tmp_path, code)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) >= 6
    assert {path.name: oct(_mode(path)) for path in written} == {path.name: "0o600" for path in written}


@pytest.mark.parametrize("force", [False, True])
def test_link_at_the_name_of_a_capture_is_never_followed(tmp_path: Path, force: bool) -> None:
    (tmp_path / "job.py").write_text(_PROGRAM)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name, words in (
        ("x.tide", ["run", "-q", "-o", "x.tide", "job.py"]),
        ("x.timeline", ["record", "-q", "-o", "x.timeline", sys.executable, "job.py"]),
        ("x.heap", ["heap", "take", "-o", "x.heap", "job.py"]),
        ("missing.heap", ["heap", "take", "-o", "missing.heap", "job.py"]),
    ):
        link = tmp_path / name
        link.symlink_to("victim" if name.startswith("x") else "nothing")
        done = heaptide(*words[:2], *(["-f"] if force else []), *words[2:], cwd=tmp_path, check=False)
        assert victim.read_text() == "precious"
        assert not (tmp_path / "nothing").exists()
        assert link.is_symlink() is not force, done.stderr


def test_captures_in_a_group_writable_folder_are_readable_only_by_their_user(tmp_path: Path) -> None:
    home = tmp_path / "airflow"
    home.mkdir()
    home.chmod(0o775)
    (tmp_path / "job.py").write_text(_PROGRAM)
    _python(tmp_path, "x = bytearray(100_000)", HEAPTIDE="run", HEAPTIDE_HOME=str(home), HEAPTIDE_QUIET="1")
    (capture,) = home.iterdir()
    assert _mode(capture) == 0o600


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("x.tide", ["-m", "heaptide", "run", "-q", "-o", "x.tide", "job.py"]),
        ("x.tide", ["-m", "heaptide", "run", "-q", "-f", "-o", "x.tide", "job.py"]),
        ("x.heap", ["-m", "heaptide", "heap", "take", "-o", "x.heap", "job.py"]),
        ("x.heap", ["-c", "import heaptide; heaptide.heap_snapshot('x.heap', fork=True)"]),
        ("x.timeline", ["-m", "heaptide", "record", "-o", "x.timeline", "true"]),
        ("x.dat", ["-m", "heaptide", "record", "-o", "x.dat", "true"]),
    ],
)
def test_kill_between_creation_and_header_leaves_no_file(
    tmp_path: Path, extension: Callable[..., Path], target: str, words: list[str]
) -> None:
    (tmp_path / "job.py").write_text(_PROGRAM)
    killer = str(extension("recording/kill_at_first_write"))
    environment = {**os.environ, "LD_PRELOAD": killer, "PYTHONDONTWRITEBYTECODE": "1"}
    before = sorted(os.listdir(tmp_path))
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True)
    if "fork=True" in words[-1]:
        assert b"ended before it wrote the snapshot" in done.stderr  # only the forked child was killed
    else:
        assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / target).exists()
    assert sorted(os.listdir(tmp_path)) == before


def test_kill_of_a_forked_child_leaves_no_file_of_the_child(tmp_path: Path, extension: Callable[..., Path]) -> None:
    killer = str(extension("recording/kill_at_first_write"))
    # The parent must survive its own header, so the library waits for this variable.
    code = """
import os, heaptide
tracker = heaptide.Tracker("x.tide", follow_fork=True)
tracker.start()
os.environ["KILL_AT_FIRST_WRITE"] = "1"
pid = os.fork()
if pid == 0:
    os._exit(0)
status = os.waitpid(pid, 0)[1]
os.environ["KILL_AT_FIRST_WRITE"] = "0"
tracker.stop()
print(status)
"""
    done = _python(tmp_path, code, LD_PRELOAD=killer, KILL_AT_FIRST_WRITE="0", PYTHONDONTWRITEBYTECODE="1")
    assert int(done.stdout) == signal.SIGKILL
    assert os.listdir(tmp_path) == ["x.tide"]
