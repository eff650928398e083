"""Finds the running components, the captures of all components, and the results of DAG file parses."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from heaptide import private_files
from heaptide.platforms.airflow import results
from heaptide.platforms.airflow.children import PART
from heaptide.platforms.airflow.component_recording import NOTE_SECONDS
from heaptide.platforms.airflow.component_recording import ask as ask
from heaptide.platforms.airflow.profiling import COMPONENTS, Profiling
from heaptide.platforms.airflow.web import history
from heaptide.recording import capture_files

# A page computes the numbers of at most this many parses, because each runs a command.
MAX_COMPLETED = 40
_CAPTURE = re.compile(rf"({'|'.join(COMPONENTS)})_memory(\.[^/]*)?\.bin(\.[\d.-]+)?")


def listed(chosen: Profiling) -> dict[str, Any]:
    """Return processes, captures and parses."""
    processes = running(chosen)
    return {
        "home": chosen.home,
        "components": [
            {
                "component": name,
                "is_controlled": chosen.is_controlled(name),
                "processes": [entry for entry in processes if entry["component"] == name],
            }
            for name in COMPONENTS
        ],
        "captures": stored(chosen),
        "parses": parses(chosen),
    }


def parses(chosen: Profiling) -> list[dict[str, Any]]:
    """Return the latest parse of each DAG file, and killed parses. Only the largest captures have numbers."""
    rows = results.read(os.path.join(chosen.folder, "parses", "latest"))
    rows = [row for row in rows if row["outcome"] != results.RUNNING]
    for row in rows:
        if row["outcome"] == results.KILLED:
            row["capture"] += PART
    for row in sorted(rows, key=lambda row: -_size(row["capture"]))[:MAX_COMPLETED]:
        history.complete(row)
    return rows


def _size(path: str | None) -> int:
    try:
        return os.stat(path or "").st_size
    except OSError:
        return 0


def running(chosen: Profiling) -> list[dict[str, Any]]:
    """Return the running processes of components. Removes the entries of processes that have ended on this host."""
    folder = os.path.join(chosen.folder, "processes")
    found = []
    for name in _names(folder):
        path = os.path.join(folder, name)
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                entry = json.load(file)
            if results.is_alive(entry, 3 * NOTE_SECONDS):
                found.append(entry)
            elif results.is_this_host(entry):
                os.unlink(path)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return sorted(found, key=lambda entry: (entry["component"], entry["role"] != "main", entry["pid"]))


def stored(chosen: Profiling) -> list[dict[str, Any]]:
    """Return the captures of components, the latest first."""
    found = []
    for folder in (chosen.home, os.path.join(chosen.folder, "snapshots"), *_parse_folders(chosen)):
        is_parse = os.sep + "parses" + os.sep in folder + os.sep
        for name in _names(folder):
            path = os.path.join(folder, name)
            match = _CAPTURE.fullmatch(name)
            if (match is None and not is_parse) or os.path.islink(path) or not os.path.isfile(path):
                continue
            status = os.stat(path)
            found.append(
                {
                    "name": os.path.relpath(path, chosen.home),
                    "component": match[1] if match is not None else "dag_processor",
                    "bytes": status.st_blocks * 512,
                    "time": status.st_mtime,
                    "is_parse": is_parse,
                }
            )
    return sorted(found, key=lambda capture: -capture["time"])


def find(chosen: Profiling, name: str) -> str | None:
    """Return the path of a listed capture."""
    names = [capture["name"] for capture in stored(chosen)]
    path = os.path.join(chosen.home, name)
    return path if name in names and os.access(path, os.R_OK) else None


def snapshot(component: str, chosen: Profiling, name: str) -> str:
    """Copy the current capture of a running component. A capture is readable at any moment."""
    source = find(chosen, name or f"{component}_memory.bin")
    if source is None:
        raise ValueError(f"{component} has no capture on this host")
    folder = os.path.join(chosen.folder, "snapshots")
    results.make_folder(folder)
    stem = os.path.join(folder, f"{component}_memory.{capture_files.stamp()}")
    path = capture_files.unused_path(stem, ".bin")
    private_files.copy(source, path)
    paths = [os.path.join(folder, name) for name in _names(folder) if name.startswith(f"{component}_memory.")]
    for old_path in sorted(paths, key=os.path.getmtime, reverse=True)[max(chosen.keep, 1) :]:
        os.unlink(old_path)
    return path


def _parse_folders(chosen: Profiling) -> list[str]:
    folder = os.path.join(chosen.folder, "parses")
    return [os.path.join(folder, name) for name in _names(folder) if name != "latest"]


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
