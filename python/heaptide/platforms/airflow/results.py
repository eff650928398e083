"""Results of task instances and parses: one JSON line when a job begins and one when it ends.

This is the only module of the platform that writes and reads job records; the keys are those of `heaptide jobs`. Each
task's process has its own file, ``jobs-HOST-PID-START.jsonl``, and each parsed DAG file has one for its latest parse,
``latest/KEY.jsonl``. Only their user can read them. If a job has no second line and its process has ended, :func:`read`
reports it as killed. Another process computes the numbers from the capture.
"""

from __future__ import annotations

import errno
import json
import os
import time
from _thread import get_native_id
from typing import Any

from heaptide import private_files
from heaptide.messages import reason
from heaptide.recording import capture_files, runs

N_SITES = 10
RUNNING, KILLED = "running", "killed"
# The ending of a file about a running job whose result will replace an earlier one.
BEGUN = ".begun.jsonl"


class Job:
    """A job that this process runs."""

    def __init__(self, record: dict[str, Any], file: str, keep_latest: bool) -> None:
        self.record = record
        self.file = file
        self.keep_latest = keep_latest


def begin(
    name: str, key: str, labels: dict[str, str], capture: str | None, folder: str, *, keep_latest: bool = False
) -> Job:
    """Write the first line of a job. With `keep_latest`, later jobs with the same key replace the result."""
    make_folder(folder)
    owner = identity()
    now = time.time()
    run = runs.name()
    record: dict[str, Any] = {
        "v": 1,
        "event": "begin",
        "id": f"{run}/{owner['host']}/{owner['pid']}/{owner['start']}/1",
        "run": run,
        **owner,
        "number": 1,
        "name": name,
        "key": key,
        "labels": labels,
        "thread": get_native_id(),
        "time": now,
        "seconds": None,
        "outcome": RUNNING,
        "error": None,
        "resident_before": _resident(),
        "resident_after": None,
        "resident_peak": None,
        "allocated_bytes": None,
        "peak_bytes": None,
        "retained_bytes": None,
        "name_bytes": None,
        "sites": None,
        "types": None,
        "capture": capture,
    }
    if keep_latest:
        file = os.path.join(folder, "latest", capture_files.safe(key) + ".jsonl")
        make_folder(os.path.dirname(file))
        write(file + BEGUN, json.dumps(record) + "\n")
        return Job(record, file, keep_latest=True)
    else:
        file = os.path.join(
            folder, capture_files.safe(f"jobs-{owner['host']}-{owner['pid']}-{owner['start']}") + ".jsonl"
        )
    with open(file, "a", encoding="utf-8", opener=_opener) as lines:
        lines.write(json.dumps(record) + "\n")
    return Job(record, file, keep_latest=False)


def measure(job: Job) -> None:
    """Store the resident size at the end of a job, before other work such as an upload enlarges the process."""
    job.record["resident_after"] = _resident()


def end(job: Job, outcome: str, error: str | None = None, **labels: str) -> dict[str, Any]:
    """Write the last line of a job and return the record. Without `keep_latest` it has the numbers of the capture."""
    record = job.record
    now = time.time()
    record.update(
        event="end",
        seconds=now - record["time"],
        time=now,
        outcome=outcome,
        error=error,
        resident_after=record["resident_after"] or _resident(),
        labels={**record["labels"], **labels},
    )
    if job.keep_latest:
        # Parses are frequent, so readers compute the numbers when they need them.
        write(job.file, json.dumps(record) + "\n")
        os.unlink(job.file + BEGUN)
        return record
    numbers = summary(record["capture"])
    # Uploads and other work after the recording do not count as the job's.
    numbers["seconds"] = numbers.get("recorded_seconds", record["seconds"])
    # `heaptide jobs` matches both lines by the start, which is `time` minus `seconds` in this line.
    numbers["time"] = now - record["seconds"] + numbers["seconds"]
    record.update({name: value for name, value in numbers.items() if name in record})
    with open(job.file, "a", encoding="utf-8", opener=_opener) as lines:
        lines.write(json.dumps(record) + "\n")
    return record


def withdraw(job: Job) -> None:
    """Remove the record and the capture of a job, because another process runs the job."""
    os.unlink(job.file)
    os.unlink(job.record["capture"])


