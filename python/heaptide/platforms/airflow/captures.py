"""Captures of task instances: their names, their retention, and their upload.

The capture of a task instance is ``heaptide/tasks/<dag>/<task>/<run>[.map<index>].try<number>.tide``. A task that is
deferred or rescheduled runs in several processes in one try; later captures have ``-2``, ``-3`` before the ending.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any

from heaptide import _native, private_files
from heaptide.platforms.airflow import results
from heaptide.platforms.airflow.profiling import Profiling
from heaptide.recording import capture_files, tracker

ENDING = ".tide"
# The age and the total size of captures are checked at most once in this time.
SWEEP_SECONDS = 60
_MAPPED = re.compile(rf"(\.map\d+)\.try\d+(?:-\d+)?{re.escape(ENDING)}")


def folder_of(dag_id: str, folder: str) -> str:
    """Return the folder with the results of a DAG, within the folder of all results."""
    return os.path.join(folder, "tasks", capture_files.safe(dag_id))


def writable_folder(chosen: Profiling) -> str:
    """Return the folder for results, or a temporary one if the user of the task cannot write to that folder."""
    try:
        results.make_folder(chosen.folder)
        if os.access(chosen.folder, os.W_OK | os.X_OK):
            return chosen.folder
    except OSError:
        pass
    own = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"heaptide-{os.geteuid()}")
    _native.private_folder(own)
    return os.path.join(own, "airflow")


def name_for(key: dict[str, Any], folder: str) -> str:
    """Return an unused path for the capture of a task instance."""
    folder = os.path.join(folder_of(key["dag_id"], folder), capture_files.safe(key["task_id"]))
    mapped = f".map{key['map_index']}" if int(key["map_index"]) >= 0 else ""
    stem = os.path.join(folder, capture_files.safe(f"{key['run_id']}{mapped}.try{key['try_number']}"))
    return capture_files.unused_path(stem, ENDING)


def drop_inherited() -> None:
    """Stop a recording that this forked process inherited, and remove its file. The caller may start another one."""
    ended = tracker.stop() if tracker.active() else None
    if ended is not None:
        _remove(ended[0])


def retain(capture: str, chosen: Profiling, folder: str) -> None:
    """Remove the oldest captures of this task and map index; periodically apply the limits of age and size to all."""
    families: dict[str, list[str]] = {}
    for path in _by_age(os.path.dirname(capture), _map_index(capture)):
        # Captures of interpreters that a task started have the name of the task's capture and a suffix.
        families.setdefault(path.partition(ENDING)[0], []).append(path)
    for family in list(families.values())[max(chosen.keep, 1) :]:
        for old in family:
            _remove(old)
    sweep(chosen, folder)


def sweep(chosen: Profiling, results_folder: str) -> None:
    """Apply the limits of age and size to the files of tasks and parses, at most once in `SWEEP_SECONDS`."""
    stamp = os.path.join(results_folder, ".swept")
    try:
        if time.time() - os.stat(stamp).st_mtime < SWEEP_SECONDS:
            return
    except OSError:
        pass
    with open(stamp, "w", encoding="ascii", opener=private_files.opener):
        pass
    oldest = time.time() - chosen.keep_days * 86_400
    found: list[tuple[float, int, str]] = []
    for part in ("tasks", "parses"):
        for folder, _, names in os.walk(os.path.join(results_folder, part)):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    status = os.stat(path, follow_symlinks=False)
                except OSError:
                    continue
                if status.st_mtime < oldest:
                    _remove(path)
                elif not name.endswith(".jsonl"):
                    found.append((status.st_mtime, status.st_blocks * 512, path))
    total = 0
    for _, size, path in sorted(found, reverse=True):
        total += size
        if total > chosen.keep_bytes:
            _remove(path)


def _map_index(path: str) -> str:
    """Return the part of a capture's name that names the map index; empty for a task that is not mapped."""
    found = _MAPPED.search(path)
    return "" if found is None else found[1]


def _by_age(folder: str, map_index: str) -> list[str]:
    """Return the captures of a folder that have the map index, the latest first."""
    try:
        names = [name for name in os.listdir(folder) if ENDING in name and _map_index(name) == map_index]
    except OSError:
        return []
    paths = [os.path.join(folder, name) for name in names]
    return sorted(paths, key=lambda path: (_changed(path), path), reverse=True)


def _changed(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def upload(capture: str) -> str:
    """Copy a capture to the location of remote logs; return its address there."""
    from airflow.configuration import conf

    base = conf.get("logging", "remote_base_log_folder", fallback="").rstrip("/")
    if not base:
        raise ValueError("[logging] remote_base_log_folder is not set, so there is no remote location")
    connection = conf.get("logging", "remote_log_conn_id", fallback="") or None
    address = "/".join([base, "heaptide", "tasks", *capture.split(os.sep)[-3:]])
    if not (address.startswith("s3://") and _put_to_s3(capture, address, connection)):
        _write_object(capture, address, connection)
    # The text of an `ObjectStoragePath` contains the connection, which other programs do not understand.
    return address


def _put_to_s3(capture: str, address: str, connection: str | None) -> bool:
    """Copy a capture with the S3 client that Airflow uses for logs. Returns False if its provider is not installed.

    `ObjectStoragePath` also needs s3fs, which an environment with remote logging usually lacks.
    """
    from airflow.configuration import conf

    try:
        from airflow.providers.amazon.aws.hooks.s3 import S3Hook
    except ImportError:
        return False
    # Without threads, like Airflow's own copy of the log.
    hook = S3Hook(aws_conn_id=connection, transfer_config_args={"use_threads": False})
    bucket, key = hook.parse_s3_url(address)
    options = dict(hook.extra_args)
    if conf.getboolean("logging", "encrypt_s3_logs", fallback=False):
        options["ServerSideEncryption"] = "AES256"
    policy = conf.get("aws", "s3_task_handler_acl_policy", fallback="")
    if policy:
        options["ACL"] = policy
    # Not `hook.load_file`: it reports the object to lineage tools as an output of the task.
    hook.get_conn().upload_file(capture, bucket, key, ExtraArgs=options, Config=hook.transfer_config)
    return True


def _write_object(capture: str, address: str, connection: str | None) -> None:
    """Copy a capture through Airflow's interface to file systems and object stores."""
    from airflow.sdk import ObjectStoragePath

    target = ObjectStoragePath(address, conn_id=connection)
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(capture, "rb") as source, target.open("wb") as copy:
        while piece := source.read(1 << 20):
            copy.write(piece)
