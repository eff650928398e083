"""Tests PyCOMPSs' decorator `profile` as its documentation describes it, with `HEAPTIDE_COMPAT=memory_profiler`."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from platform_support.environments import Environment

PROGRAMS = Path(__file__).parent / "programs"
COMPAT = {"HEAPTIDE_COMPAT": "memory_profiler"}
# The same example, measured by memory_profiler itself.
REAL = """
import sys, types, memory_profiler
module = types.ModuleType("pycompss.functions.profile")
module.profile = lambda **_: memory_profiler.profile(precision=1)
names = ("pycompss", "pycompss.functions")
sys.modules.update({**{name: types.ModuleType(name) for name in names}, module.__name__: module})
import increment
print("result", increment.increment(1))
"""


@pytest.fixture(scope="session")
def compss(installed: Callable[[str], Environment]) -> Environment:
    """The environment with memory_profiler."""
    return installed("compss")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the programs."""
    for path in PROGRAMS.iterdir():
        shutil.copy(path, tmp_path)
    return tmp_path


def increments(report: str) -> dict[int, float]:
    """Return the increment of each line in MiB."""
    rows = re.findall(r"^ +(\d+) +[\d.]+ MiB +(-?[\d.]+) MiB +\d+ ", report, re.MULTILINE)
    return {int(line): float(size) for line, size in rows}


@pytest.mark.behaviour("table", "task_order", "document")
def test_example_gives_the_same_table_as_memory_profiler(compss: Environment, folder: Path) -> None:
    with_heaptide = compss.run("python", "increment.py", cwd=folder, **COMPAT).stdout
    assert "result 2" in with_heaptide
    assert re.search(r"Line # +Mem usage +Increment +Occurrences +Line Contents", with_heaptide)
    assert f"Filename: {folder}/increment.py" in with_heaptide and "def increment(value):" in with_heaptide
    found = increments(with_heaptide)
    (folder / "real.py").write_text(REAL)
    expected = increments(compss.run("python", "real.py", cwd=folder).stdout)
    for line in (10, 11, 12, 13, 14):
        assert abs(found[line] - expected[line]) <= 1, (found, expected)
    assert [round(found[line], 1) for line in (10, 11, 12, 13)] == pytest.approx([7.6, 7.6, 76.3, -7.6], abs=1)


@pytest.mark.behaviour("task_order", "forms", "one_line")
def test_every_form_names_the_users_function(compss: Environment, folder: Path) -> None:
    output = compss.run("python", "forms.py", cwd=folder, **COMPAT).stdout
    for function in ("above", "bare", "raising", "nested", "recursive", "generating", "waiting"):
        assert re.search(rf"\d+ .*def {function}\(n\):", output), function
    assert "compss_task.py" not in output
    (line,) = re.findall(r"^(/\S+/forms\.py) short ([\d.]+) MiB$", output, re.MULTILINE)
    assert float(line[1]) > 8
    assert output.count("def bare(n):") == 3  # one call in a thread, one in `nested`


@pytest.mark.behaviour("one_line", "own_memory")
def test_layout_of_version_3_3_can_be_chosen(compss: Environment, folder: Path) -> None:
    program = """
from pycompss.functions.profile import profile

@profile(full_report=False, layout="compss")
def short(n):
    return len([1] * n)

@profile(layout="compss")
def full(n):
    return len([1] * n)

short(10**6), full(10**6)
"""
    (folder / "layouts.py").write_text(program)
    output = compss.run("python", "layouts.py", cwd=folder, **COMPAT).stdout
    number = r"\d+\.\d+"
    one_line = rf"^{number} master \S+/layouts\.py short {number} ({number}) ({number}) ({number}) MiB$"
    found = re.search(one_line, output, re.MULTILINE)
    assert found is not None, output
    initial, final, peak = map(float, found.groups())
    # The process's own memory, not the machine's.
    assert 5 < initial <= peak < 200 and 5 < final < 200
    for label in ("Job name", "Task start time", "Elapsed time"):
        assert re.search(rf"^{label}: ", output, re.MULTILINE), label
    for label in ("Initial memory", "Final memory"):
        (size,) = re.findall(rf"^{label}: ({number}) MiB$", output, re.MULTILINE)
        assert 5 < float(size) < 200, label


@pytest.mark.behaviour("profiling_file", "document")
def test_profiling_file_collects_the_reports_of_many_processes(compss: Environment, folder: Path) -> None:
    program = """
import os
from pycompss.functions.profile import profile

@profile(full_report=False)
def short(n):
    return len([1] * n)

# Set after the decoration, as an environment script of a worker may do.
os.environ["COMPSS_PROFILING_FILE"] = "reports/of/workers.txt"
for _ in range(50):
    short(1000)
"""
    (folder / "many.py").write_text(program)
    command = compss.words(("python", "many.py"))
    workers = [subprocess.Popen(command, cwd=folder, env=compss.variables(COMPAT)) for _ in range(4)]
    assert [worker.wait() for worker in workers] == [0] * 4
    lines = (folder / "reports" / "of" / "workers.txt").read_text().splitlines()
    assert len(lines) == 200
    assert all(re.fullmatch(r"/\S+/many\.py short [\d.]+ MiB", line) for line in lines)


@pytest.mark.behaviour("loop")
def test_tight_loop_is_slowed_down_a_hundred_times_less_than_by_memory_profiler(
    compss: Environment, folder: Path
) -> None:
    program = """
import sys, time

def loop(n):
    total = 0
    for i in range(n):
        total += i
        total -= 1
    return total

def cost(function):
    best = []
    for _ in range(3):
        begin = time.process_time()
        function(20_000)
        best.append(time.process_time() - begin)
    return min(best)

if sys.argv[1:]:
    from memory_profiler import profile
    profiled = profile(loop, stream=sys.stderr)
else:
    from pycompss.functions.profile import profile
    profiled = profile(full_report=False)(loop)
print("RATIO", cost(profiled) / cost(loop))
"""
    (folder / "loop.py").write_text(program)
    with_heaptide = compss.run("python", "loop.py", cwd=folder, **COMPAT).stdout
    with_memory_profiler = compss.run("python", "loop.py", "real", cwd=folder).stdout
    ratios = [float(output.rpartition("RATIO ")[2]) for output in (with_heaptide, with_memory_profiler)]
    assert ratios[1] / ratios[0] >= 100, ratios