def summary(capture: str | None) -> dict[str, Any]:
    """Return the numbers of a capture under the names of a record; empty if it cannot be read."""
    from heaptide import command_process

    if not capture:
        return {}
    done = command_process.run("transform", "json", "-o", "-", "--", capture)
    if done.returncode != 0:
        return {}
    model = json.loads(done.stdout)
    process = model["processes"][0]
    return {
        "recorded_seconds": process["duration_ns"] / 1e9,
        "peak_bytes": process["peak"]["bytes"],
        "retained_bytes": process["leaked"]["bytes"],
        "allocated_bytes": process["total"]["bytes"],
        "resident_peak": process["resident_peak_bytes"],
        "sites": _sites(model, process),
    }


def _sites(model: dict[str, Any], process: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the innermost frames with the most bytes at the peak: these bytes, and bytes and blocks at the end."""
    found: dict[int, dict[str, Any]] = {}
    for site in process["sites"]:
        frame = None if site["stack"] is None else model["stacks"][site["stack"]]["frame"]
        if frame is None:
            continue
        row = found.setdefault(frame, {**model["frames"][frame], "peak_bytes": 0, "bytes": 0, "blocks": 0})
        row["peak_bytes"] += site["peak"]["bytes"]
        row["bytes"] += site["leaked"]["bytes"]
        row["blocks"] += site["leaked"]["count"]
    rows = sorted(found.values(), key=lambda row: -row["peak_bytes"])
    return [row for row in rows if row["peak_bytes"] or row["bytes"]][:N_SITES]


def read(folder: str) -> list[dict[str, Any]]:
    """Return the latest record of each job in a folder, in the order of their start. Damaged lines are left out."""
    found: dict[str, dict[str, Any]] = {}
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    for name in names:
        if not name.endswith(".jsonl"):
            continue
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    _add(line, f"{folder}/{name}", found)
        except OSError:
            continue
    rows = list(found.values())
    for row in rows:
        if row["outcome"] == RUNNING and not is_alive(row):
            row["outcome"] = KILLED
    return sorted(rows, key=lambda row: row["began"])


def _add(line: str, file: str, found: dict[str, dict[str, Any]]) -> None:
    try:
        record = json.loads(line)
        key = f"{file} {record['id']}"
        record["began"] = record["time"] - (record["seconds"] or 0)
        if not isinstance(record["labels"], dict):
            return
    except (ValueError, KeyError, TypeError):
        return
    found[key] = record


def identity() -> dict[str, Any]:
    """Return the identity of this process: host, boot, pid namespace, process ID and start time."""
    pid = os.getpid()
    return {
        "host": os.uname().nodename,
        "boot_id": _line("/proc/sys/kernel/random/boot_id"),
        "pid_namespace": _namespace(),
        "pid": pid,
        "start": _start(pid),
    }


def is_alive(owner: dict[str, Any], patience: float = 86_400) -> bool:
    """Return whether the process is running. One outside this `/proc` must have written within `patience` seconds."""
    if not is_visible(owner):
        return bool(time.time() - owner.get("time", 0) < patience)
    is_this_boot = owner.get("boot_id") == identity()["boot_id"]
    return is_this_boot and bool(owner.get("start")) and _start(owner["pid"]) == owner["start"]


def is_this_host(owner: dict[str, Any]) -> bool:
    """Return whether the process ran on this host."""
    return owner.get("host") == os.uname().nodename


def is_visible(owner: dict[str, Any]) -> bool:
    """Return whether the process would be in this process's `/proc` if it ran."""
    return is_this_host(owner) and owner.get("pid_namespace") == _namespace()


def write(path: str, text: str) -> None:
    """Write a file that only this user can read. A failure names the file."""
    try:
        private_files.write(path, text)
    except OSError as error:
        raise OSError(f"could not write to {path}: {reason(error)}") from error


def make_folder(folder: str) -> None:
    """Create a folder, and missing parents, that only this user can list."""
    if not os.path.isdir(os.path.dirname(folder) or "."):
        make_folder(os.path.dirname(folder))  # with `os.makedirs`, all users could list the parents
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise NotADirectoryError(errno.ENOTDIR, "this is not a folder", folder) from None


def _start(pid: int) -> str:
    """Return the start time of a process in seconds since boot; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else f"{int(fields[19]) / os.sysconf('SC_CLK_TCK'):.2f}s"
    except (OSError, ValueError, IndexError):
        return ""


def _resident() -> int | None:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _namespace() -> str:
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""


def _line(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.readline().strip()
    except OSError:
        return ""


def _opener(path: str, flags: int) -> int:
    return private_files.opener(path, flags | os.O_NOFOLLOW)
