"""`heaptide attach` and `heaptide detach`: a process that runs already is recorded, and goes on as if nothing had been.

Where the kernel's settings do not let us enter another process, these tests are skipped with what the command says.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from conftest import PROGRAMS, heaptide

SETTINGS = ("ptrace_scope", "CAP_SYS_PTRACE", "not dumpable")
once = pytest.mark.once


def attach(process: subprocess.Popen[str], *options: str | Path, check: bool = True) -> str:
    """Attach, and return what was said; skip the test where the kernel forbids it."""
    done = heaptide("attach", str(process.pid), *options, check=False)
    if done.returncode == 1 and any(setting in done.stderr for setting in SETTINGS):
        pytest.skip(done.stderr.strip())
    if check:
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 1, done.stderr
    return done.stderr


def detach(process: subprocess.Popen[str]) -> str:
    """Detach, and return what was said."""
    return heaptide("detach", str(process.pid)).stderr


def refused(pid: int, *options: str | Path, command: str = "attach") -> str:
    """The one sentence with which it is refused."""
    done = heaptide(command, str(pid), *options, check=False)
    assert done.returncode == 1 and done.stdout == "", done
    assert done.stderr.startswith("heaptide: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("heaptide: ").rstrip("\n")


@contextmanager
def running(*command: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process for the length of a block; one that still runs then is killed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEAPTIDE")}
    process = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **{"env": environment, **options},
    )
    try:
        yield process
    finally:
        process.kill()
        with process:  # closes its pipes and waits
            pass


@contextmanager
def blocked(*python: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """The program that waits in a system call, once it does."""
    with running(*(python or (sys.executable,)), PROGRAMS / "blocked_in_a_read.py", **options) as process:
        assert output(process).readline() == "ready\n"
        yield process


def output(process: subprocess.Popen[str]) -> IO[str]:
    """What the process prints."""
    assert process.stdout is not None
    return process.stdout


def ask(process: subprocess.Popen[str], n_letters: int) -> None:
    """Have the blocked program work once: it allocates 100 000 bytes that it keeps."""
    assert process.stdin is not None
    process.stdin.write("x" * n_letters + "\n")
    process.stdin.flush()
    assert output(process).readline() == f"{n_letters}\n"


def n_asked(capture: Path) -> int:
    """How often the blocked program was asked while this capture was written: by blocks of 100 000 bytes and a header."""
    return len(re.findall(r" size=1000\d\d ", heaptide("parse", capture).stdout))


def end(process: subprocess.Popen[str]) -> None:
    """The blocked program ends as it would have without us."""
    said, _ = process.communicate()
    assert said == "threading imported: False\nmain thread: True\n"
    assert process.returncode == 0


def left_behind(process: subprocess.Popen[str]) -> list[str]:
    """Folders of ours that are still there."""
    folders = {Path(os.environ.get("TMPDIR", "/tmp")), Path("/tmp")}
    return [str(path) for folder in folders for path in folder.glob(f"heaptide-{process.pid}-*")]


def test_busy_program_with_eight_threads_is_entered_again_and_again(tmp_path: Path) -> None:
    with running(sys.executable, PROGRAMS / "busy_with_eight_threads.py") as process:
        lines = [output(process).readline()]
        for number in range(2):
            capture = tmp_path / f"{number}.tide"
            attach(process, "-o", capture)
            # Each line stands for fifty rounds of one thread.
            lines += [output(process).readline() for _ in range(20)]
            detach(process)
            # Each round makes a block of 3000 bytes and some.
            assert "one_round:" in heaptide("stats", "--json", "-n", "1000", capture).stdout
        assert process.stdin is not None
        process.stdin.close()
        lines += output(process).readlines()
        assert process.wait() == 0
    expected = [f"{number}\n" for number in range(len(lines) - 1)]
    assert lines == [*expected, f"right {len(expected)} True\n"]
    assert left_behind(process) == []


def test_program_blocked_in_a_system_call_is_entered_and_its_call_goes_on(
    tmp_path: Path, stats: Callable[..., dict[str, Any]]
) -> None:
    with blocked() as process:
        ask(process, 1)
        for number in range(3):
            capture = tmp_path / f"{number}.tide"
            said = attach(process, "-o", capture, *(["--objects"] if number == 1 else []))
            assert re.search(r"attaching took [\d.]+ ms, of which it stood still for [\d.]+ ms", said)
            for n_letters in (5, 0, 77):
                ask(process, n_letters)
            assert "recorded into" in detach(process)
            ask(process, 3)  # not recorded any more
            assert n_asked(capture) == 3
            sizes = {found["location"]: found["size"] for found in stats(capture)["top_allocations_by_size"]}
            place = f"<module>:{PROGRAMS / 'blocked_in_a_read.py'}:"
            assert max(size for name, size in sizes.items() if name.startswith(place)) >= 300_003
        end(process)
    assert left_behind(process) == []


def test_capture_is_completed_if_the_program_ends_first(tmp_path: Path, stats: Callable[..., dict[str, Any]]) -> None:
    capture = tmp_path / "x.tide"
    with blocked() as process:
        attach(process, "-o", capture, "--aggregate", "--sample=1k")
        ask(process, 1)
        end(process)
    [found] = stats(capture)["heaptide"]["processes"]
    assert found["ended_in_order"] and found["joined_late"]


@once
def test_every_report_says_what_was_there_before(tmp_path: Path, stats: Callable[..., dict[str, Any]]) -> None:
    capture = tmp_path / "x.tide"
    with blocked() as process:
        said = attach(process, "-o", capture)
        detach(process)
        end(process)
    assert "what it allocated before is not in the capture" in said
    [found] = stats(capture)["heaptide"]["processes"]
    assert found["attached_at_bytes"] > 1_000_000
    for command in ("stats", "summary", "tree"):
        said = " ".join(heaptide(command, capture).stdout.split())
        assert f"attached to process {process.pid} when " in said
        assert "what it allocated before is not in the capture" in said


@once
def test_recording_of_a_given_duration_ends_by_itself(tmp_path: Path, stats: Callable[..., dict[str, Any]]) -> None:
    capture = tmp_path / "x.tide"
    with blocked() as process:
        said = attach(process, "-o", capture, "--duration", "0.2")
        assert f"recorded into {capture}" in said
        assert refused(process.pid, command="detach") == "the process is not attached: there is nothing to end"
        end(process)
    [found] = stats(capture)["heaptide"]["processes"]
    assert found["ended_in_order"]


@once
def test_capture_has_a_name_of_its_own_and_is_not_overwritten(tmp_path: Path) -> None:
    with blocked() as process:
        done = subprocess.run(
            [sys.executable, "-m", "heaptide", "attach", "-q", str(process.pid)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        if any(setting in done.stderr for setting in SETTINGS):
            pytest.skip(done.stderr.strip())
        assert (done.returncode, done.stderr) == (0, "")
        name = f"heaptide-blocked_in_a_read.py.{process.pid}.tide"
        assert [path.name for path in tmp_path.iterdir()] == [name]
        already = refused(process.pid, "-o", tmp_path / "other.tide")
        assert already.startswith(f"process {process.pid} is being recorded into {tmp_path / name} already")
        detach(process)
        exists = refused(process.pid, "-o", tmp_path / name)
        assert exists.startswith(f"{tmp_path / name} exists already: ")
        attach(process, "-f", "-o", tmp_path / name)
        detach(process)
        end(process)


@once
def test_process_that_cannot_write_says_so_and_can_be_entered_again(tmp_path: Path) -> None:
    with blocked() as process:
        assert "could not create /proc/x.tide" in attach(process, "-o", "/proc/x.tide", check=False)
        ask(process, 4)
        attach(process, "-o", tmp_path / "x.tide")
        detach(process)
        end(process)
    assert left_behind(process) == []


@once
def test_what_cannot_be_entered_is_refused_with_one_sentence_each(tmp_path: Path) -> None:
    nobody = 2**22 + 1
    assert refused(nobody) == f"there is no process {nobody}: check the number, as ps shows it"
    sleep = shutil.which("sleep")
    assert sleep is not None
    with running(sleep, "600") as process:
        assert refused(process.pid) == (
            f"process {process.pid} (sleep) is not a CPython interpreter: name the process that runs Python"
        )
    # Programs that call themselves Python.
    for name, expected in (
        ("python3.9", "runs Python 3.9, and heaptide knows 3.10"),
        ("python3.12", "without symbols"),
    ):
        program = shutil.copy(sleep, tmp_path / name)
        with running(program, "600") as process:
            assert expected in refused(process.pid)
    with blocked() as process:
        assert refused(process.pid, command="detach") == "the process is not attached: there is nothing to end"
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert refused(process.pid).startswith(f"process {process.pid} is stopped")
        process.send_signal(signal.SIGCONT)
        end(process)
    done = heaptide("attach", "nonsense", check=False)
    assert done.returncode == 2


@once
def test_process_that_has_ended_is_refused() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert refused(process.pid).startswith(f"process {process.pid} has ended")
    finally:
        process.wait()


TRACER = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
answer = libc.ptrace(0x4206, int(sys.argv[1]), 0, 0)
print("traced" if answer == 0 else ctypes.get_errno(), flush=True)
sys.stdin.read()
"""


