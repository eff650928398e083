"""Simulates task processes: forked children call the hooks of the listener in Airflow's order.

argv: the number of runs, then words. With `inherit`, the parent is recorded and its forks are followed. With `mapped`,
the runs are the mapped instances of one run. With `rescheduled`, each process reports to Airflow that its task is
rescheduled; the report stores a copy of the results that exist at that moment.
"""

import os
import sys
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace

import airflow
from airflow.sdk.execution_time.comms import CommsDecoder, RescheduleTask
from airflow.sdk.execution_time.task_runner import TaskRunnerMarker
from structlog.contextvars import bind_contextvars, clear_contextvars

from heaptide.platforms.airflow import tasks

n_runs, *words = sys.argv[1:]
if "inherit" in words:
    import heaptide

    heaptide.Tracker(os.path.join(os.environ["AIRFLOW_HOME"], "parent.tide"), follow_fork=True).start()


def report(decoder, msg):
    """Replace the supervisor: store the results at the moment Airflow learns that the task is rescheduled."""
    home = Path(os.environ["AIRFLOW_HOME"])
    lines = "".join(path.read_text() for path in home.glob("heaptide/tasks/by_hand/*.jsonl"))
    (home / "when reported").write_text(lines)
    (home / "reported date").write_text(str(msg.reschedule_date.timestamp()))


CommsDecoder.send = report
for number in range(int(n_runs)):
    pid = os.fork()
    if pid == 0:
        run, index = ("run", number) if "mapped" in words else (f"run {number}", -1)
        key = {"dag_id": "by_hand", "run_id": run, "task_id": "t", "map_index": index, "try_number": 1}
        clear_contextvars()
        bind_contextvars(**key)
        tasks.on_starting(TaskRunnerMarker())
        tasks.on_task_instance_running(None, SimpleNamespace(**key, state="success"))
        held = bytes(21_000_000)
        if "rescheduled" in words:
            now = datetime.fromtimestamp(1_000_000_000, timezone.utc)
            CommsDecoder.send(SimpleNamespace(), msg=RescheduleTask(reschedule_date=now, end_date=now))
        tasks.before_stopping(TaskRunnerMarker())
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
