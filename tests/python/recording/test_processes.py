"""Tests programs with several processes: children leave the parent's capture intact, and are recorded on request."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.commands import PROGRAMS, REPOSITORY, heaptide, python, session_id

Run = Callable[..., Any]

BYTES_HEAD = sys.getsizeof(b"")
# Nothing else allocates blocks of these sizes, so their number is exact.
BEFORE, CHILD, PARENT = 1_111_111, 1_222_222, 1_333_333


def counts(capture: Path) -> list[int]:
    """Count the blocks of each of the three sizes."""
    lines = [line for line in heaptide("parse", capture).stdout.splitlines() if line.startswith("ALLOCATION ")]
    return [sum(f" size={size + BYTES_HEAD} " in line for line in lines) for size in (BEFORE, CHILD, PARENT)]


def header(capture: Path) -> dict[str, str]:
    """Return the fields of a capture's header."""
    line = heaptide("parse", capture).stdout.splitlines()[0]
    return dict(word.split("=", 1) for word in line.split(" ") if "=" in word)


def all_captures(folder: Path) -> list[Path]:
    """Return the captures in a folder."""
    return sorted(path for path in folder.iterdir() if ".tide" in path.name)


def statistics(captures: Sequence[Path]) -> dict[str, Any]:
    """Return the statistics of captures together."""
    result: dict[str, Any] = json.loads(heaptide("stats", "--json", *captures).stdout)
    return result


FORKING = f"""
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
before = [bytes({BEFORE}) for _ in range(5)]
go, done = os.pipe(), os.pipe()
pid = CREATE_CHILD
if pid == 0:
    held = [bytes({CHILD}) for _ in range(3)]
    os.write(done[1], b"x")
    os.read(go[0], 1)
    held += [bytes({CHILD}) for _ in range(4)]
    LEAVE
after = [bytes({PARENT}) for _ in range(4)]
os.read(done[0], 1)
after += [bytes({PARENT}) for _ in range(5)]
os.write(go[1], b"x")
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
after += [bytes({PARENT}) for _ in range(2)]
print("child ended with", code)
"""
LEAVES = {"os._exit": "os._exit(3)", "sys.exit": "sys.exit(3)", "exec": "os.execv('/bin/sh', ['sh', '-c', 'exit 3'])"}


@pytest.mark.parametrize("leave", LEAVES)
def test_forked_child_is_not_recorded_and_the_parents_capture_is_intact(
    heaptide_run: Run, tmp_path: Path, leave: str
) -> None:
    done = heaptide_run(FORKING.replace("CREATE_CHILD", "os.fork()").replace("LEAVE", LEAVES[leave]))
    assert (done.stdout, done.stderr) == ("child ended with 3\n", "")
    assert all_captures(tmp_path) == [done.capture]
    assert counts(done.capture) == [5, 0, 11]
    process = statistics([done.capture])["heaptide"]["processes"][0]
    assert process["ended_in_order"]


def test_child_of_a_raw_clone_is_not_recorded_and_the_parents_capture_is_intact(
    heaptide_run: Run, tmp_path: Path
) -> None:
    # Calls clone by its number on x86-64 or aarch64; SIGCHLD is 17.
    create = (
        "__import__('ctypes').CDLL(None).syscall({'x86_64': 56, 'aarch64': 220}[os.uname().machine], 17, 0, 0, 0, 0)"
    )
    done = heaptide_run(FORKING.replace("CREATE_CHILD", create).replace("LEAVE", "os._exit(3)"))
    assert (done.stdout, done.stderr) == ("child ended with 3\n", "")
    assert all_captures(tmp_path) == [done.capture]
    assert counts(done.capture) == [5, 0, 11]


@pytest.mark.parametrize("option", [[], ["--follow-fork"], ["--aggregate"]])
def test_python_does_not_warn_about_forks_of_a_program_without_threads(heaptide_run: Run, option: list[str]) -> None:
    # Python 3.12 and later warn about forks in processes with several threads.
    program = f"""
    import os, warnings
    warnings.simplefilter("always")
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    after = bytes({PARENT})
    """
    done = heaptide_run(program, *option)
    assert done.stderr == ""
    assert "--aggregate" in option or counts(done.capture) == [0, 0, 1]
    report = statistics([done.capture])
    assert report["metadata"]["peak_memory"] > PARENT and report["heaptide"]["allocations_over_live_blocks"] == 0


