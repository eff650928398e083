"""Tests that the installed wheel does nothing at interpreter start-up, unless a setting requires it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import heaptide, python, session_id
from support.messages import one_sentence

SIZE = 3_000_000 + sys.getsizeof(b"")
LOADED = "import sys; print(sorted(name for name in sys.modules if name.partition('.')[0] == 'heaptide'))"


def captures(folder: Path) -> list[Path]:
    """Return the captures in a folder."""
    return sorted(path for path in folder.iterdir() if ".tide" in path.name or ".bin" in path.name)


def has_block(capture: Path, size: int = SIZE) -> bool:
    """Return whether a capture contains a block of this size."""
    return f" size={size} " in heaptide("parse", capture).stdout


@pytest.mark.once
def test_interpreter_without_settings_imports_nothing_of_heaptide(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert python("-W", "error", "-c", LOADED, cwd=tmp_path).stdout == "[]\n"


@pytest.mark.once
def test_settings_without_effect_do_not_load_the_extension_module(tmp_path: Path) -> None:
    loaded = python("-c", LOADED, cwd=tmp_path, HEAPTIDE="off", HEAPTIDE_KEEP="3").stdout
    assert (
        "heaptide.settings" in loaded
        and "heaptide._native" not in loaded
        and "heaptide.recording.tracker" not in loaded
    )


def test_run_records_the_program_and_its_children_in_one_session(tmp_path: Path, stats: Any) -> None:
    (tmp_path / "job.py").write_text(
        "import multiprocessing, subprocess, sys\n"
        "def work(): held.append(bytes(3_000_000))\n"
        "held = []\n"
        "if __name__ == '__main__':\n"
        "    work()\n"
        "    subprocess.run([sys.executable, '-c', 'held = bytes(3_000_000)'], check=True)\n"
        "    child = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    child.start(); child.join()\n"
        "    raise SystemExit(7)\n"
    )
    done = python("job.py", cwd=tmp_path, check=False, HEAPTIDE="run")
    assert (done.returncode, done.stdout) == (7, "")
    found = captures(tmp_path)
    assert len(found) == 3, found
    root = found[0]
    assert [path.name.rpartition(".")[0] for path in found[1:]] == [root.name] * 2
    assert len({session_id(path) for path in found}) == 1
    assert all(has_block(path) for path in found)
    assert done.stderr == f"heaptide: recorded into {root}; inspect it with: heaptide stats {root}\n"
    locations = [site["location"] for site in stats(root)["top_allocations_by_size"]]
    assert f"work:{tmp_path}/job.py:2" in locations


@pytest.mark.once
@pytest.mark.parametrize("source", ["environment", "file"])
def test_settings_can_exclude_children(tmp_path: Path, source: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'pass'], check=True, cwd='elsewhere')"
    words = {"HEAPTIDE": "run"}
    if source == "environment":
        words["HEAPTIDE_CHILDREN"] = "no"
    else:  # a file that a child in another folder does not find
        (tmp_path / "heaptide.toml").write_text("[profiling]\nchildren = false\n")
    python("-c", code, cwd=tmp_path, **words)
    assert len(captures(tmp_path)) == 1 and not list((tmp_path / "elsewhere").iterdir())


def test_process_that_executes_other_programs_stays_in_its_session(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import os, sys\n"
        "turn = int(sys.argv[1])\n"
        "held = bytes(3_000_000 + turn)\n"
        "if turn < 3: os.execv(sys.executable, [sys.executable, 'job.py', str(turn + 1)])\n"
    )
    done = python("job.py", "1", cwd=tmp_path, HEAPTIDE="run", HEAPTIDE_OUT="job.tide")
    found = captures(tmp_path)
    pid = found[1].name.removeprefix("job.tide.")
    assert pid.isdecimal() and [path.name for path in found] == ["job.tide", f"job.tide.{pid}", f"job.tide.{pid}-2"]
    assert [has_block(path, SIZE + turn) for turn, path in enumerate(found, 1)] == [True] * 3
    assert len({session_id(path) for path in found}) == 1
    assert done.stderr == f"heaptide: recorded into {found[2]}; inspect it with: heaptide stats {found[2]}\n"


@pytest.mark.parametrize("command", ["HEAPTIDE=run", "HEAPTIDE_FOLLOW_FORK", "heaptide run --follow-fork"])
@pytest.mark.parametrize("start", ["os.fork()", "os.posix_spawn(sys.executable, command, os.environ)"])
def test_child_that_executes_another_program_stays_in_the_session(tmp_path: Path, command: str, start: str) -> None:
    # Like the workers of Ray, the child prepares something and then executes the actual program.
    (tmp_path / "job.py").write_text(
        "import os, sys, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "command = [sys.executable, 'child.py']\n"
        f"pid = {start}\n"
        "if pid == 0: os.execv(sys.executable, command)\n"
        "held = bytes(3_000_000)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    (tmp_path / "child.py").write_text(
        "import os, sys\nheld = bytes(3_000_001)\nos.execv(sys.executable, [sys.executable, 'worker.py'])\n"
    )
    (tmp_path / "worker.py").write_text("held = bytes(3_000_002)\n")
    if command.startswith("heaptide"):
        done = heaptide("run", "-q", "--follow-fork", "--objects", "-o", "job.tide", "job.py", cwd=tmp_path)
    else:
        follow = {"HEAPTIDE_FOLLOW_FORK": "yes"} if command == "HEAPTIDE_FOLLOW_FORK" else {}
        done = python("job.py", cwd=tmp_path, HEAPTIDE="run", HEAPTIDE_OUT="job.tide", HEAPTIDE_QUIET="1", **follow)
    assert (done.stdout, done.stderr) == ("0\n", "")
    found = captures(tmp_path)
    assert len({session_id(path) for path in found}) == 1
    for extra in range(3):
        assert sum(has_block(path, SIZE + extra) for path in found) == 1
    lines = [heaptide("parse", path).stdout.splitlines()[0] for path in found]
    assert all((" objects=true " in line) == command.startswith("heaptide") for line in lines), lines


@pytest.mark.once
def test_placeholders_in_the_output_are_filled_and_folders_created(tmp_path: Path) -> None:
    pattern = "out/{component}-{host}-{time}-{pid}.tide"
    code = "import os; print(os.getpid())"
    done = python("-c", code, cwd=tmp_path, HEAPTIDE="run", HEAPTIDE_OUT=pattern, HEAPTIDE_QUIET="1")
    (path,) = (tmp_path / "out").iterdir()
    assert path.name.startswith(f"string-{os.uname().nodename}-2") and path.name.endswith(
        f"-{done.stdout.strip()}.tide"
    )
    assert done.stderr == ""
    done = python("-c", code, cwd=tmp_path, HEAPTIDE="run", HEAPTIDE_OUT="{pod}.tide")
    assert "unknown field {pod}" in done.stderr and len(captures(tmp_path)) == 1


@pytest.mark.once
def test_modes_in_the_environment_are_written_into_the_capture(tmp_path: Path) -> None:
    modes = {"HEAPTIDE_OBJECTS": "yes", "HEAPTIDE_AGGREGATE": "1", "HEAPTIDE_FOLLOW_FORK": "true"}
    python("-c", "pass", cwd=tmp_path, HEAPTIDE="run", HEAPTIDE_OUT="a.tide", **modes)
    head = heaptide("parse", tmp_path / "a.tide").stdout.splitlines()[0]
    assert " objects=true " in head and " aggregate=true " in head and " follow_fork=true " in head
    python("-c", "pass", cwd=tmp_path, HEAPTIDE="run", HEAPTIDE_OUT="b.tide", HEAPTIDE_SAMPLE="64k")
    assert " sample_bytes=65536 " in heaptide("parse", tmp_path / "b.tide").stdout.splitlines()[0]


@pytest.mark.once
def test_failed_activation_is_one_sentence_and_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for broken in (
        {"HEAPTIDE": "run", "HEAPTIDE_OUT": "file/x.tide"},
        {"HEAPTIDE": "run", "HEAPTIDE_OUT": "/proc/x.tide"},
        {"HEAPTIDE_SIGNAL": "NONSENSE"},
        {"HEAPTIDE": "sometimes"},
        {"HEAPTIDE_CONTROL": "no address at all"},
    ):
        done = python("-c", "print('ran'); raise SystemExit(4)", cwd=tmp_path, check=False, **broken)
        assert (done.returncode, done.stdout) == (4, "ran\n")
        one_sentence(done.stderr)


@pytest.mark.once
def test_flags_that_ignore_the_environment_also_disable_heaptide(tmp_path: Path) -> None:
    for flag in ("-E", "-I"):
        done = python(flag, "-c", LOADED, cwd=tmp_path, HEAPTIDE="run")
        assert "heaptide._native" not in done.stdout and done.stderr == ""
    assert captures(tmp_path) == []


@pytest.mark.once
def test_heaptides_own_commands_are_not_recorded(tmp_path: Path) -> None:
    python("-m", "heaptide", "--version", cwd=tmp_path, HEAPTIDE="run")
    assert captures(tmp_path) == []


@pytest.mark.once
def test_too_large_capture_is_rotated_or_ends_the_recording(tmp_path: Path) -> None:
    program = (
        "import os, time\ndef churn():\n    for _ in range(200_000): bytearray(5_000)\nwhile not {done}: churn()\n"
    )
    env = {"HEAPTIDE": "run", "HEAPTIDE_OUT": "a.tide", "HEAPTIDE_MAX_SIZE": "200k", "HEAPTIDE_KEEP": "2"}
    many = "len([name for name in os.listdir('.') if name.startswith('a.')]) >= 3"
    python("-c", program.format(done=many), cwd=tmp_path, **env)
    assert (tmp_path / "a.tide").exists() and len(captures(tmp_path)) == 3
    for path in captures(tmp_path):
        heaptide("stats", path)
    env.update(HEAPTIDE_WHEN_FULL="stop", HEAPTIDE_OUT="b.tide")
    ended = "not __import__('heaptide').active()"
    done = python("-c", program.format(done=ended), cwd=tmp_path, **env)
    assert "has reached 204800 bytes" in done.stderr and len(list(tmp_path.glob("b*"))) == 1


CONTROLLED = """
import multiprocessing, os, subprocess, sys, urllib.request
from heaptide import control

