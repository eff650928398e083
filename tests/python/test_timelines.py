"""`heaptide record` and the commands that look at timelines, on programs whose sizes are known.

Nothing here depends on the Python version: the sampler looks from outside.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import heaptide

pytestmark = pytest.mark.once

MIB = 1 << 20
# Grows to a size, says so, and waits for a line before it goes on: no sleeping in place of a condition.
GROWS = """
import os, sys, time
block = bytearray(64 << 20)
time.sleep(0.5)
print("grown", flush=True)
"""


def record(tmp_path: Path, *arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Run `heaptide record` in the folder of the test."""
    return heaptide("record", *arguments, cwd=tmp_path, **options)


def peaks(path: Path) -> tuple[float, dict[int, float]]:
    """What `heaptide peak` prints: the whole, and each child."""
    lines = heaptide("peak", path).stdout.splitlines()
    whole = re.fullmatch(r".*\t(\d+\.\d{3}) MiB", lines[0])
    assert whole, lines
    children = [re.fullmatch(r"  Child (\d+)\t\t\t(\d+\.\d{3}) MiB", line) for line in lines[1:]]
    assert all(children), lines
    return float(whole[1]), {int(child[1]): float(child[2]) for child in children if child}


def test_curve_holds_what_the_program_held(tmp_path: Path) -> None:
    timeline = tmp_path / "out.timeline"
    done = record(tmp_path, "-T", "0.02", "-o", timeline, "--", sys.executable, "-c", GROWS)
    assert done.stdout == "grown\n"
    assert re.search(r"heaptide: peak memory: \d+\.\d MiB, all processes together", done.stderr)
    whole, children = peaks(timeline)
    assert 64 < whole < 64 + 40
    assert children == {}
    chart = heaptide("plot", timeline).stdout
    assert f"peak {whole:.1f} MiB" in chart
    assert any("\u2801" <= letter <= "\u28ff" for letter in chart)


def test_C3_exit_code_flags_and_streams_are_the_programs_own(tmp_path: Path) -> None:
    program = "import sys; assert False, 'asserts are on'"
    checked = record(tmp_path, "-q", "--", sys.executable, "-O", "-c", program)
    assert checked.stderr == ""
    code = "import sys; data = sys.stdin.read(); print(data.upper()); print(sys.stdout.write_through, file=sys.stderr); sys.exit(3)"
    done = record(tmp_path, "-q", "--", sys.executable, "-u", "-c", code, check=False, input="words")
    assert (done.returncode, done.stdout, done.stderr) == (3, "WORDS\n", "True\n")


def test_C3_signals_reach_the_program_and_its_death_is_ours(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(1)"
    )
    command = [sys.executable, "-m", "heaptide", "record", "-q", "--", sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait() == 7
    killed = record(tmp_path, "-q", "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)", check=False)
    assert killed.returncode == -signal.SIGKILL


def test_C3_each_run_has_a_fresh_file(tmp_path: Path) -> None:
    for _ in range(3):
        record(tmp_path, "-q", "--dat", "--", "true")
    files = sorted(tmp_path.glob("mprofile_*.dat"))
    assert len(files) == 3
    assert all(re.fullmatch(r"mprofile_\d{14}\.dat", file.name) for file in files)
    assert all(file.read_text().count("CMDLINE true\n") == 1 for file in files)
    named = tmp_path / "one.dat"
    record(tmp_path, "-q", "-o", named, "--", "true")
    before = named.read_bytes()
    refused = record(tmp_path, "-q", "-o", named, "--", "touch", "ran", check=False)
    assert refused.returncode == 1
    assert "exists already" in refused.stderr
    assert named.read_bytes() == before
    assert not (tmp_path / "ran").exists()
    record(tmp_path, "-q", "-f", "-o", named, "--", "true")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-T", "0", "--", "true"], 2, "must be more than 0"),
        (["--attach", "4194303999"], 1, "there is no process 4194303999"),
        (["--attach", "no-such-process-name"], 1, "no process has no-such-process-name in its name"),
        ([], 2, "there is nothing to record"),
        (["-o", "missing/folder.dat", "--", "true"], 1, "cannot be written"),
        (["--", "./no-such-program"], 127, "cannot be started"),
        (["--", "/"], 126, "cannot be started"),
    ],
)
def test_mistakes_are_told_in_a_sentence(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    done = record(tmp_path, *arguments, check=False)
    assert done.returncode == code
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_list_rm_and_clean_work_by_number(tmp_path: Path) -> None:
    for _ in range(3):
        record(tmp_path, "-q", "--dat", "--", "true")
    record(tmp_path, "-q", "--", "true")
    lines = heaptide("list", cwd=tmp_path).stdout.splitlines()
    assert len(lines) == 4
    assert all(re.fullmatch(rf"{n} \S+ \d\d:\d\d:\d\d \d\d/\d\d/\d{{4}}", line) for n, line in enumerate(lines))
    newest = lines[-1].split()[1]
    assert newest in heaptide("rm", "--dry-run", "-1", cwd=tmp_path).stdout
    assert (tmp_path / newest).exists()
    heaptide("rm", "-1", "0", cwd=tmp_path)
    assert len(heaptide("list", cwd=tmp_path).stdout.splitlines()) == 2
    heaptide("clean", cwd=tmp_path)
    assert os.listdir(tmp_path) == []