def test_forked_child_is_not_active_and_may_record_itself(heaptide_run: Run, tmp_path: Path) -> None:
    done = heaptide_run(f"""
    import heaptide, os, warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    pid = os.fork()
    if pid == 0:
        print(heaptide.active(), flush=True)
        with heaptide.Tracker("child.tide"):
            held = bytes({CHILD})
        os._exit(0)
    os.waitpid(pid, 0)
    after = bytes({PARENT})
    print(heaptide.active())
    """)
    assert done.stdout == "False\nTrue\n"
    assert counts(done.capture) == [0, 0, 1]
    assert counts(tmp_path / "child.tide") == [0, 1, 0]


def test_child_forked_while_another_thread_records_can_record_itself(tmp_path: Path) -> None:
    program = """
    import heaptide, os, signal, threading, warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    heaptide.Tracker  # imported here: a child forked during another thread's import could not finish the import
    ends = threading.Event()
    def start_and_stop():
        while not ends.is_set():
            with heaptide.Tracker("restarted.tide", overwrite=True):
                pass
    thread = threading.Thread(target=start_and_stop)
    thread.start()
    codes = []
    for turn in range(60):
        pid = os.fork()
        if pid == 0:
            signal.alarm(300)  # ends a child that hangs
            ends.set()
            with heaptide.Tracker("child.tide", overwrite=True):
                bytes(10000)
            os._exit(5)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        if codes[-1] != 5:
            break
    ends.set()
    thread.join()
    print(codes == [5] * 60)
    """
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(program))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


def test_followed_child_writes_a_separate_capture(heaptide_run: Run, tmp_path: Path) -> None:
    for leave in LEAVES.values():
        done = heaptide_run(FORKING.replace("CREATE_CHILD", "os.fork()").replace("LEAVE", leave), "--follow-fork")
        assert (done.stdout, done.stderr) == ("child ended with 3\n", "")
        (child,) = set(all_captures(tmp_path)) - {done.capture}
        assert counts(done.capture) == [5, 0, 11]
        assert counts(child) == [0, 7, 0]
        assert session_id(child) == session_id(done.capture)
        assert header(child)["parent_pid"] == header(done.capture)["pid"]
        assert child.name == f"{done.capture.name}.{header(child)['pid']}"
        threads = [line for line in heaptide("parse", child).stdout.splitlines() if line.startswith("THREAD ")]
        assert [line.split(" time=")[0] for line in threads] == [f"THREAD thread=1 tid={header(child)['pid']}"]
        assert threads[0].endswith(" name=MainThread")
        child.unlink()
        done.capture.unlink()


def test_two_sessions_have_different_ids(heaptide_run: Run) -> None:
    first, second = heaptide_run("pass"), heaptide_run("pass")
    assert session_id(first.capture) != session_id(second.capture)


@pytest.mark.once
def test_reports_show_the_session_id(heaptide_run: Run, stats: Run, parse: Run) -> None:
    capture = heaptide_run("pass").capture
    shown = stats(capture)["heaptide"]["processes"][0]["session"]
    assert shown == session_id(capture).hex()
    assert f" session={shown} " in parse(capture)[0]


def test_followed_grandchildren_belong_to_the_same_session(heaptide_run: Run, tmp_path: Path) -> None:
    done = heaptide_run(
        f"""
    import os, sys, warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    for generation in range(3):
        pid = os.fork()
        if pid:
            held = [bytes({PARENT}) for _ in range(generation + 1)]
            os.waitpid(pid, 0)
            sys.exit(0)
    held = [bytes({CHILD}) for _ in range(9)]
    """,
        "--follow-fork",
    )
    captures = all_captures(tmp_path)
    assert len(captures) == 4 and len({session_id(capture) for capture in captures}) == 1
    assert sorted(counts(capture) for capture in captures) == [[0, 0, 1], [0, 0, 2], [0, 0, 3], [0, 9, 0]]
    parents = {header(capture)["pid"]: header(capture)["parent_pid"] for capture in captures}
    ancestry = [header(min(captures, key=lambda path: len(path.name)))["pid"]]
    while len(ancestry) < 4:
        ancestry += [pid for pid, parent in parents.items() if parent == ancestry[-1] and pid != parent]
    assert sorted(ancestry) == sorted(parents)
    assert done.stderr == ""


