"""Tests that a program runs normally if its recording fails later, and is not started if its recording cannot start.

In both cases, one line on standard error reports the failure.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import PROGRAMS, heaptide
from support.messages import one_sentence
from support.run_twice import write

PROGRAM = PROGRAMS / "recording/varied_allocations.py"


@pytest.fixture(scope="module")
def checksum() -> str:
    """The output of the program when it is not recorded."""
    done = subprocess.run([sys.executable, PROGRAM, "60"], capture_output=True, text=True)
    assert done.returncode == 5
    return done.stdout


def run(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `heaptide run` without checking its exit code."""
    return heaptide("run", *arguments, check=False, **options)


def assert_unharmed(done: subprocess.CompletedProcess[str], checksum: str, *, reason: str) -> None:
    """Check that the program did its work and exited normally, and that one sentence reports the failure."""
    assert (done.stdout, done.returncode) == (checksum, 5), done.stderr
    assert reason in one_sentence(done.stderr)


def assert_not_started(done: subprocess.CompletedProcess[str], *, reason: str) -> None:
    """Check that the program did not start, and that one sentence reports why."""
    assert (done.stdout, done.returncode) == ("", 125), done.stderr
    assert reason in one_sentence(done.stderr) and "the program was not started" in done.stderr


def run_with_mounts(script: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a shell script whose mounts only it can see."""
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script]
    if os.geteuid() != 0 or shutil.which("unshare") is None or subprocess.run([*command[:-1], "true"]).returncode != 0:
        pytest.skip("mounting a small file system needs root and unshare")
    return subprocess.run(command, capture_output=True, text=True, **options)


def recording_command(capture: Path, *options: str) -> str:
    """Return the shell command that records the program into `capture`."""
    words = [sys.executable, "-m", "heaptide", "run", *options, "-o", str(capture), str(PROGRAM), "60"]
    return shlex.join(words)


@pytest.mark.parametrize("size", ["64k", "150k", "280k", "700k"])
def test_full_disk_stops_the_recording_but_not_the_program(tmp_path: Path, checksum: str, size: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    # On the largest disk another file takes the space that the capture would leave free.
    script = f"""
    mount -t tmpfs -o size={size} tmpfs {disk}
    head -c {"400k" if size == "700k" else "0"} /dev/zero >{disk}/other
    code=0; {recording_command(disk / "job.tide")} || code=$?
    cp {disk}/job.tide {tmp_path}/kept.tide
    exit $code
    """
    done = run_with_mounts(script)
    assert_unharmed(done, checksum, reason="No space left on device")
    if size != "64k":  # 64k is too small for the first events
        report = heaptide("stats", tmp_path / "kept.tide")
        assert "recording stopped after" in report.stdout.splitlines()[1]


def test_full_disk_at_exit_keeps_the_recorded_events(tmp_path: Path, checksum: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    fill = "import os; f = open(os.path.dirname(heaptide._native.active()) + '/other', 'wb', 0)\n"
    fill = f"import heaptide\n{fill}try:\n  while True: f.write(bytes(4096))\nexcept OSError: pass"
    script = f"""
    mount -t tmpfs -o size=3m tmpfs {disk}
    code=0; {recording_command(disk / "job.tide", "-q")} {shlex.quote(fill)} || code=$?
    cp {disk}/job.tide {tmp_path}/kept.tide
    exit $code
    """
    done = run_with_mounts(script)
    assert (done.stdout, done.returncode) == (checksum, 5), done.stderr
    assert done.stderr == "" or ("No space left" in done.stderr and done.stderr.count("\n") == 1)
    heaptide("stats", tmp_path / "kept.tide")


def test_program_is_not_started_if_the_folder_is_read_only(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    done = run_with_mounts(f"mount -t tmpfs -o ro tmpfs {folder}; {recording_command(folder / 'job.tide')}")
    assert_not_started(done, reason="Read-only file system")
    assert f"{folder}/job.tide" in done.stderr


def test_program_is_not_started_if_the_working_folder_is_read_only(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    command = shlex.join([sys.executable, "-m", "heaptide", "run", str(PROGRAM), "60"])
    done = run_with_mounts(f"mount -t tmpfs -o ro tmpfs {folder}; cd {folder}; {command}")
    assert_not_started(done, reason="Read-only file system")


def test_program_is_not_started_if_the_working_folder_was_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    command = shlex.join([sys.executable, "-m", "heaptide", "run", str(PROGRAM), "60"])
    done = subprocess.run(["sh", "-c", f"cd {folder}; rmdir {folder}; {command}"], capture_output=True, text=True)
    assert_not_started(done, reason="No such file or directory")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("missing/job.tide", "No such file or directory"),
        ("folder", "Is a directory"),
        ("folder/", "Is a directory"),
        ("pipe", "pipe"),
        ("/dev/full", "No space left on device"),
        ("/dev/null", "/dev/null"),
        ("/proc/version", "/proc/version"),
        ("x" * 300, "File name too long"),
    ],
)
def test_program_is_not_started_if_the_output_is_unusable(tmp_path: Path, output: str, reason: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert_not_started(run("-f", "-o", output, PROGRAM, "60", cwd=tmp_path), reason=reason)


def without_privilege() -> list[str]:
    """Return the start of a command to which file permissions apply, even for root."""
    if os.geteuid() != 0:
        return []
    start = ["setpriv", "--bounding-set=-dac_override"]
    if shutil.which("setpriv") is None or subprocess.run([*start, "true"]).returncode != 0:
        pytest.skip("file permissions do not apply to root here: setpriv is missing or not allowed")
    return start


@pytest.mark.parametrize("read_only", ["file", "folder"])
def test_program_is_not_started_without_write_permission(tmp_path: Path, read_only: str) -> None:
    existing = write(tmp_path / "folder" / "existing.tide", "somebody's work")
    forbidden = existing if read_only == "file" else existing.parent
    forbidden.chmod(0o444 if read_only == "file" else 0o555)
    output = existing if read_only == "file" else existing.with_name("new.tide")
    command = [*without_privilege(), *shlex.split(recording_command(output, "-f"))]
    done = subprocess.run(command, capture_output=True, text=True)
    existing.parent.chmod(0o755)
    assert_not_started(done, reason="Permission denied")
    assert existing.read_text() == "somebody's work" and not existing.with_name("new.tide").exists()


def limited(limit: int, amount: int) -> Callable[[], None]:
    """Return a function that sets a resource limit."""
    return lambda: resource.setrlimit(limit, (amount, amount))


@pytest.mark.parametrize("size", [290_000, 700_000])
def test_file_size_limit_stops_the_recording_but_not_the_program(tmp_path: Path, checksum: str, size: int) -> None:
    capture = tmp_path / "job.tide"
    done = run("-o", capture, PROGRAM, "60", preexec_fn=limited(resource.RLIMIT_FSIZE, size))
    assert_unharmed(done, checksum, reason="File too large")
    assert capture.exists() and capture.stat().st_size <= size


@pytest.mark.parametrize("size", [0, 100, 100_000])
def test_program_is_not_started_if_the_file_size_limit_is_too_low_to_begin(tmp_path: Path, size: int) -> None:
    capture = tmp_path / "job.tide"
    done = run("-o", capture, PROGRAM, "60", preexec_fn=limited(resource.RLIMIT_FSIZE, size))
    assert_not_started(done, reason="File too large")
    # Without a complete header, there is no file.
    assert capture.exists() is (size > 4096)


def test_capture_deleted_during_the_run_is_reported_at_exit(tmp_path: Path, checksum: str) -> None:
    capture = tmp_path / "job.tide"
    done = run("-o", capture, PROGRAM, "60", f"import os; os.unlink({str(capture)!r})")
    assert_unharmed(done, checksum, reason="job.tide")
    assert not capture.exists()


def test_folder_deleted_during_the_run_is_reported_at_exit(tmp_path: Path, checksum: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    done = run("-o", "job.tide", PROGRAM, "60", f"import shutil; shutil.rmtree({str(folder)!r})", cwd=folder)
    assert_unharmed(done, checksum, reason="job.tide")


def test_second_run_with_the_same_output_does_not_disturb_the_first(tmp_path: Path, checksum: str) -> None:
    capture = tmp_path / "job.tide"
    second = [sys.executable, "-m", "heaptide", "run", "-q", "-f", "-o", str(capture), "-c", "x = bytes(1234567)"]
    done = run("-f", "-q", "-o", capture, PROGRAM, "60", f"import subprocess; subprocess.run({second!r}, check=True)")
    assert (done.stdout, done.returncode) == (checksum, 5), done.stderr
    # The file holds the whole capture of the second run.
    assert "size=1234600 " in heaptide("parse", capture).stdout


def test_file_that_replaced_the_capture_keeps_its_content(tmp_path: Path, checksum: str) -> None:
    capture = tmp_path / "job.tide"
    replace = f"import os; os.rename({str(capture)!r}, 'moved.tide'); open({str(capture)!r}, 'w').write('mine')"
    done = run("-q", "-o", capture, PROGRAM, "60", replace, cwd=tmp_path)
    assert (done.stdout, done.returncode, done.stderr) == (checksum, 5, "")
    assert capture.read_text() == "mine"
    assert heaptide("stats", tmp_path / "moved.tide").stderr == ""


# Closes all descriptors, as daemons do, then opens files that get the same numbers.
CLOSE = """
import os
os.closerange(3, 65536)
own = [open(f"own{n}", "wb+") for n in range(40)]
for file in own: file.write(b"mine" * 1000); file.flush()
for number in range(3, 43): os.dup2(own[number - 3].fileno(), 697 + number)
"""


@pytest.mark.parametrize("options", [[], ["--aggregate"], ["--objects"], ["--native"], ["--sample=1k"]])
def test_program_that_closes_all_descriptors_is_recorded_to_its_end(
    tmp_path: Path, checksum: str, options: list[str]
) -> None:
    capture = tmp_path / "job.tide"
    after = "held = [bytes(1_234_567) for _ in range(3)]"
    done = run(*options, "-q", "-o", capture, PROGRAM, "60", CLOSE + after, cwd=tmp_path)
    assert (done.stdout, done.returncode, done.stderr) == (checksum, 5, "")
    for number in range(40):
        assert (tmp_path / f"own{number}").read_bytes() == b"mine" * 1000
    report = json.loads(heaptide("stats", "--json", capture).stdout)
    assert report["heaptide"]["processes"][0]["ended_in_order"] and report["heaptide"]["damage"] == []
    if options in ([], ["--objects"], ["--native"]):
        assert heaptide("parse", capture).stdout.count(" size=1234600 ") == 3


def test_closed_capture_that_cannot_be_opened_again_ends_the_recording(tmp_path: Path, checksum: str) -> None:
    capture = tmp_path / "job.tide"
    move = f"os.rename({str(capture)!r}, 'moved.tide'); open({str(capture)!r}, 'w').write('mine')"
    done = run("-o", capture, PROGRAM, "60", CLOSE + move, cwd=tmp_path)
    assert_unharmed(done, checksum, reason="the program has closed its descriptor")
    assert capture.read_text() == "mine"
    assert heaptide("stats", tmp_path / "moved.tide").returncode == 0


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "1>&- 2>&-", "0<&- 1>&- 2>&-"])
def test_closed_standard_streams_stay_closed(tmp_path: Path, closed: str) -> None:
    program = """
import os, sys
def state(fd):
    try:
        return "the capture" if ".tide" in os.readlink(f"/proc/self/fd/{fd}") else "open"
    except OSError:
        return "closed"
states = [state(fd) for fd in range(3)]
with open("seen", "w") as seen:
    print(states, sys.stdin is None, sys.stdout is None, sys.stderr is None, file=seen)
sys.exit(6)
"""
    write(tmp_path / "job.py", program)
    seen = []
    for prefix in ("", "-m heaptide run -q -o job.tide"):
        done = subprocess.run(["sh", "-c", f"exec {sys.executable} {prefix} job.py {closed}"], cwd=tmp_path)
        seen.append((done.returncode, (tmp_path / "seen").read_text()))
    assert seen[1] == seen[0] and seen[0][0] == 6
    assert heaptide("stats", tmp_path / "job.tide").stderr == ""


def test_tracker_raises_when_no_file_can_be_opened_and_works_afterwards(tmp_path: Path) -> None:
    program = """
import os, resource, heaptide
heaptide.Tracker  # imports its module while files can be opened
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True: held.append(os.dup(0))
except OSError: pass
try:
    heaptide.Tracker("block.tide").start()
except OSError as error:
    print(error.errno, heaptide.active())
held = [os.close(fd) for fd in held]
with heaptide.Tracker("block.tide"): x = bytes(1234567)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("24 False\n", "", 0)
    assert "size=1234600 " in heaptide("parse", tmp_path / "block.tide").stdout


def test_unread_message_does_not_keep_the_program_from_exiting(tmp_path: Path) -> None:
    # Standard error is a full pipe, so that a thread of Heaptide is blocked in a write when the program exits.
    program = """
import os, sys, threading
from heaptide.messages import print_message
thread = threading.Thread(target=print_message, args=("nobody reads this",), daemon=True)
thread.start()
write = {"x86_64": "1 ", "aarch64": "64 "}[os.uname().machine]
while not open(f"/proc/self/task/{thread.native_id}/syscall").read().startswith(write):
    pass
sys.exit(5)
"""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    for piece in (bytes(4096), b"x"):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, piece)
    os.set_blocking(writing, True)
    try:
        done = subprocess.run([sys.executable, "-c", program], stderr=writing)
    finally:
        os.close(reading)
        os.close(writing)
    assert done.returncode == 5
