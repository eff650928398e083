"""The worker class for MRQ: measures exactly what each job leaks, with any number of greenlets.

A job's account covers only its task, without the import of the task's module and without MRQ's work before and after.
It is measured when the greenlet has ended, because the task object, the result and an exception have then been
released. The number of bytes becomes `memory_diff` of the job's document, where MRQ stores a difference of resident
sizes.

The settings are MRQ's own: `trace_memory_type`, `trace_memory_output_dir`, `max_memory`. Choosing this class enables
the measurements; `False`, or another spelling of no, in `MRQ_TRACE_MEMORY` disables them.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

import gevent
import gevent.pool
import mrq.job
import mrq.worker
from mrq.context import log

from heaptide import _native, private_files, setting_values
from heaptide.containment import contained, report_failure
from heaptide.leaks import report
from heaptide.leaks.tracer import JobTracer
from heaptide.messages import print_message_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from heaptide.leaks.tracer import Job as TracedJob
    from heaptide.leaks.tracer import Rest


class Tracer(JobTracer):
    """Measures a job when the worker calls :meth:`measure`, not when its task ends."""

    _due: TracedJob | None = None

    def measure(self, job: TracedJob) -> None:
        """Measure a job that has ended."""
        self._due = job
        self._settle(job)

    def settle(self) -> None:
        """Do nothing: a failed job is also measured after its greenlet has ended."""

    def _settle(self, job: TracedJob, is_clean: bool = False) -> Rest:
        if job is not self._due:
            return job._rest  # type: ignore[return-value]
        return super()._settle(job, False)


class Job(mrq.job.Job):  # type: ignore[misc]
    """A job whose task is traced."""

    _task: Any = None
    _tracer: Tracer | None = None
    traced: TracedJob | None = None

    @property
    def task(self) -> Any:
        """The task object, which MRQ creates just before it runs."""
        return self._task

    @task.setter
    def task(self, task: Any) -> None:
        self._task = task
        if task is not None and self._tracer is not None:
            # A new attribute may enlarge the dict of this object, so it must exist before the job begins.
            self.traced = None
            task.run_wrapped = self._traced_run(task.run_wrapped, self._tracer)

    def _traced_run(self, run: Callable[[Any], Any], tracer: Tracer) -> Callable[[Any], Any]:
        def run_wrapped(params: Any) -> Any:
            traced = _begin(tracer, self.data["path"], self.id and str(self.id))
            self.traced = traced
            try:
                result = run(params)
            except BaseException as error:
                _end(tracer, traced, error)
                raise
            _end(tracer, traced, None)
            return result

        return run_wrapped

    def trace_memory_start(self) -> None:
        """Do nothing: the task's account replaces MRQ's own measurement."""

    def trace_memory_stop(self) -> None:
        """Do nothing, for the same reason."""


# Not decorated with `contained`: the arguments of its wrapper would count as memory of the job.
def _begin(tracer: Tracer, name: str, number: str | None) -> TracedJob | None:
    try:
        return tracer.before(name, number)
    except Exception as failure:
        report_failure(failure)
        return None


def _end(tracer: Tracer, traced: TracedJob | None, error: BaseException | None) -> None:
    try:
        if traced is not None:
            tracer.after(traced, error)
    except Exception as failure:
        report_failure(failure)


class Worker(mrq.worker.Worker):  # type: ignore[misc]
    """MRQ's worker, with an account for each job."""

    job_class = Job

    def __init__(self) -> None:
        super().__init__()
        self.tracer: Tracer | None = None
        self._measuring = gevent.pool.Group()
        if _is_traced(self.config["trace_memory"]):
            self.tracer = Tracer(
                self.config["trace_memory_type"] or None,
                self.config["trace_memory_output_dir"],
                float(self.config["max_memory"]) or None,
                report=sys.stdout,
            )

    def install_signal_handlers(self) -> None:
        """Install MRQ's handlers. Its last release calls `gevent.signal`, which is a module since gevent 20."""
        module = gevent.signal
        try:
            if not callable(module):
                gevent.signal = gevent.signal_handler
            super().install_signal_handlers()
        finally:
            gevent.signal = module

    def perform_job(self, job: Job) -> None:
        """Perform a job in its greenlet, and measure it after the greenlet has ended."""
        job._tracer = self.tracer
        try:
            super().perform_job(job)
        finally:
            # Count the job as done only when the pool has dropped its greenlet. Otherwise, with several greenlets,
            # MRQ's loop would spin for ever after the last jobs.
            self.done_jobs -= 1
            gevent.getcurrent().link(functools.partial(self._ended, job.traced, job.collection, job.id))

    def _ended(self, traced: TracedJob | None, collection: Any, number: Any, greenlet: Any) -> None:
        """Start the measurement. Runs in gevent's hub, which must not block."""
        self.done_jobs += 1
        if isinstance(greenlet.value, BaseException):
            # MRQ keeps the greenlet of a job that timed out until its next check, and with it the exception that ended
            # the job. The frames of its traceback would count as memory of the job.
            greenlet.value.__traceback__ = greenlet.value.__context__ = None
        if traced is not None:
            self._measuring.spawn(self._measure, traced, collection, number)

    @contained
    def _measure(self, traced: TracedJob, collection: Any, number: Any) -> None:
        assert self.tracer is not None
        # Log records that a handler has collected are not leaked.
        for handler in log.handlers:
            handler.flush()
        self.tracer.measure(traced)
        log.debug(f"Memory diff for job {number} : {traced.memory_diff}")
        collection.update({"_id": number}, {"$set": {"memory_diff": traced.memory_diff}}, w=1)
        if self.tracer.should_stop and not self.graceful_stop:
            self.shutdown_max_memory()

    def work_loop(self, max_jobs: int | None = None, max_time: Any = None) -> None:
        """Run jobs, and return when all of them have been measured."""
        super().work_loop(max_jobs=max_jobs, max_time=max_time)
        self._measuring.join()

    def shutdown_max_memory(self) -> None:
        """Stop after the current jobs, and write a report about the growth."""
        super().shutdown_max_memory()
        if self.tracer is not None and self.tracer.stop_report is None:
            self._write_stop_report(self.tracer)

    @contained
    def _write_stop_report(self, tracer: Tracer) -> None:
        """Write the report if MRQ's own check stops the worker first: it also counts memory outside the jobs."""
        os.makedirs(tracer.output_dir, exist_ok=True)
        path = os.path.join(tracer.output_dir, f"heaptide-grown.{os.getpid()}.txt")
        private_files.write(path, report.of_stop(tracer, _native.resident_bytes() or 0))
        tracer.stop_report = path
        self.log.info(f"Max memory reached: what grew is in {path}")


def _is_traced(value: object) -> bool:
    """Return whether jobs are measured. Values from the environment are text, which MRQ does not parse."""
    if not isinstance(value, str):
        return True
    try:
        return bool(setting_values.boolean(value))
    except ValueError as error:
        print_message_once(f"MRQ_TRACE_MEMORY is {value!r}, which is invalid ({error}); jobs are measured")
        return True