def test_reports_merge_the_captures_of_a_session(heaptide_run: Run, tmp_path: Path) -> None:
    heaptide_run(FORKING.replace("CREATE_CHILD", "os.fork()").replace("LEAVE", "sys.exit(3)"), "--follow-fork")
    captures = all_captures(tmp_path)
    assert len(captures) == 2
    single = [statistics([capture]) for capture in captures]
    merged = statistics(captures)
    for key in ("total_num_allocations", "total_bytes_allocated"):
        assert merged[key] == sum(each[key] for each in single)
    for allocator, number in merged["allocator_type_distribution"].items():
        assert number == sum(each["allocator_type_distribution"].get(allocator, 0) for each in single)
    peaks = [each["metadata"]["peak_memory"] for each in single]
    assert max(peaks) <= merged["metadata"]["peak_memory"] <= sum(peaks)
    assert {each["pid"] for each in merged["heaptide"]["processes"]} == {int(header(path)["pid"]) for path in captures}
    for command in ("summary", "tree", "stats", "parse"):
        assert heaptide(command, *captures).stdout


@pytest.mark.parametrize("follow", [False, True])
def test_forks_of_a_program_with_threads_neither_hang_nor_crash(
    heaptide_run: Run, tmp_path: Path, follow: bool
) -> None:
    options = ["--follow-fork"] if follow else []
    n_forks = 45 if follow else 200
    done = heaptide_run(PROGRAMS / "recording/forks_while_threads_allocate.py", *options, args=[str(n_forks)])
    assert done.stdout == f"{n_forks} {n_forks}\n" and done.stderr == ""
    captures = all_captures(tmp_path)
    assert len(captures) == (1 + n_forks if follow else 1)
    lines = heaptide("parse", done.capture).stdout.splitlines()
    assert sum(f" size={1_234_567 + BYTES_HEAD} " in line for line in lines) == 11
    report = statistics(captures)["heaptide"]
    assert report["damage"] == [] and report["allocations_over_live_blocks"] == 0
    assert len(report["processes"]) == len(captures)


POOL = f"""
import multiprocessing, warnings
warnings.simplefilter("ignore", DeprecationWarning)
def work(number):
    held = bytes({CHILD})
    return number * number
if __name__ == "__main__":
    with multiprocessing.get_context(METHOD).Pool(2) as pool:
        print(pool.map(work, range(8), chunksize=1))
        # Without this the pool kills its workers, maybe before one of them has started.
        pool.close()
        pool.join()
    process = multiprocessing.get_context(METHOD).Process(target=work, args=(3,))
    process.start()
    process.join()
    after = [bytes({PARENT}) for _ in range(6)]
    print(process.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("follow", [False, True])
def test_multiprocessing_works_with_every_start_method(
    heaptide_run: Run, tmp_path: Path, method: str, follow: bool
) -> None:
    done = heaptide_run(POOL.replace("METHOD", repr(method)), *(["--follow-fork"] if follow else []))
    assert done.stdout == "[0, 1, 4, 9, 16, 25, 36, 49]\n0\n" and done.stderr == ""
    assert counts(done.capture)[2] == 6 and counts(done.capture)[1] == 0
    children = [capture for capture in all_captures(tmp_path) if capture != done.capture]
    # Spawned processes join as other interpreters do. One of them forks the workers of a fork server.
    assert len(children) == ((4 if method == "forkserver" else 3) if follow else 0)
    if children:
        assert sum(counts(child)[1] for child in children) == 9


def test_followed_child_of_multiprocessing_completes_its_capture(heaptide_run: Run, tmp_path: Path) -> None:
    program = f"""
    import multiprocessing, warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    def work():
        held = bytes({CHILD})
    if __name__ == "__main__":
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        process.join()
    """
    heaptide_run(program, "--follow-fork")
    processes = statistics(all_captures(tmp_path))["heaptide"]["processes"]
    assert [process["ended_in_order"] for process in processes] == [True, True]


STARTERS = {
    "subprocess": "subprocess.run(command, check=True)",
    "subprocess with a new session": "subprocess.run(command, start_new_session=True, check=True)",
    "subprocess with inherited files": "subprocess.run(command, close_fds=False, check=True)",
    "a function before exec": "subprocess.run(command, preexec_fn=lambda: bytes(5000), check=True)",
    "posix_spawn": "os.waitpid(os.posix_spawn(sys.executable, command, os.environ), 0)",
    "system": "os.system(' '.join(command))",
}


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("starter", STARTERS)
def test_started_programs_inherit_no_descriptor_of_heaptide(
    heaptide_run: Run, tmp_path: Path, starter: str, follow: bool
) -> None:
    (tmp_path / "other.py").write_text(f"import os; x = bytes({CHILD}); print(len(os.listdir('/proc/self/fd')))")
    program = f"""
    import os, subprocess, sys
    command = [sys.executable, "other.py"]
    for _ in range(3):
        held = bytes({PARENT})
        {STARTERS[starter]}
    """
    done = heaptide_run(program, *(["--follow-fork"] if follow else []))
    # Three standard streams and the folder that is listed: the new program does not inherit the capture. If it joins the
    # session, it has its own capture and reads its own resident size.
    expected = "6\n" if follow else "4\n"
    assert done.stdout == expected * 3 and done.stderr == ""
    assert counts(done.capture) == [0, 0, 3]


FORKS_OFTEN = """
import os, sys, urllib.request, warnings
import heaptide.control
from support.waiting import wait_until

