"""Tests job records: one line when a job begins and one when it ends, whatever happens to the process."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import time
from pathlib import Path

import pytest
from support.commands import heaptide
from support.job_records import files, lines, rows, run_jobs
from support.run_twice import write


def test_job_leaves_two_private_records_without_a_recording(tmp_path: Path) -> None:
    run_jobs(
        tmp_path,
        """
        with heaptide.job("mail", key="m-1", queue="fast"):
            pass
        try:
            with heaptide.job("mail"):
                raise KeyError("x")
        except KeyError:
            pass
        """,
    )
    [file] = files(tmp_path / "jobs")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    begin, end, _, failed = lines(tmp_path / "jobs")
    assert [begin["event"], begin["outcome"], begin["seconds"]] == ["begin", "running", None]
    assert [end["event"], end["outcome"], end["key"], end["labels"]] == ["end", "ok", "m-1", {"queue": "fast"}]
    assert begin["id"] == end["id"] and end["seconds"] >= 0 and end["resident_after"] > 1_000_000
    assert [failed["outcome"], failed["error"]] == ["failed", "KeyError"]
    assert [end["v"], end["host"]] == [1, socket.gethostname()]
    assert all(end[name] for name in ("boot_id", "pid_namespace", "pid", "start"))
    assert file.name == f"jobs-{end['host']}-{end['pid']}-{end['start']}.jsonl"


def test_record_under_heaptide_run_names_the_script(tmp_path: Path) -> None:
    script = write(tmp_path / "mail.py", "import heaptide\nwith heaptide.job('mail'):\n    pass\n")
    env = {**os.environ, "HEAPTIDE_JOBS": str(tmp_path / "jobs")}
    heaptide("run", "-q", "-o", tmp_path / "mail.tide", script, "--fast", env=env)
    assert {line["program"] for line in lines(tmp_path / "jobs")} == {"mail.py"}


def test_nothing_is_written_without_the_setting(tmp_path: Path) -> None:
    run_jobs(tmp_path, "with heaptide.job('mail'): pass", HEAPTIDE_JOBS="")
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


def test_running_job_of_a_killed_process_is_reported_as_killed(tmp_path: Path) -> None:
    done = run_jobs(
        tmp_path,
        """
        import signal
        with heaptide.job("done"):
            pass
        heaptide.job("mail").begin()
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    found = rows(tmp_path / "jobs")
    assert [found["mail"]["runs"], found["mail"]["killed"], found["done"]["ok"]] == [1, 1, 1]


@pytest.mark.once
def test_running_job_of_a_live_process_is_reported_as_running(tmp_path: Path) -> None:
    done = run_jobs(
        tmp_path,
        """
        import subprocess
        with heaptide.job("mail"):
            command = [sys.executable, "-m", "heaptide", "jobs", "--json", os.environ["HEAPTIDE_JOBS"]]
            print(subprocess.run(command, capture_output=True, check=True).stdout.decode())
        """,
    )
    [row] = json.loads(done.stdout)
    assert [row["running"], row["killed"]] == [1, 0]


def test_forked_child_has_its_own_file_and_does_not_end_its_parents_job(tmp_path: Path) -> None:
    run_jobs(
        tmp_path,
        """
        with heaptide.job("outer"):
            child = os.fork()
            if child == 0:
                with heaptide.job("inner"):
                    pass
            else:
                os.waitpid(child, 0)
        if child == 0:
            os._exit(0)
        """,
    )
    assert len(files(tmp_path / "jobs")) == 2
    events = sorted((line["name"], line["event"]) for line in lines(tmp_path / "jobs"))
    assert events == [("inner", "begin"), ("inner", "end"), ("outer", "begin"), ("outer", "end")]
    pids = {line["name"]: line["pid"] for line in lines(tmp_path / "jobs")}
    assert pids["inner"] != pids["outer"]
    threads = {line["name"]: line["thread"] for line in lines(tmp_path / "jobs")}
    assert threads == pids, "each job ran in the main thread of its process"


