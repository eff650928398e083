"""Tests heap snapshots of other processes: through the control API, and of a program that `heap take` runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.commands import heaptide
from support.controlled_program import ControlledProgram

pytestmark = pytest.mark.once


@pytest.mark.parametrize("options", [{}, {"fork": True}])
def test_program_sends_its_heap_and_continues(
    program: ControlledProgram, tmp_path: Path, options: dict[str, bool]
) -> None:
    mark = "[kept.append(cls()) for cls in [type('Mark', (), {})] for _ in range(77)]"
    assert program.evaluate(f"len({mark})") == "77"
    answer = program.ask("POST", "heap", options)
    assert answer.status == 200
    assert float(answer.headers["X-Heaptide-Paused-Ms"]) > 0
    snapshot = tmp_path / "job.heap"
    snapshot.write_bytes(answer.body)
    shown = heaptide("heap", "show", "-n", "0", snapshot).stdout
    assert " Mark" in shown or ".Mark" in shown
    assert "77" in shown
    assert program.evaluate("len(kept)") == "77"
    assert not list(tmp_path.rglob(".*.heap")), "the snapshot file was not removed"


def test_unknown_options_are_refused(program: ControlledProgram) -> None:
    for body, status in [({"value": True}, 422), ({"fork": 2}, 422), ([], 422), (b"{", 400)]:
        answer = program.ask("POST", "heap", body)
        assert (answer.status, set(answer.json())) == (status, {"error", "type"})


def test_heap_take_finds_the_program_by_its_process_id(program: ControlledProgram, tmp_path: Path) -> None:
    snapshot = tmp_path / "taken.heap"
    words = ("heap", "take", "--pid", str(program.process.pid), "-o", snapshot)
    env = {**os.environ, "HEAPTIDE_RUNTIME_DIR": str(tmp_path / "run")}
    assert "paused for" in heaptide(*words, env=env).stderr
    assert "module" in heaptide("heap", "show", snapshot).stdout
    again = heaptide(*words, check=False, env=env)
    assert again.returncode != 0
    assert "taken.heap" in again.stderr


def test_heap_take_runs_a_program_and_keeps_its_exit_code(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import sys\n"
        "class Order: pass\n"
        "orders = [Order() for _ in range(int(sys.argv[1]))]\n"
        "print('done', len(orders))\n"
        "sys.exit(3)\n"
    )
    done = heaptide("heap", "take", "-o", tmp_path / "job.heap", script, "123", check=False)
    assert (done.returncode, done.stdout) == (3, "done 123\n")
    assert "job.heap" in done.stderr
    shown = heaptide("heap", "show", "-n", "0", tmp_path / "job.heap").stdout
    assert any("Order" in line and "123" in line for line in shown.splitlines()), shown


def test_missing_control_socket_is_refused_with_advice(tmp_path: Path) -> None:
    done = heaptide("heap", "take", "--url", f"unix:{tmp_path}/none.sock", check=False)
    assert done.returncode == 1
    assert "check that the program is running" in done.stderr
