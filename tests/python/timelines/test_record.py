"""Tests `heaptide record` and the commands that read timelines, with programs of known sizes.

Nothing here depends on the Python version, since another process takes the samples.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import heaptide
from support.messages import one_sentence
from support.timeline_files import peaks, program_environment, record

pytestmark = pytest.mark.once

# Grows, and ends once the recording has sampled its size.
GROWS = """
from timeline_waiting import wait_for_size
block = bytearray(64 << 20)
wait_for_size(64)
print("grown", flush=True)
"""


def test_timeline_holds_the_size_of_the_program(tmp_path: Path) -> None:
    timeline = tmp_path / "out.timeline"
    done = record(tmp_path, "-T", "0.02", "-o", timeline, "--", sys.executable, "-c", GROWS)
    assert done.stdout == "grown\n"
    assert re.search(r"heaptide: peak memory: [\d.]+ MB, all processes together", done.stderr)
    whole, children = peaks(timeline)
    assert 64 < whole < 64 + 40
    assert children == {}
    chart = heaptide("plot", timeline).stdout
    drawn = re.search(r"peak ([\d.]+) MB", chart)
    assert drawn and abs(float(drawn[1]) * 1e6 / 2**20 - whole) < 1
    assert any("\u2801" <= letter <= "\u28ff" for letter in chart)


def test_summary_states_the_peak_of_a_file_that_has_only_the_first_process(tmp_path: Path) -> None:
    grows = "from timeline_waiting import wait_for_two_samples; block = bytearray(64 << 20); wait_for_two_samples()"
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grows!r}], check=True)"
    for options, is_first_only in (((), True), (("-C",), False)):
        dat = tmp_path / "out.dat"
        dat.unlink(missing_ok=True)
        done = record(tmp_path, "-T", "0.02", *options, "-o", dat, "--", sys.executable, "-c", starts)
        (whole,) = re.findall(r"peak memory: ([\d.]+) MB, all processes together", done.stderr)
        first = re.findall(r"has only the first process, at most ([\d.]+) MB: -C adds its children", done.stderr)
        assert len(first) == is_first_only
        written = float(heaptide("peak", dat).stdout.split()[-2]) * 2**20 / 1e6
        assert written == pytest.approx(float(first[0] if first else whole), rel=0.01)


def test_exit_code_flags_and_streams_of_the_program_are_unchanged(tmp_path: Path) -> None:
    program = "import sys; assert False, 'asserts are on'"
    checked = record(tmp_path, "-q", "--", sys.executable, "-O", "-c", program)
    assert checked.stderr == ""
    code = "import sys; data = sys.stdin.read(); print(data.upper()); print(sys.stdout.write_through, file=sys.stderr); sys.exit(3)"
    done = record(tmp_path, "-q", "--", sys.executable, "-u", "-c", code, check=False, input="words")
    assert (done.returncode, done.stdout, done.stderr) == (3, "WORDS\n", "True\n")


def test_signals_reach_the_program_and_its_fatal_signal_ends_the_command(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(1)"
    )
    command = [sys.executable, "-m", "heaptide", "record", "-q", "--", sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=tmp_path, env=program_environment(), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait() == 7
    killed = record(tmp_path, "-q", "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)", check=False)
    assert killed.returncode == -signal.SIGKILL


@pytest.mark.skipif(signal.getsignal(signal.SIGTSTP) is signal.SIG_IGN, reason="SIGTSTP is ignored here")
@pytest.mark.parametrize("words", [["record", "-q", "--"], ["launch", "--launcher", "local", "-n", "2"]])
def test_all_processes_of_a_run_stop_and_continue_together(tmp_path: Path, words: list[str]) -> None:
    code = "import sys; print('ready', flush=True); sys.stdin.readline(); print('done', flush=True)"
    (tmp_path / "job.py").write_text(code)
    program = [sys.executable, "job.py"] if words[0] == "record" else ["job.py"]
    n_programs = 1 if words[0] == "record" else 2
    # A separate process group in this session: the kernel would not stop an orphaned process group.
    with subprocess.Popen(
        [sys.executable, "-m", "heaptide", *words, *program],
        cwd=tmp_path,
        env=program_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=os.setpgrp,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        assert [child.stdout.readline() for _ in range(n_programs)] == ["ready\n"] * n_programs
        for _ in range(3):
            os.killpg(child.pid, signal.SIGTSTP)
            _, status = os.waitpid(child.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), status
            os.killpg(child.pid, signal.SIGCONT)
            _, status = os.waitpid(child.pid, os.WCONTINUED)
            assert os.WIFCONTINUED(status), status
        child.stdin.close()
        assert child.stdout.read() == "done\n" * n_programs
        assert child.wait() == 0


def test_each_run_writes_a_new_file_and_replaces_none(tmp_path: Path) -> None:
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
        ([], 2, "nothing to record"),
        (["-o", "missing/folder.dat", "--", "true"], 1, "cannot write"),
        (["--", "./no-such-program"], 127, "cannot be started"),
        (["--", "/"], 126, "cannot be started"),
    ],
)
def test_wrong_arguments_are_reported_in_one_sentence(
    tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    done = record(tmp_path, *arguments, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in one_sentence(done.stderr)
    assert list(tmp_path.iterdir()) == []


def test_list_rm_and_clean_work_by_number(tmp_path: Path) -> None:
    for _ in range(3):
        record(tmp_path, "-q", "--dat", "--", "true")
    record(tmp_path, "-q", "--", "true")
    heading, *lines = heaptide("list", cwd=tmp_path).stdout.splitlines()
    assert heading.startswith("Timelines") and len(lines) == 4
    assert all(re.fullmatch(rf"  {n}  \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d  \S+", line) for n, line in enumerate(lines))
    newest = lines[-1].split()[-1]
    assert newest in heaptide("rm", "--dry-run", "-1", cwd=tmp_path).stdout
    assert (tmp_path / newest).exists()
    heaptide("rm", "-1", "0", cwd=tmp_path)
    assert len(heaptide("list", cwd=tmp_path).stdout.splitlines()) == 1 + 2
    heaptide("clean", cwd=tmp_path)
    assert os.listdir(tmp_path) == []


def test_timeline_with_a_name_of_the_user_is_listed_without_number_and_kept_by_clean(tmp_path: Path) -> None:
    record(tmp_path, "-q", "-o", "night", "--", "true")
    heading, line = heaptide("list", cwd=tmp_path).stdout.split("\n\n")[0].splitlines()
    assert heading == "Timelines that plot and peak accept by name"
    assert re.fullmatch(r" +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +\S+ k?B  night", line)
    assert heaptide("peak", "night", cwd=tmp_path).stdout.startswith("night\t")
    heaptide("clean", cwd=tmp_path)
    assert (tmp_path / "night").exists()


@pytest.mark.parametrize("name", ["night", "night.timeline"])
def test_reports_of_captures_name_the_command_for_a_timeline(tmp_path: Path, name: str) -> None:
    record(tmp_path, "-q", "-o", name, "--", "true")
    done = heaptide("stats", name, check=False, cwd=tmp_path)
    expected = f"{name} is a timeline, not a capture: draw it with heaptide plot {name}"
    assert (done.returncode, one_sentence(done.stderr)) == (1, expected)


SHARES = """
import os, re, sys
from timeline_waiting import wait_for
block = bytearray(48 << 20)
pipes = []
for _ in range(3):
    (inner, outer), (done, report) = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(outer)
        sum(block[::4096])
        os.write(report, b"x")
        os.read(inner, 1)
        os._exit(0)
    os.close(inner)
    os.read(done, 1)
    pipes.append(outer)