def child():
    print("worker", [served.address for served in control._controls], flush=True)

if __name__ == "__main__":
    (served,) = control._controls
    for token in ("", "secret"):
        request = urllib.request.Request(served.address + "/api/v1/profiler/status")
        request.add_header("Authorization", f"Bearer {token}")
        try:
            print(urllib.request.urlopen(request).status, flush=True)
        except urllib.error.HTTPError as error:
            print(error.code, flush=True)
    # The child inherits an address that is in use here; it must run without a message.
    env = {**os.environ, "HEAPTIDE_CONTROL": served.address.removeprefix("http://")}
    subprocess.run([sys.executable, "-c", "print('tool')"], env=env, check=True)
    os.environ.update(env)
    worker = multiprocessing.get_context("spawn").Process(target=child)
    worker.start()
    worker.join()
"""


@pytest.mark.once
def test_control_api_serves_from_start_up_and_children_share_its_address(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(CONTROLLED)
    (tmp_path / "token").write_text("secret\n")
    done = python(
        "job.py",
        cwd=tmp_path,
        HEAPTIDE_CONTROL="0",
        HEAPTIDE_TOKEN_FILE="token",
        HEAPTIDE_HOME=str(tmp_path / "home"),
        HEAPTIDE_RUNTIME_DIR=str(tmp_path / "run"),
    )
    assert (done.stdout.splitlines(), done.stderr) == (["401", "200", "tool", "worker [None]"], "")


WAITS = """
import os, sys, time
print("ready", flush=True)
held = []
for line in sys.stdin:
    held.append(bytes(3_000_000))
    print("done", flush=True)
