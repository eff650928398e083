"""Runs task processes by hand: the hooks of the listener, in forked children, in the order in which Airflow calls them.

argv: the number of runs, and `inherit` if the parent is recorded and its forks are followed.
"""

import os
import sys
from types import SimpleNamespace

import airflow
from airflow.sdk.execution_time.task_runner import TaskRunnerMarker
from structlog.contextvars import bind_contextvars, clear_contextvars

from heaptide.platforms.airflow import tasks

n_runs, *words = sys.argv[1:]
if "inherit" in words:
    import heaptide

    heaptide.Tracker(os.path.join(os.environ["AIRFLOW_HOME"], "parent.tide"), follow_fork=True).start()

for number in range(int(n_runs)):
    pid = os.fork()
    if pid == 0:
        key = {"dag_id": "by_hand", "run_id": f"run {number}", "task_id": "t", "map_index": -1, "try_number": 1}
        clear_contextvars()
        bind_contextvars(**key)
        tasks.on_starting(TaskRunnerMarker())
        tasks.on_task_instance_running(None, SimpleNamespace(**key, state="success"))
        held = bytes(21_000_000)
        tasks.before_stopping(TaskRunnerMarker())
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