def last(text, pattern):
    found = dict(re.findall(pattern, text))
    return len(found) == 4 and sum(map(int, found.values())) / 1024

wanted = {
    "rss": lambda text: last(text, r" (\\d+)=(\\d+)") > 4 * 48,
    "pss": lambda text: 0 < last(text, r" (\\d+)~(\\d+),") < 2 * 48,
    "uss": lambda text: 0 < last(text, r" (\\d+)~\\d+,(\\d+),") < 48,
}[sys.argv[1]]
wait_for(wanted)
sys.exit(0 if wanted(open(os.environ["HEAPTIDE_TIMELINE_FUNCTIONS"][:-10]).read()) else 1)
"""


@pytest.mark.parametrize("backend", ["rss", "pss", "uss"])
def test_backend_determines_how_often_shared_pages_are_counted(tmp_path: Path, backend: str) -> None:
    # Four processes share one block of 48 MiB; the program waits until their latest sizes have the expected sum.
    timeline = tmp_path / "out.timeline"
    record(tmp_path, "-q", "--backend", backend, "-o", timeline, "--", sys.executable, "-c", SHARES, backend)
    chart = heaptide("plot", timeline).stdout
    name = {"rss": "resident size", "pss": "proportional size", "uss": "unique size"}[backend]
    assert f"({name})" in chart
    if backend == "rss":
        assert peaks(timeline)[0] > 4 * 48
    else:
        # Shared pages are counted at most once, even right after a fork.
        assert peaks(timeline)[0] < 3 * 48


def test_every_process_is_named_and_its_end_is_recorded(tmp_path: Path) -> None:
    timeline = tmp_path / "out.timeline"
    code = """