@once
def test_process_under_a_debugger_is_refused() -> None:
    with blocked() as process, running(sys.executable, "-c", TRACER, str(process.pid)) as tracer:
        said = output(tracer).readline()
        if said != "traced\n":
            pytest.skip(f"ptrace is not permitted here: errno {said.strip()}")
        expected = f"process {process.pid} is traced by process {tracer.pid}, a debugger or strace: end that first"
        assert refused(process.pid) == expected
        tracer.communicate()
        end(process)


@once
def test_process_of_another_user_or_with_more_rights_is_refused() -> None:
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        pytest.skip("setpriv and root are needed to become somebody else")
    command = [sys.executable, "-m", "heaptide", "attach"]
    with blocked() as process:
        # Another user who may read every file, so that the interpreter can be started wherever it lies.
        reader = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
        other = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", *reader]
        done = subprocess.run([*other, *command, str(process.pid)], capture_output=True, text=True)
        if done.returncode not in (0, 1) or "setpriv" in done.stderr or "Traceback" in done.stderr:
            pytest.skip(f"nobody else can run the interpreter here: {done.stderr.strip()[-200:]}")
        expected = f"process {process.pid} belongs to another user (uid 0): attach as that user or as root"
        assert done.stderr == f"heaptide: {expected}\n"
        # The same user, but with fewer capabilities than the process has.
        fewer = [setpriv, "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
        done = subprocess.run([*fewer, *command, str(process.pid)], capture_output=True, text=True)
        assert done.returncode == 1 and f"process {process.pid} " in done.stderr
        assert any(setting in done.stderr for setting in SETTINGS), done.stderr
        end(process)


@once
def test_process_in_another_pid_and_mount_namespace_is_recorded_without_heaptide_in_it(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    flags = ["--mount", "--pid", "--fork", "--mount-proc", "--propagation", "private"]
    if unshare is None or subprocess.run([unshare, *flags, "true"], capture_output=True).returncode != 0:
        pytest.skip("namespaces cannot be made here")
    inside = tmp_path / "inside"
    inside.mkdir()
    # Its temporary folder is a file system of its own, and our package is hidden from it.
    package = subprocess.run(
        [sys.executable, "-c", "import heaptide; print(heaptide.__path__[0])"], capture_output=True, text=True
    ).stdout.strip()
    script = 'mount -t tmpfs tmpfs "$1" && mount -t tmpfs tmpfs "$2" && shift 2 && exec "$@"'
    python = [unshare, *flags, "sh", "-c", script, "sh", inside, package, sys.executable]
    environment = {**os.environ, "TMPDIR": str(inside)}
    capture = tmp_path / "x.tide"
    with blocked(*python, env=environment) as outer:
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        [pid] = map(int, children)
        assert os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt")
        done = heaptide("attach", str(pid), "-o", capture)
        assert "it sees other files than we do" in done.stderr
        assert list(inside.iterdir()) == [] and not capture.exists()
        ask(outer, 8)
        heaptide("detach", str(pid))
        assert os.listdir(f"/proc/{pid}/root{inside}") == []
        # Once more, now that the library is loaded there.
        heaptide("attach", str(pid), "-f", "-o", capture)
        ask(outer, 9)
        assert f"recorded into {capture}" in heaptide("detach", str(pid)).stderr
        assert os.listdir(f"/proc/{pid}/root{inside}") == []
        end(outer)
    assert n_asked(capture) == 1
    # Its own number, not ours.
    assert json.loads(heaptide("stats", "--json", capture).stdout)["metadata"]["pid"] != pid


@once
def test_process_of_another_user_is_recorded_by_root() -> None:
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        pytest.skip("setpriv and root are needed to become somebody else")
    reader = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    other = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", *reader]
    if subprocess.run([*other, sys.executable, "-c", ""], capture_output=True).returncode != 0:
        pytest.skip("nobody else can run the interpreter here")
    # A folder that the process can enter, but not write.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        capture = Path(folder) / "x.tide"
        with blocked(*other, sys.executable) as process:
            attach(process, "-o", capture)
            ask(process, 6)
            detach(process)
            end(process)
        assert capture.stat().st_uid == 65534
        assert n_asked(capture) == 1
    assert left_behind(process) == []


HAS_HEAPTIDE = """
import sys
import heaptide
from heaptide import tracker
print("ready", flush=True)
sys.stdin.readline()
with heaptide.Tracker(sys.argv[1]):
    kept = bytearray(1_000_000)
print(sys.modules["heaptide.tracker"] is tracker, heaptide.active(), flush=True)
"""


@once
def test_program_that_uses_heaptide_itself_is_attached_and_then_records_itself(
    tmp_path: Path, stats: Callable[..., dict[str, Any]]
) -> None:
    own = tmp_path / "own.tide"
    with running(sys.executable, "-c", HAS_HEAPTIDE, own) as process:
        assert output(process).readline() == "ready\n"
        attach(process, "-o", tmp_path / "x.tide")
        detach(process)
        assert process.communicate("\n")[0] == "True False\n"
    assert stats(own)["metadata"]["peak_memory"] >= 1_000_000


RECORDS_ITSELF = """
import sys
import heaptide
with heaptide.Tracker(sys.argv[1]):
    print("ready", flush=True)
    sys.stdin.readline()
"""


@once
def test_recording_that_attach_did_not_begin_is_not_ended_by_detach(tmp_path: Path) -> None:
    capture = tmp_path / "own.tide"
    with running(sys.executable, "-c", RECORDS_ITSELF, capture) as process:
        assert output(process).readline() == "ready\n"
        attach(process, "-o", tmp_path / "x.tide", check=False)
        expected = f"the recording into {capture} was not begun by heaptide attach: end it where it was begun"
        assert refused(process.pid, command="detach") == expected
        process.communicate("\n")
        assert process.returncode == 0
    assert "did not end its recording" not in heaptide("stats", capture).stdout


def test_attached_process_shows_its_native_functions(tmp_path: Path) -> None:
    capture = tmp_path / "x.tide"
    with blocked() as process:
        attach(process, "--native", "-o", capture)
        ask(process, 1)
        detach(process)
        end(process)
    text = heaptide("transform", "csv", "--total", "-o", "-", capture).stdout
    [row] = [row for row in csv.DictReader(text.splitlines()) if 100_000 < int(row["size"]) < 100_100]
    # The functions that make a bytearray, innermost first, then the line of the program that asks for it.
    assert row["frame_kinds"].startswith("n") and "p" in row["frame_kinds"]
    innermost = row["stack_trace"].split("|")[row["frame_kinds"].index("p")]
    assert innermost.startswith(f"<module>;{PROGRAMS / 'blocked_in_a_read.py'};")


@once
def test_process_is_shown_live_and_left_alone_afterwards(tmp_path: Path) -> None:
    terminal = pytest.importorskip("terminal_screen")
    with blocked() as process:
        attach(process, "-o", tmp_path / "x.tide")  # skips where it is not permitted
        detach(process)
        environment = {"TMPDIR": str(tmp_path)}
        command = (sys.executable, "-m", "heaptide", "attach", str(process.pid), "--live")
        with terminal.TerminalScreen(command, env=environment, columns=200) as screen:
            screen.wait_for(f"process {process.pid}")
            ask(process, 2)
            screen.wait_for("<module>", "blocked_in_a_read.py")
            screen.type("q")
            assert screen.finish() == 0
        assert refused(process.pid, command="detach") == "the process is not attached: there is nothing to end"
        assert [path.name for path in tmp_path.iterdir()] == ["x.tide"]
        end(process)


KILLED = """
import os, signal, sys
print("ready", flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


@once
def test_capture_of_an_attached_process_that_is_killed_can_be_read(tmp_path: Path) -> None:
    capture = tmp_path / "x.tide"
    with running(sys.executable, "-c", KILLED) as process:
        assert output(process).readline() == "ready\n"
        attach(process, "-o", capture)
        process.communicate("\n")
        assert process.returncode == -signal.SIGKILL
    assert "did not end its recording" in heaptide("stats", capture).stdout


def snapshot(process: subprocess.Popen[str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Ask for a process's objects; skip the test where the kernel forbids it."""
    done = heaptide("heap", *words, "--pid", str(process.pid), check=False)
    if done.returncode == 1 and any(setting in done.stderr for setting in SETTINGS):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done


def test_process_that_does_not_expect_us_is_entered_for_a_heap_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "of.heap"
    with blocked() as process:
        for _ in range(7):
            ask(process, 3)
        said = snapshot(process, "take", "-o", path).stderr
        assert "stood still for" in said and str(path) in said
        ask(process, 4)  # goes on as before
        assert not left_behind(process)
        end(process)
    rows = json.loads(heaptide("heap", "types", "--json", "-n", "0", path).stdout)["rows"]
    buffers = next(row for row in rows if row["label"] == "bytearray")
    assert buffers["count"] >= 7 and buffers["bytes"] > 700_000
    found = heaptide("heap", "paths", "--kind", "bytearray", path).stdout
    assert "['held'][" in found


@once
def test_heap_of_a_process_is_taken_and_shown_in_one_go(tmp_path: Path) -> None:
    with blocked() as process:
        ask(process, 3)
        done = snapshot(process, "-o", tmp_path / "of.heap", "--fork")
        end(process)
    assert done.stdout.startswith("Partition of a set of ")
    assert "dict of module" in done.stdout
    assert "heaptide heap suspects" in done.stderr
    assert "held" in heaptide("heap", "suspects", tmp_path / "of.heap").stdout


@once
def test_snapshot_of_an_attached_process_says_where_objects_were_allocated(tmp_path: Path) -> None:
    with blocked() as process:
        attach(process, "--objects", "-o", tmp_path / "of.tide")
        for _ in range(5):
            ask(process, 3)
        snapshot(process, "take", "-o", tmp_path / "of.heap")
        detach(process)
        end(process)
    first = json.loads(heaptide("heap", "suspects", "--json", tmp_path / "of.heap").stdout)["suspects"][0]
    assert first["holder"].startswith("sys.modules['__main__'].__dict__['held']")
    program = PROGRAMS / "blocked_in_a_read.py"
    line = program.read_text().splitlines()[first["sites"][0]["line"] - 1]
    assert line.strip() == "held.append(bytearray(100_000))"
