"""``heaptide.job``: marks one unit of work as a context manager, a decorator, or by calls of begin and end."""

from __future__ import annotations

from threading import get_native_id
from typing import TYPE_CHECKING, Any, TypeVar

from heaptide import _native
from heaptide.containment import report_failure
from heaptide.jobs import marks, records

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])

OUTCOMES = ("ok", "failed", "skipped", "deferred", "retried", "killed", "running")


class Job(_native.JobBase):
    """One unit of work: a task, a request, a step of a pipeline.

    name             the type of work, such as the name of a task; reports group by it
    key              distinguishes jobs of the same name, such as a date or an order number
    labels           more facts, as text
    number           unique in this process, from 1; 0 before the job begins
    outcome          ok, failed, skipped, deferred, retried or killed; running until the job has ended
    error            name of the exception's type, or None
    started          seconds since 1970, or None before the job begins
    seconds          duration once it has ended
    resident_before  resident size of the process in bytes when the job began and when it ended; known if the process
    resident_after   is recorded, or if job records are written
    resident_peak    None, unless the program sets it
    capture          path of the capture that has the job's allocations, or None

    While the process is recorded, allocations belong to the job that is current in their thread, greenlet or task.
    Threads, tasks and work for thread pools that a job starts belong to it until it ends. A job inside another one
    has its own memory, which does not count for the outer one.
    """

    # The base class has these attributes, begins and ends the job, and calls the private methods below.

    @property
    def id(self) -> str:
        """A globally unique text: run, host, process ID, start time of the process, and the number of the job."""
        from heaptide.jobs import identity

        return f"{identity.of_process()}/{self.number}"

    @staticmethod
    def _prepare() -> None:
        marks.prepare(records.is_wanted)

    def _record(self, event: str) -> None:
        """Write a job record: `event` is begin or end. The caller keeps this work out of the recording."""
        resident = _native.resident_bytes()
        if event == "begin":
            self.resident_before = resident
            self.thread = self.thread or get_native_id()
        else:
            self.resident_after = resident
        getattr(records, event)(self)

    _native_id = staticmethod(marks.native_id)
    _report_failure = staticmethod(report_failure)

    def __call__(self, function: F) -> F:
        """Decorate a function: each call is a job. Works for plain, async and generator functions."""
        if self.name.startswith("<function "):
            # `@heaptide.job` without a name took the function as its name, and this is a call of the function.
            shown = self.name.split()[1].rpartition(".")[2]
            raise TypeError(f'heaptide.job needs a name: write @heaptide.job("{shown}") above {shown}')
        from heaptide.jobs.decorator import decorate

        return decorate(self, function)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the attributes of the job. A copy in another process cannot end the job."""
        shown = {name: getattr(self, name) for name in _COPIED}
        return _restored, (self.name, self.key, self.labels, shown)

    def __repr__(self) -> str:
        key = "" if self.key is None else f"[{self.key}]"
        state = self.outcome if self.number else "not begun"
        return f"<heaptide.job {self.name}{key}: {state}>"


_COPIED = ("number", "outcome", "error", "started", "seconds", "capture", "thread") + tuple(
    f"resident_{moment}" for moment in ("before", "after", "peak")
)


def _restored(name: str, key: str | None, labels: dict[str, str], shown: dict[str, Any]) -> Job:
    job = Job(name, key, **labels)
    for attribute, value in shown.items():
        setattr(job, attribute, value)
    return job


# ``with heaptide.job("import", key=day):``, or ``@heaptide.job("import")``. The class itself, to save a call.
job = Job


def current() -> Job | None:
    """Return the job that runs in this thread, greenlet or task."""
    number = marks.current_number()
    running: Job | None = _native.running_job(number) if number else None
    return running