@pytest.mark.once
def test_lines_of_many_threads_do_not_mix(tmp_path: Path) -> None:
    run_jobs(
        tmp_path,
        """
        import threading
        def work():
            for number in range(200):
                with heaptide.job("mail", key="x" * 300):
                    pass
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """,
    )
    assert len(lines(tmp_path / "jobs")) == 8 * 200 * 2
    assert rows(tmp_path / "jobs")["mail"]["ok"] == 1600


@pytest.mark.once
def test_redaction_applies_to_keys_and_labels(tmp_path: Path) -> None:
    run_jobs(
        tmp_path,
        """
        with heaptide.job("mail", key="order-4711-secret", password="hunter2", queue="fast", note="my SECRET note"):
            pass
        """,
        HEAPTIDE_REDACT="*secret*,pass*",
        HEAPTIDE_TOKEN="hunter-token",
    )
    [begin, end] = lines(tmp_path / "jobs")
    for line in (begin, end):
        assert line["key"] == "<redacted>"
        assert line["labels"] == {"password": "<redacted>", "queue": "fast", "note": "<redacted>"}
    assert "hunter" not in files(tmp_path / "jobs")[0].read_text()


@pytest.mark.once
def test_names_beyond_the_limit_get_a_common_name_and_one_message(tmp_path: Path) -> None:
    done = run_jobs(
        tmp_path,
        """
        for number in range(10):
            with heaptide.job(f"mail-{number}"):
                pass
        """,
        HEAPTIDE_JOBS_NAMES="3",
    )
    found = rows(tmp_path / "jobs")
    assert sorted(found) == ["(other jobs)", "mail-0", "mail-1", "mail-2"]
    assert found["(other jobs)"]["runs"] == 7
    assert done.stderr.count("more than 3 names of jobs") == 1


@pytest.mark.once
def test_planted_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    run_jobs(
        tmp_path,
        """
        from heaptide import _native
        folder = os.environ["HEAPTIDE_JOBS"]
        os.mkdir(folder)
        start = dict(_native.process_facts())["start"]
        os.symlink("../victim", f"{folder}/jobs-{os.uname().nodename}-{os.getpid()}-{start}.jsonl")
        with heaptide.job("mail"):
            pass
        """,
    )
    assert victim.read_text() == "untouched"
    [link, file] = sorted(files(tmp_path / "jobs"), key=lambda path: not path.is_symlink())
    assert link.is_symlink() and file.name.endswith("-2.jsonl")
    assert len(file.read_text().splitlines()) == 2


@pytest.mark.once
def test_records_do_not_go_to_other_files_after_a_program_closes_all_descriptors(tmp_path: Path) -> None:
    run_jobs(
        tmp_path,
        """
        with heaptide.job("before"):
            pass
        os.closerange(3, 64)
        others = [open(f"other-{number}", "wb", buffering=0) for number in range(20)]
        with heaptide.job("after"):
            pass
        """,
    )
    assert all(path.read_bytes() == b"" for path in tmp_path.glob("other-*"))
    assert {name: row["ok"] for name, row in rows(tmp_path / "jobs").items()} == {"before": 1, "after": 1}


@pytest.mark.once
@pytest.mark.parametrize("problem", ["the folder is a file", "no room"])
def test_failure_prints_a_message_and_the_program_continues(tmp_path: Path, problem: str) -> None:
    if problem == "the folder is a file":
        (tmp_path / "jobs").write_text("")
    done = run_jobs(
        tmp_path,
        f"""
        import resource
        if {problem == "no room"}:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        for _ in range(5):
            with heaptide.job("mail"):
                print("work")
        """,
    )
    assert done.stdout.split() == ["work"] * 5
    messages = [line for line in done.stderr.splitlines() if line.startswith("heaptide: ")]
    assert len(messages) in (1, 2) and messages == done.stderr.splitlines()
    assert "the program continues" in messages[0]


