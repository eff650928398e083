"""Tests that sub-interpreters and a recording do not affect each other, however the recording was started.

`heaptide.pth` runs in every interpreter of a process. The settings apply to the process, so only the main interpreter
may apply them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.commands import heaptide, session_id

LIMIT_SECONDS = 120
BLOCK_SIZE = 3_000_000 + sys.getsizeof(b"")

# Before Python 3.13, the module is `_xxsubinterpreters`, and `create` takes `isolated` instead of a name.
CREATE = """
    import os, subprocess, sys, warnings
    warnings.simplefilter("ignore")
    try:
        import _interpreters as api
    except ImportError:
        import _xxsubinterpreters as api

    def create(is_isolated):
        if sys.version_info >= (3, 13):
            return api.create("isolated" if is_isolated else "legacy")
        return api.create(isolated=is_isolated)

    def run(code):
        for is_isolated in (True, False):
            number = create(is_isolated)
            failure = api.run_string(number, code)
            assert failure is None, failure
            api.destroy(number)
"""
# `os.write` keeps the lines in order: each interpreter buffers its own `sys.stdout`.
PROGRAM = (
    CREATE
    + """
    run(
        "import os, sys; held = [bytes(1_000_000)]; "
        "state = [sys.argv[-2:], sys.path[0], [name for name in sys.modules if name == 'heaptide._native']]; "
        "os.write(1, (ascii(state) + chr(10)).encode())"
    )
    held = bytes(3_000_000)
    child = subprocess.run([sys.executable, "-c", "held = bytes(3_000_000)"], capture_output=True)
    os.write(1, ascii((child.returncode, child.stdout, child.stderr)).encode())
"""
)


def run_program(folder: Path, program: str, launcher: list[str], variables: dict[str, str]) -> tuple[int, str, str]:
    """Run `python LAUNCHER job.py a b`, and return the exit code, standard output and standard error."""
    script = folder / "job.py"
    script.write_text(textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, *launcher, str(script), "a", "b"],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    return done.returncode, done.stdout, done.stderr


def has_block(capture: Path) -> bool:
    """Return whether a capture contains the block that the main interpreter and the child allocate."""
    return f" size={BLOCK_SIZE} " in heaptide("parse", capture).stdout


@pytest.mark.parametrize("options", [[], ["--objects"], ["--native"]])
def test_sub_interpreters_run_the_same_under_heaptide_run(tmp_path: Path, options: list[str]) -> None:
    bare = run_program(tmp_path, PROGRAM, [], {})
    assert (bare[0], bare[2]) == (0, "")
    launcher = ["-m", "heaptide", "run", "-q", "-o", str(tmp_path / "job.tide"), *options]
    assert run_program(tmp_path, PROGRAM, launcher, {}) == bare
    assert has_block(tmp_path / "job.tide")


def test_sub_interpreters_under_environment_settings_print_nothing_and_keep_the_session(tmp_path: Path) -> None:
    bare = run_program(tmp_path, PROGRAM, [], {})
    assert (bare[0], bare[2]) == (0, "")
    variables = {"HEAPTIDE": "run", "HEAPTIDE_OUT": "job.tide"}
    code, stdout, stderr = run_program(tmp_path, PROGRAM, [], variables)
    assert (code, stdout) == bare[:2]
    path = tmp_path / "job.tide"
    assert stderr == f"heaptide: recorded into {path}; inspect it with: heaptide stats {path}\n"
    captures = sorted(each for each in tmp_path.iterdir() if ".tide" in each.name)
    assert len(captures) == 2 and captures[1].name.startswith("job.tide."), captures
    assert len({session_id(capture) for capture in captures}) == 1
    assert all(has_block(capture) for capture in captures)


@pytest.mark.parametrize(
    "settings",
    [
        {"HEAPTIDE_CONTROL": "unix:{folder}/control.sock"},
        {"HEAPTIDE_CONTROL_FILE": "{folder}/control"},
        {"HEAPTIDE_CONTROL_FILE": "{folder}/control.on"},
        {"HEAPTIDE_SIGNAL": "USR2"},
        {"HEAPTIDE": "run", "HEAPTIDE_MAX_SIZE": "1G"},
        {"HEAPTIDE": "run", "HEAPTIDE_CONTROL": "unix:{folder}/control.sock", "HEAPTIDE_SIGNAL": "USR2"},
        {"HEAPTIDE_COMPAT": "memray"},
    ],
    ids=lambda settings: "+".join(settings) + "".join(v[-3:] for v in settings.values() if v.endswith(".on")),
)
def test_sub_interpreters_print_nothing_under_any_setting(tmp_path: Path, settings: dict[str, str]) -> None:
    (tmp_path / "control.on").write_text("on")
    bare = run_program(tmp_path, PROGRAM, [], {})
    assert (bare[0], bare[2]) == (0, "")
    variables = {name: value.replace("{folder}", str(tmp_path)) for name, value in settings.items()}
    assert run_program(tmp_path, PROGRAM, [], {**variables, "HEAPTIDE_QUIET": "1"}) == bare


def test_signal_still_starts_a_recording_after_a_sub_interpreter_ended(tmp_path: Path) -> None:
    program = (
        CREATE
        + f"""
    import glob, time
    run("pass")
    os.kill(os.getpid(), {int(signal.SIGUSR2)})
    while not glob.glob("job.tide"):
        time.sleep(0.01)
    """
    )
    variables = {"HEAPTIDE_SIGNAL": "USR2", "HEAPTIDE_OUT": "job.tide", "HEAPTIDE_QUIET": "1"}
    assert run_program(tmp_path, program, [], variables) == (0, "", "")


def test_only_sub_interpreters_are_recognised_as_such(tmp_path: Path) -> None:
    program = (
        CREATE
        + """
    import signal, threading
    from heaptide import bootstrap
    assert not bootstrap._is_sub_interpreter()
    # The check must not change the wakeup descriptor.
    assert signal.set_wakeup_fd(-1) == -1
    run("from heaptide import bootstrap; assert bootstrap._is_sub_interpreter()")
    """
    )
    assert run_program(tmp_path, program, [], {}) == (0, "", "")
