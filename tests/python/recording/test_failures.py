"""Whatever goes wrong with the recording, the program runs on unharmed, and one line on standard error says so."""

from __future__ import annotations

import contextlib
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
from support.run_twice import write

JOB = PROGRAMS / "varied_allocations.py"


@pytest.fixture(scope="module")
def checksum() -> str:
    """What the job prints when nobody records it."""
    done = subprocess.run([sys.executable, JOB, "60"], capture_output=True, text=True)
    assert done.returncode == 5
    return done.stdout


def run(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return heaptide("run", *arguments, check=False, **options)


def assert_unharmed(done: subprocess.CompletedProcess[str], checksum: str, *, says: str) -> None:
    """The program did its work and ended as always; one line of ours says what happened."""
    assert (done.stdout, done.returncode) == (checksum, 5), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("heaptide: ") and says in lines[0], done.stderr


def in_own_mounts(script: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a shell script that may mount things which only it sees."""
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script]
    if os.geteuid() != 0 or shutil.which("unshare") is None or subprocess.run([*command[:-1], "true"]).returncode != 0:
        pytest.skip("mounting a small file system needs root and unshare")
    return subprocess.run(command, capture_output=True, text=True, **options)


def recorded_job(capture: Path, *options: str) -> str:
    words = [sys.executable, "-m", "heaptide", "run", *options, "-o", str(capture), str(JOB), "60"]
    return shlex.join(words)


@pytest.mark.parametrize("size", ["64k", "280k", "600k", "1500k"])
def test_full_disk_ends_the_recording_and_not_the_program(tmp_path: Path, checksum: str, size: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    # Something else fills what the capture leaves free: the space is gone in any case.
    script = f"""
    mount -t tmpfs -o size={size} tmpfs {disk}
    head -c {"300k" if size == "1500k" else "0"} /dev/zero >{disk}/other
    code=0; {recorded_job(disk / "job.tide")} || code=$?
    cp {disk}/job.tide {tmp_path}/kept.tide
    exit $code
    """
    done = in_own_mounts(script)
    assert_unharmed(done, checksum, says="No space left on device")
    report = heaptide("stats", tmp_path / "kept.tide")
    assert "did not end its recording" in report.stdout


def test_full_disk_at_the_end_still_leaves_what_was_recorded(tmp_path: Path, checksum: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    fill = "import os; f = open(os.path.dirname(heaptide._native.active()) + '/other', 'wb', 0)\n"
    fill = f"import heaptide\n{fill}try:\n  while True: f.write(bytes(4096))\nexcept OSError: pass"
    script = f"""
    mount -t tmpfs -o size=3m tmpfs {disk}
    code=0; {recorded_job(disk / "job.tide", "-q")} {shlex.quote(fill)} || code=$?
    cp {disk}/job.tide {tmp_path}/kept.tide
    exit $code
    """
    done = in_own_mounts(script)
    assert (done.stdout, done.returncode) == (checksum, 5), done.stderr
    assert done.stderr == "" or ("No space left" in done.stderr and done.stderr.count("\n") == 1)
    heaptide("stats", tmp_path / "kept.tide")


def test_read_only_folder_leaves_the_program_unrecorded(tmp_path: Path, checksum: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    done = in_own_mounts(f"mount -t tmpfs -o ro tmpfs {folder}; {recorded_job(folder / 'job.tide')}")
    assert_unharmed(done, checksum, says="Read-only file system")
    assert f"{folder}/job.tide" in done.stderr


def test_current_folder_that_cannot_be_written_leaves_the_program_unrecorded(tmp_path: Path, checksum: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    command = shlex.join([sys.executable, "-m", "heaptide", "run", str(JOB), "60"])
    done = in_own_mounts(f"mount -t tmpfs -o ro tmpfs {folder}; cd {folder}; {command}")
    assert_unharmed(done, checksum, says="Read-only file system")


def test_deleted_current_folder_leaves_the_program_unrecorded(tmp_path: Path, checksum: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    command = shlex.join([sys.executable, "-m", "heaptide", "run", str(JOB), "60"])
    done = subprocess.run(["sh", "-c", f"cd {folder}; rmdir {folder}; {command}"], capture_output=True, text=True)
    assert_unharmed(done, checksum, says="No such file or directory")


@pytest.mark.parametrize(
    ("output", "says"),
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
def test_output_that_cannot_hold_a_capture_leaves_the_program_unrecorded(
    tmp_path: Path, checksum: str, output: str, says: str
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert_unharmed(run("-f", "-o", output, JOB, "60", cwd=tmp_path), checksum, says=says)


def without_privilege() -> list[str]:
    """The start of a command that file permissions bind, even for root."""
    if os.geteuid() != 0:
        return []
    start = ["setpriv", "--bounding-set=-dac_override"]
    if shutil.which("setpriv") is None or subprocess.run([*start, "true"]).returncode != 0:
        pytest.skip("file permissions do not bind root here: setpriv is missing or not allowed")
    return start


@pytest.mark.parametrize("what", ["file", "folder"])
def test_permissions_that_forbid_writing_leave_the_program_unrecorded(tmp_path: Path, checksum: str, what: str) -> None:
    there = write(tmp_path / "folder" / "there.tide", "somebody's work")
    forbidden = there if what == "file" else there.parent
    forbidden.chmod(0o444 if what == "file" else 0o555)
    output = there if what == "file" else there.with_name("new.tide")
    command = [*without_privilege(), *shlex.split(recorded_job(output, "-f"))]
    done = subprocess.run(command, capture_output=True, text=True)
    there.parent.chmod(0o755)
    assert_unharmed(done, checksum, says="Permission denied")
    assert there.read_text() == "somebody's work" and not there.with_name("new.tide").exists()


def limited(kind: int, amount: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (amount, amount))


@pytest.mark.parametrize("size", [0, 100, 100_000, 290_000, 700_000])
def test_limit_on_file_sizes_ends_the_recording_and_not_the_program(tmp_path: Path, checksum: str, size: int) -> None:
    capture = tmp_path / "job.tide"
    done = run("-o", capture, JOB, "60", preexec_fn=limited(resource.RLIMIT_FSIZE, size))
    assert_unharmed(done, checksum, says="File too large")
    assert capture.stat().st_size <= size


def test_file_deleted_during_the_run_is_told_at_the_end(tmp_path: Path, checksum: str) -> None:
    capture = tmp_path / "job.tide"
    done = run("-o", capture, JOB, "60", f"import os; os.unlink({str(capture)!r})")
    assert_unharmed(done, checksum, says="job.tide")
    assert not capture.exists()


def test_folder_deleted_during_the_run_does_no_harm(tmp_path: Path, checksum: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    done = run("-o", "job.tide", JOB, "60", f"import shutil; shutil.rmtree({str(folder)!r})", cwd=folder)
    assert_unharmed(done, checksum, says="job.tide")


def test_second_run_into_the_same_file_does_not_harm_the_first(tmp_path: Path, checksum: str) -> None:
    capture = tmp_path / "job.tide"
    second = [sys.executable, "-m", "heaptide", "run", "-q", "-f", "-o", str(capture), "-c", "x = bytes(1234567)"]
    done = run("-f", "-q", "-o", capture, JOB, "60", f"import subprocess; subprocess.run({second!r}, check=True)")
    assert (done.stdout, done.returncode) == (checksum, 5), done.stderr
    # The later one has the name, and its capture is whole.
    assert "size=1234600 " in heaptide("parse", capture).stdout


def test_file_replaced_during_the_run_keeps_its_new_content(tmp_path: Path, checksum: str) -> None:
    capture = tmp_path / "job.tide"
    replace = f"import os; os.rename({str(capture)!r}, 'moved.tide'); open({str(capture)!r}, 'w').write('mine')"
    done = run("-q", "-o", capture, JOB, "60", replace, cwd=tmp_path)
    assert (done.stdout, done.returncode, done.stderr) == (checksum, 5, "")
    assert capture.read_text() == "mine"
    assert heaptide("stats", tmp_path / "moved.tide").stderr == ""


def test_program_that_closes_all_files_does_not_find_our_bytes_in_its_own(tmp_path: Path, checksum: str) -> None:
    # What daemons do: close everything, then open files of their own, which get the numbers that became free.
    close = """
import os
os.closerange(3, 4096)
own = [open(f"own{n}", "wb+") for n in range(40)]
for file in own: file.write(b"mine" * 1000); file.flush()
"""
    done = run("-o", tmp_path / "job.tide", JOB, "60", close, cwd=tmp_path)
    assert (done.stdout, done.returncode) == (checksum, 5), done.stderr
    for number in range(40):
        assert (tmp_path / f"own{number}").read_bytes() == b"mine" * 1000
    assert heaptide("stats", tmp_path / "job.tide").returncode == 0


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
    for ours in ("", "-m heaptide run -q -o job.tide"):
        done = subprocess.run(["sh", "-c", f"exec {sys.executable} {ours} job.py {closed}"], cwd=tmp_path)
        seen.append((done.returncode, (tmp_path / "seen").read_text()))
    assert seen[1] == seen[0] and seen[0][0] == 6
    assert heaptide("stats", tmp_path / "job.tide").stderr == ""


def test_many_open_files_leave_a_block_unrecorded_and_the_program_unharmed(tmp_path: Path) -> None:
    program = """
import os, resource, heaptide
heaptide.Tracker  # loaded while files can be opened
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


def test_a_line_of_ours_that_nobody_reads_does_not_keep_the_program_from_ending(tmp_path: Path) -> None:
    # Standard error is a pipe that is full, so that a thread of ours is in the middle of writing when the program ends.
    program = """
import os, sys, threading
from heaptide.messages import say
thread = threading.Thread(target=say, args=("nobody reads this",), daemon=True)
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