@pytest.mark.once
def test_jobs_are_recorded_while_the_interpreter_shuts_down(tmp_path: Path) -> None:
    done = run_jobs(
        tmp_path,
        """
        import atexit
        with heaptide.job("normal"):
            pass
        @atexit.register
        def at_exit():
            with heaptide.job("exit handler"):
                pass
        class Late:
            def __del__(self):
                with heaptide.job("finalizer"):
                    pass
        sys.late = Late()
        """,
    )
    found = {name: row["ok"] for name, row in rows(tmp_path / "jobs").items()}
    assert found["normal"] == found["exit handler"] == 1
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.once
def test_long_file_is_continued_in_another(tmp_path: Path) -> None:
    run_jobs(
        tmp_path,
        """
        for number in range(1500):
            with heaptide.job("mail", key="k" * 500):
                pass
        """,
        HEAPTIDE_JOBS_KEEP_BYTES="16M",
    )
    sizes = [file.stat().st_size for file in files(tmp_path / "jobs")]
    assert len(sizes) >= 2 and max(sizes) < (1 << 20) + 2000
    assert rows(tmp_path / "jobs")["mail"]["ok"] == 1500


@pytest.mark.once
def test_old_files_are_removed_by_number_age_and_size_but_not_those_of_live_processes(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    host = socket.gethostname()
    names = {
        "alive": f"jobs-{host}-{os.getpid()}-1.00s.jsonl",
        "dead": f"jobs-{host}-999999999-1.00s.jsonl",
        "recent": "jobs-elsewhere-7-1.00s.jsonl",
        "foreign": "other.jsonl",
    }

    def remaining(**env: str) -> set[str]:
        """Return the files that a process with these settings keeps. All files but `recent` are 40 days old."""
        folder.mkdir(exist_ok=True)
        old = time.time() - 40 * 86_400
        for kind, name in names.items():
            (folder / name).write_text("{}\n" * 1000)
            if kind != "recent":
                os.utime(folder / name, (old, old))
        run_jobs(tmp_path, "with heaptide.job('mail'): pass", **env)
        kept = {kind for kind, name in names.items() if (folder / name).exists()}
        for path in folder.iterdir():
            path.unlink()
        return kept

    assert remaining(HEAPTIDE_JOBS_KEEP_DAYS="0") == {"alive", "dead", "recent", "foreign"}
    assert remaining() == {"alive", "recent", "foreign"}
    assert remaining(HEAPTIDE_JOBS_KEEP="1", HEAPTIDE_JOBS_KEEP_DAYS="0") == {"alive", "foreign"}
    assert remaining(HEAPTIDE_JOBS_KEEP_BYTES="4k", HEAPTIDE_JOBS_KEEP_DAYS="0") == {"alive", "recent", "foreign"}


@pytest.mark.once
def test_program_in_another_folder_writes_to_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    run_jobs(
        tmp_path,
        """
        import subprocess
        code = "import heaptide\\nwith heaptide.job('child'): pass"
        subprocess.run([sys.executable, "-c", code], check=True, cwd="elsewhere")
        os.chdir("elsewhere")
        with heaptide.job("parent"):
            pass
        """,
        HEAPTIDE_JOBS="jobs",
    )
    assert sorted(rows(tmp_path / "jobs")) == ["child", "parent"]


@pytest.mark.once
def test_keys_of_any_type_and_unencodable_names_are_recorded(tmp_path: Path) -> None:
    run_jobs(
        tmp_path,
        """
        for key in (1, 2.5, None, ("a", 1), "\\udcff", "x" * 100_000, "line\\nbreak \\u2028"):
            with heaptide.job("mail\\udcff", key=key):
                pass
        """,
    )
    [row] = rows(tmp_path / "jobs").values()
    assert row["ok"] == 7
    keys = [line["key"] for line in lines(tmp_path / "jobs") if line["event"] == "end"]
    assert keys[:4] == ["1", "2.5", None, "('a', 1)"]
    assert len(keys[5]) == 512