"""


def check_toggling(folder: Path, toggle: Callable[[int], object], **env: str) -> None:
    """Check that `toggle` starts, then stops the recording of a program that allocates a block for each input line."""
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, **env, "HEAPTIDE_OUT": "toggled.tide"},
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    toggle(process.pid)
    assert process.stderr.readline() == f"heaptide: recording into {folder / 'toggled.tide'}\n"
    process.stdin.write("work\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"
    toggle(process.pid)
    assert process.stderr.readline() == f"heaptide: recorded into {folder / 'toggled.tide'}\n"
    _, stderr = process.communicate("more\n")
    assert (process.returncode, stderr) == (0, "")
    capture = heaptide("parse", folder / "toggled.tide").stdout
    assert capture.count(f" size={SIZE} ") == 1


@pytest.mark.once
def test_signal_starts_and_stops_a_recording(tmp_path: Path) -> None:
    check_toggling(tmp_path, lambda pid: os.kill(pid, signal.SIGUSR2), HEAPTIDE_SIGNAL="USR2")


@pytest.mark.once
def test_touching_the_control_file_starts_and_stops_a_recording(tmp_path: Path) -> None:
    control = tmp_path / "control"
    control.write_text("")
    moments = iter((time.time() + 5, time.time() + 10))
    check_toggling(tmp_path, lambda _: os.utime(control, (0, next(moments))), HEAPTIDE_CONTROL_FILE=str(control))


@pytest.mark.once
def test_words_in_the_control_file_start_and_stop_a_recording(tmp_path: Path) -> None:
    control = tmp_path / "control"
    words = iter(("on\n", "off\n"))
    check_toggling(tmp_path, lambda _: control.write_text(next(words)), HEAPTIDE_CONTROL_FILE=str(control))