import subprocess, sys
from timeline_waiting import wait_for
child = subprocess.Popen(["sleep", "1000"])
wait_for(lambda text: " sleep sleep 1000\\n" in text)
child.kill()
child.wait()
wait_for(lambda text: "\\nend " in text)
sys.exit(5)
"""
    done = record(tmp_path, "-q", "-T", "0.02", "-o", timeline, "--", sys.executable, "-c", code, check=False)
    assert done.returncode == 5
    text = timeline.read_text()
    assert re.search(r"^new \S+ \d+ \d+ \d+ sleep sleep 1000$", text, re.M), text
    assert re.search(r"^end \S+ \d+$", text, re.M), text
    assert text.endswith("exit 5\n")


def test_killed_program_leaves_its_timeline_and_the_chart_names_the_signal(tmp_path: Path) -> None:
    timeline = tmp_path / "out.timeline"
    code = GROWS + "import os; os.kill(os.getpid(), 9)"
    done = record(tmp_path, "-q", "-o", timeline, "--", sys.executable, "-c", code, check=False)
    assert done.returncode == -signal.SIGKILL
    assert peaks(timeline)[0] > 64
    assert "the program was ended by SIGKILL" in heaptide("plot", timeline).stdout
    # The same timeline as if the kernel had killed the program for lack of memory.
    timeline.write_text(timeline.read_text().replace("over ", "oom 1\nover "))
    assert "because memory ran out" in heaptide("plot", timeline).stdout


def test_killed_recording_leaves_a_readable_file(tmp_path: Path) -> None:
    for name in ("out.timeline", "out.dat"):
        code = GROWS + "import sys; sys.stdin.read()"
        command = [sys.executable, "-m", "heaptide", "record", "-o", name, "--", sys.executable, "-c", code]
        with subprocess.Popen(
            command, cwd=tmp_path, env=program_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "grown\n"
            child.kill()
            child.wait()
        assert peaks(tmp_path / name)[0] > 64


def test_functions_are_merged_from_the_file_in_the_environment(tmp_path: Path) -> None:
    code = """
import os, time
from timeline_waiting import wait_for_two_samples, wait_for_size
start = time.time()
block = bytearray(32 << 20)
wait_for_size(32)
wait_for_two_samples()
with open(os.environ["HEAPTIDE_TIMELINE_FUNCTIONS"], "a") as file:
    file.write(f"FUNC jobs.load.read 10.0000 {start:.4f} 42.0000 {time.time():.4f} 0\\n")
    file.write("FUNC cut")