warnings.simplefilter("always")
control = heaptide.control.start("0")
with heaptide.Tracker("forks.tide", interval_ms=1):
    for number in range(3):
        if (pid := os.fork()) == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        print(urllib.request.urlopen(control.address + "/api/v1/profiler/status").status)
        # Waits for the thread that has just answered: only the permanent threads pause around a fork.
        wait_until(lambda: len(os.listdir("/proc/self/task")) == 4, "the end of the thread that answered")
"""


def test_python_does_not_warn_about_heaptides_threads_at_forks(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(FORKS_OFTEN)
    environment = {"HEAPTIDE_RUNTIME_DIR": str(tmp_path / "run"), "TMPDIR": str(tmp_path)}
    done = python("job.py", cwd=tmp_path, PYTHONPATH=str(REPOSITORY / "tests" / "python"), **environment)
    assert done.stdout == "200\n" * 3
    assert "multi-threaded" not in done.stderr


RUN = {"HEAPTIDE": "run", "HEAPTIDE_QUIET": "1"}


@pytest.mark.parametrize(
    "setting",
    [
        {"HEAPTIDE_CONTROL_FILE": "control"},
        {"HEAPTIDE_SIGNAL": "USR2"},
        {"HEAPTIDE_MAX_SIZE": "100M", "HEAPTIDE_FOLLOW_FORK": "1", **RUN},
        {"HEAPTIDE_FOLLOW_FORK": "1", **RUN},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_python_does_not_warn_about_the_watching_thread_at_forks(tmp_path: Path, setting: dict[str, str]) -> None:
    program = """
    import os, signal, sys, threading, time, warnings
    # Not "error": from 3.13 on, Python discards an exception of this warning.
    warnings.simplefilter("always")
    def n_threads():
        return len(os.listdir("/proc/self/task"))
    usual = n_threads()
    for number in range(20):
        if number == 10:
            # From 3.13 on, Python counts threads after its hooks.
            os.register_at_fork(after_in_parent=lambda: [time.sleep(0) for _ in range(10)])
        if (pid := os.fork()) == 0:
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    # The thread runs again in the parent, and also in a child.
    while n_threads() < usual: time.sleep(0.001)
    if (pid := os.fork()) == 0:
        while n_threads() < 2: time.sleep(0.001)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    print(usual > 1, threading.enumerate() == [threading.main_thread()])
    """
    (tmp_path / "job.py").write_text(textwrap.dedent(program))
    done = python("job.py", cwd=tmp_path, **setting)
    assert (done.stdout, done.stderr) == ("True True\n", "")
