"""DAGs with one task for each possible end of a task, in each type of executor. Importing the file allocates 7 MB."""

import os
import signal
import time
from datetime import timedelta
from pathlib import Path

from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import DAG, BaseOperator, BaseSensorOperator, task
from airflow.sdk.exceptions import AirflowSkipException

HELD_BY_THE_FILE = bytes(7_000_000)
MARKS = Path(os.environ["AIRFLOW_HOME"]) / "marks"


def first_time(name):
    MARKS.mkdir(exist_ok=True)
    try:
        (MARKS / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Defers(BaseOperator):
    def execute(self, context):
        self.held = bytes(15_000_000)
        self.defer(trigger=TimeDeltaTrigger(timedelta(seconds=8)), method_name="resume")

    def resume(self, context, event=None):
        self.held = bytes(5_000_000)


class Reschedules(BaseSensorOperator):
    def poke(self, context):
        self.held = bytes(9_000_000)
        return not first_time("rescheduled")


# Airflow fails a task if the next part of a try is queued before the scheduler has noticed the end of the previous
# process. Deferred and rescheduled tasks therefore pause for some seconds.
with DAG("memory_cases", schedule=None, catchup=False) as dag:

    @task
    def case_grows():
        global held
        held = bytes(20_000_000)
        temporary = bytes(10_000_000)
        return 5

    @task
    def case_fails():
        data = bytes(33_000_000)
        raise ValueError("mine")

    @task
    def case_skips():
        data = bytes(11_000_000)
        raise AirflowSkipException("mine")

    @task(retries=1, retry_delay=timedelta(seconds=4))
    def case_retried():
        data = bytes(13_000_000)
        if first_time("retried"):
            raise ValueError("once")

    @task
    def case_mapped(n):
        data = bytes(n * 3_000_000)

    @task
    def case_killed():
        data = bytes(40_000_000)
        os.kill(os.getpid(), signal.SIGKILL)

    @task(run_as_user="nobody")
    def case_other_user():
        data = bytes(17_000_000)
        return os.getuid()

    @task
    def plain():
        data = bytes(8_000_000)

    case_grows()
    case_fails()
    case_skips()
    case_retried()
    case_mapped.expand(n=[1, 2])
    case_killed()
    case_other_user()
    plain()
    Defers(task_id="case_deferred")
    Reschedules(task_id="case_rescheduled", mode="reschedule", poke_interval=8)


def work_on(queue, n_bytes):
    @task(task_id=f"{queue}_grows", queue=queue, executor="CeleryExecutor")
    def grows():
        data = bytes(n_bytes)

    @task(task_id=f"{queue}_killed", queue=queue, executor="CeleryExecutor")
    def killed():
        data = bytes(n_bytes)
        os.kill(os.getpid(), signal.SIGKILL)

    grows()
    killed()


with DAG("celery_cases", schedule=None, catchup=False):
    work_on("near", 14_000_000)
    work_on("far", 18_000_000)


with DAG("left_behind", schedule=None, catchup=False):

    @task
    def case_zombie():
        data = bytes(12_000_000)
        os.kill(os.getppid(), signal.SIGKILL)
        while not (MARKS / "zombie may end").exists():
            time.sleep(0.2)
        os._exit(1)

    case_zombie()