"""
    for name in ("out.timeline", "out.dat"):
        record(tmp_path, "-q", "-T", "0.02", "-o", name, "--", sys.executable, "-c", code)
        chart = heaptide("plot", name, cwd=tmp_path).stdout
        assert re.search(r"├read [\d.]+ m?s", chart), chart
        assert "├read" not in heaptide("plot", "-n", name, cwd=tmp_path).stdout
        found = heaptide("peak", "--func", "jobs.load.read", name, cwd=tmp_path).stdout
        assert heaptide("peak", "--func", "read", name, cwd=tmp_path).stdout == found
        assert float(found.split("\t")[1].split()[0]) > 32
        assert heaptide("peak", "--func", "absent", name, cwd=tmp_path).stdout == f"{name}\tNaN MiB\n"
    assert sorted(os.listdir(tmp_path)) == ["out.dat", "out.timeline"]


def test_running_process_is_sampled_without_being_disturbed(tmp_path: Path) -> None:
    code = "import sys; block = bytearray(64 << 20); print('ready', flush=True); print(sys.stdin.read())"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as watched:
        assert watched.stdout is not None
        assert watched.stdout.readline() == "ready\n"
        pid = str(watched.pid)
        record(tmp_path, "-q", "--attach", pid, "--timeout", "0.3", "-o", "out.dat")
        assert peaks(tmp_path / "out.dat")[0] > 64
        record(tmp_path, "-q", "--attach", pid, "--timeout", "0.2")
        out, _ = watched.communicate("alive")
        assert out == "alive\n"
    assert watched.returncode == 0
    assert len(list(tmp_path.glob(f"heaptide-pid{pid}.*.timeline"))) == 1


def test_spaces_in_the_name_of_a_block_become_underscores(tmp_path: Path) -> None:
    code = "import heaptide\nwith heaptide.profile.timestamp('two words'):\n    pass\n"
    record(tmp_path, "-q", "-o", "out.dat", "--", sys.executable, "-c", code)
    calls = [line.split() for line in (tmp_path / "out.dat").read_text().splitlines() if line.startswith("FUNC ")]
    # In mprof's format a name is one word, followed by six values.
    assert [(call[1], len(call)) for call in calls] == [(".two_words", 7)]


def test_existing_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        record(tmp_path, "-q", "--force", "-o", pipe, "--", sys.executable, "-c", "pass")
        assert os.read(reader, 4096).startswith(b"heaptide timeline")
        assert pipe.is_fifo()
        record(tmp_path, "-q", "--force", "-o", pipe, "--", "no-such-program", check=False)
        assert pipe.is_fifo()
    finally:
        os.close(reader)


def test_program_continues_when_its_timeline_cannot_be_written(tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    code = """
from timeline_waiting import wait_for
wait_for(lambda text: len(text) == 1000)
print("done")
raise SystemExit(4)
"""
    done = record(
        *(tmp_path, "-T", "0.01", "-o", "out.dat", "--", sys.executable, "-c", code),
        check=False,
        preexec_fn=small_files,
    )
    assert (done.returncode, done.stdout) == (4, "done\n")
    assert " is incomplete (" in done.stderr


def test_program_runs_without_a_timeline_if_its_header_cannot_be_written(tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))

    words = [sys.executable, "-c", "print('done'); raise SystemExit(4)"]
    done = record(*(tmp_path, "-o", "out.timeline", "--", *words), check=False, preexec_fn=small_files)
    assert (done.returncode, done.stdout) == (4, "done\n")
    assert " is incomplete (" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_recording_ends_at_its_timeout_and_the_program_continues(tmp_path: Path) -> None:
    code = """
from timeline_waiting import wait_for
wait_for(lambda text: text.endswith(" running\\n"))
print("done")
raise SystemExit(6)
"""
    done = record(tmp_path, "-q", "--timeout", "0.2", "-o", "out.dat", "--", sys.executable, "-c", code, check=False)
    assert (done.returncode, done.stdout) == (6, "done\n")
    assert (tmp_path / "out.dat").read_text().endswith(" running\n")


def test_unreadable_proportional_sizes_are_reported(tmp_path: Path) -> None:
    # Root without capabilities can read no more about another user's process than any other user.
    unprivileged = ["setpriv", "--bounding-set=-all"]
    waiting = [sys.executable, "-c", "print(flush=True); input()"]
    try:
        subprocess.run([*unprivileged, "true"], check=True, capture_output=True)
        other = subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=65534)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("processes of other users or without capabilities cannot be started here")
    own = subprocess.Popen([*unprivileged, *waiting], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert own.stdout is not None and own.stdout.readline()
    try:
        for process, is_reported in ((other, True), (own, False)):
            command = ["heaptide", "record", "--backend", "pss", "--timeout", "0.2", "--attach", str(process.pid)]
            done = subprocess.run(
                [*unprivileged, sys.executable, "-m", *command],
                cwd=tmp_path,
                env=program_environment(),
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr
            assert ("their resident size is used instead" in done.stderr) == is_reported
    finally:
        other.communicate()
        own.communicate(b"\n")
