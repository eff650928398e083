"""Runs each case, Airflow's scheduler or a task, in a forked process. Imports Airflow once, before it forks.

argv: a folder. Standard input has a list of cases: `{"case", "what", "number", "env", "path"}`. The output is a list of
`{"case", "pid", "cpu", "code"}`, with CPU seconds of the process and its children. If the folder contains switch.so,
callgrind counts the instructions between the calls of its functions `start` and `stop`.

A task is a process that calls the hooks of Airflow's listeners in Airflow's order; its work is to parse rows of JSON.
Tasks without variables in `env` call no hooks. `path` has memray's folder, or is empty. Airflow cannot record tasks
with memray, so tasks with a `path` record only their work.
"""

import contextlib
import ctypes
import importlib
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import airflow  # noqa: F401
from airflow.__main__ import main as airflow_main
from airflow.cli.commands import scheduler_command  # noqa: F401
from airflow.executors import local_executor  # noqa: F401
from airflow.sdk.execution_time.task_runner import TaskRunnerMarker, get_listener_manager
from structlog.contextvars import bind_contextvars

FOLDER = Path(sys.argv[1])
ROW = json.dumps({"id": 1, "name": "a row of the table", "values": [0.5] * 20, "tags": {"a": "b" * 40, "c": None}})
KEY = {"dag_id": "counted", "run_id": "run", "task_id": "t", "map_index": -1, "try_number": 1}


def run_scheduler(number):
    sys.argv = ["airflow", "scheduler", "-n", str(number), "--skip-serve-logs"]
    airflow_main()


def work(number):
    kept = []
    for n in range(number):
        row = json.loads(ROW)
        if n % 10 == 0:
            kept.append(row)
    return len(kept)


def run_task(number, is_selected, with_memray):
    hook = get_listener_manager().hook
    bind_contextvars(**KEY)
    if with_memray:
        import memray

        with memray.Tracker(FOLDER / f"task_memory.{os.getpid()}.bin"):
            return work(number)
    if not is_selected:
        return work(number)
    hook.on_starting(component=TaskRunnerMarker())
    hook.on_task_instance_running(previous_state=None, task_instance=SimpleNamespace(**KEY, state="success"))
    work(number)
    return hook.before_stopping(component=TaskRunnerMarker())


def run_case(case):
    for name in [name for name in os.environ if name.startswith("AIRFLOW__PROFILING__")]:
        del os.environ[name]
    os.environ.update(case["env"])
    sys.path[:0] = case["path"]
    from heaptide.platforms.airflow import profiling

    profiling.current.cache_clear()
    profiling.has_memray.cache_clear()
    library = FOLDER / "switch.so"
    switch = ctypes.CDLL(str(library)) if library.exists() else None
    for path in Path(os.environ["AIRFLOW_HOME"]).glob("*_memory*.bin*"):
        path.unlink()  # memray refuses to replace a file
    if switch is not None:
        switch.start()
    if case["what"] == "scheduler":
        run_scheduler(case["number"])
    else:
        run_task(case["number"], bool(case["env"]), bool(case["path"]))
    if switch is not None:
        switch.stop()


def import_late_modules():
    """Run a scheduler once, and import all modules that it imported, so that no case has to import them."""
    listed = FOLDER / "modules.json"
    if os.fork() == 0:
        try:
            run_scheduler(1)
            listed.write_text(json.dumps([name for name in sys.modules if not name.startswith("heaptide")]))
        finally:
            os._exit(0)
    os.wait()
    for name in json.loads(listed.read_text()):
        with contextlib.suppress(Exception):
            importlib.import_module(name)


results = []
output = os.dup(1)
os.dup2(2, 1)  # Airflow prints to standard output
get_listener_manager()  # loads the plugins
import_late_modules()
for case in json.load(sys.stdin):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            run_case(case)
            code = 0
        finally:
            os._exit(code)
    _, status, usage = os.wait4(pid, 0)
    cpu = usage.ru_utime + usage.ru_stime
    results.append({"case": case["case"], "pid": pid, "cpu": cpu, "code": os.waitstatus_to_exitcode(status)})
os.write(output, json.dumps(results).encode())
