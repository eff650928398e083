"""Runs the tasks of tasks.py locally and prints as JSON the result or exception and the decks of each task."""

import asyncio
import glob
import json
import os
import re
import sys
import time
from unittest import mock

python = sys.executable

import tasks
from flytekit.core.context_manager import FlyteContextManager

N = 1_000_000


def within_one_second(*calls):
    """Call functions while `time.strftime`, which gives captures their names, formats the same moment."""
    now, strftime = time.localtime(), time.strftime
    with mock.patch.object(time, "strftime", lambda text, moment=now: strftime(text, moment)):
        return [call() for call in calls]


CASES = {
    "below": lambda: tasks.below(n=N),
    "above": lambda: tasks.above(n=N),
    "tabled": lambda: tasks.tabled(n=N),
    "failing": lambda: tasks.failing(n=N),
    "failing_below": lambda: tasks.failing_below(n=N),
    "a": lambda: tasks.a(n=N),
    "bin": lambda: tasks.bin(n=N),
    "waiting": lambda: asyncio.run(tasks.waiting(n=N)),
    "yielding": lambda: list(tasks.yielding(n=N)),
    "planning": lambda: tasks.planning(n=N),
    "orchestrating": lambda: asyncio.run(tasks.orchestrating(n=N)),
    "in_parts": lambda: tasks.in_parts(n=N),
    "pooled": lambda: tasks.pooled(n=N),
    "detailed": lambda: tasks.detailed(n=N),
    "looping": lambda: tasks.looping(n=N),
    "unrenderable": lambda: tasks.unrenderable(n=N),
    "whole": lambda: tasks.whole(),
    "mapped": lambda: tasks.mapped(),
    "mapped_below": lambda: tasks.mapped_below(),
    "twice": lambda: within_one_second(lambda: tasks.above(n=N), lambda: tasks.above(n=N)),
    "unprofiled": lambda: tasks.unprofiled(n=N),
}

folder = FlyteContextManager.current_context().file_access.local_sandbox_dir
seen = set()
executed_at_import = list(tasks.executed)
results = {"executed_at_import": executed_at_import, "names": {}, "cases": {}}
for name in ("below", "above", "a", "waiting", "planning"):
    task = getattr(tasks, name)
    results["names"][name] = [task.name, str(task.python_interface), task.__doc__ or ""]
for name, call in CASES.items():
    tasks.executed.clear()
    try:
        outcome = call()
    except Exception as error:
        outcome = [type(error).__name__, str(error), type(error.__cause__).__name__, type(error.__context__).__name__]
    sys.executable = python
    pages = set(glob.glob(f"{folder}/**/deck.html", recursive=True)) - seen
    seen |= pages
    results["cases"][name] = {
        "outcome": outcome,
        "executed": list(tasks.executed),
        "decks": sorted(pages, key=os.path.getmtime),
    }
print("RESULTS", json.dumps(results))
