"""Measures what each job of a worker leaks: exact bytes, types and allocation sites, also of concurrent jobs."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, TypeVar, cast

from heaptide import _native, private_files
from heaptide.jobs import records
from heaptide.leaks import accounts, report
from heaptide.leaks.caches import clear_caches
from heaptide.leaks.job import Frame, GrownType, Job, JobRecord, Rest, Site, _grown_type
from heaptide.leaks.traced import TracedJob, traced
from heaptide.messages import print_message, print_message_once, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import TextIO

    from typing_extensions import Self

__all__ = ["Frame", "GrownType", "Job", "JobTracer", "Rest", "Site", "TracedJob"]

MAX_TYPES = 30
MAX_SITES = 30
MAX_GROUPS = 10_000
_MIB = 1 << 20

F = TypeVar("F", bound="Callable[..., Any]")

# Name of a pickled tracer → the tracer. Tracers from another process are kept alive.
_known: weakref.WeakValueDictionary[str, JobTracer] = weakref.WeakValueDictionary()
_arrived: list[JobTracer] = []
# Numbers for the names of jobs, shared by all tracers of the process.
_groups = itertools.count(1)


class JobTracer:
    """Measures what each job leaks.

    trace_type   a type or its name: after each job that leaked objects of it, write a graph of their referrers
    output_dir   folder for these graphs and for the report of `max_memory`; created if missing
    max_memory   resident size in MiB above which :attr:`should_stop` becomes true and a report is written
    report       receives each job when it has been measured: a function, or a file object to print to
    collect      collect garbage and empty Python's own caches before and after each job; without it, garbage and
                 caches count as leaked

    The process may be recorded at the same time. The first job opens the accounts of all jobs in the process;
    :meth:`close`, or the end of a ``with`` block, closes them. A tracer can be pickled, so that traced functions can
    run in other processes: each process then has one tracer with the same options. If the setting `jobs` names a
    folder, Heaptide writes job records.
    """

    def __init__(
        self,
        trace_type: str | type | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        max_memory: float | None = None,
        *,
        report: Callable[[Job], None] | TextIO | None = None,
        collect: bool = True,
    ) -> None:
        if max_memory is not None and not max_memory > 0:
            raise ValueError(f"max_memory must be a number of MiB above 0, not {max_memory}")
        self.trace_type = accounts.type_name(trace_type) if isinstance(trace_type, type) else trace_type
        self.output_dir = os.path.abspath(output_dir or os.curdir)
        self.max_memory = max_memory
        self.should_stop = False
        self.stop_report: str | None = None
        self.n_jobs = 0
        self._collect = collect
        self._report = report
        self._lock = threading.RLock()
        self._unsettled: list[Job] = []
        self._by_key: dict[Hashable, Job] = {}
        self._groups: dict[str, int] = {}
        self._pickled_as = ""
        self._close: weakref.finalize[..., Any] | None = None

    def job(self, name: str) -> TracedJob:
        """Return a job of that name, for ``with tracer.job("name") as job:`` or as a decorator."""
        return TracedJob(self, name)

    def traced(self, function: F) -> F:
        """Decorate a function: each call is a job under the function's name."""
        return traced(self, function.__qualname__, function)

    def before(self, name: str, key: Hashable = None, thread: int | None = None) -> Job:
        """Start a job in this thread, greenlet or task. Pass the same `key` to :meth:`after` to end it elsewhere.

        `thread` is the ident of another thread, for hooks that run in another thread than the job. All allocations of
        that thread belong to the job until :meth:`after`, except those of nested jobs.
        """
        self._open()
        self.settle()
        job = Job(self, name)
        job._key = key
        with self._lock:
            self.n_jobs += 1
            job.number = self.n_jobs
            group = self._group(name)
            if key is not None:
                self._by_key[key] = job
        accounts.update_inheritance()
        if records.is_wanted():
            job.id = records.new_id()
            job._resident_before = _native.resident_bytes()
        if self._collect:
            clear_caches()
        job.started = time.time()
        if job.id is not None:
            records.begin(JobRecord(job))
        job._is_running = True
        if thread is not None and thread != threading.get_ident():
            job._account = _native.job_begin(job, thread, group) or 0
            return job
        job._outer = accounts.current.get(None)
        job._account = _native.job_begin(job, None, group) or 0
        # From here on, allocations count for the job, so no other code may run between this line and the job.
        job._reset = accounts.current.set(job)
        return job

    def after(self, job: Job | Hashable = None, error: BaseException | None = None, outcome: str | None = None) -> Job:
        """End a job: the given one, the one with that key, or by default the current one.

        `outcome` is one of ok, failed, skipped, deferred and retried; without it, `error` decides.
        """
        if not isinstance(job, Job):
            found = accounts.current.get(None) if job is None else self._by_key.get(job)
            if found is None:
                raise LookupError(f"no job was started as {job!r}" if job is not None else "no job runs here")
            job = cast("Job", found)
        if not job._is_running:
            return job
        # The surrounding job may be a `heaptide.job`, which has no account.
        _native.job_end(job._account, getattr(job._outer, "_account", 0))
        if error is None and self._collect:
            clear_caches()  # before Heaptide's own code reuses objects of the job from the interpreter's free lists
        job._is_running = False
        job.outcome = outcome or ("ok" if error is None else "failed")
        if job._reset is not None:  # None if the job ran in another thread
            try:
                accounts.current.reset(job._reset)
            except ValueError:  # started in another context, as a framework's signal handlers may do
                accounts.current.set(job._outer)
        job._reset = job._outer = None
        with self._lock:
            if job._key is not None:
                self._by_key.pop(job._key, None)
        if error is None:
            self._settle(job, is_clean=True)
        else:
            job.failed = True
            job.error = type(error).__name__
            with self._lock:
                self._unsettled.append(job)
            if job.id is not None:  # the numbers follow when the exception has been handled
                records.end(JobRecord(job, _native.resident_bytes()))
        return job

    def settle(self) -> None:
        """Measure jobs that failed, now that their exceptions have been handled."""
        for job in self._take_unsettled():
            self._settle(job)

    def remaining(self) -> Rest:
        """Return the memory that all jobs so far have leaked."""
        self._open()
        return self._measure(None)

    def report(self) -> str:
        """Return the report of all jobs so far as text."""
        return report.of_all(self)

    def close(self) -> None:
        """Measure jobs that are still unmeasured, and close the accounts."""
        if self._close is not None:
            self.settle()
            self._close()
            self._close = None

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        with self._lock:
            if self._close is None:
                accounts.open_accounts()
                self._close = weakref.finalize(self, accounts.close_accounts)

    def _group(self, name: str) -> int:
        """Return a number for all jobs of this name; 0 if there are too many names."""
        group = self._groups.get(name)
        if group is None:
            if len(self._groups) >= MAX_GROUPS:
                return 0
            group = self._groups[name] = next(_groups)
        return group

    def _take_unsettled(self) -> list[Job]:
        with self._lock:
            jobs, self._unsettled = self._unsettled, []
        return jobs

    def _settle(self, job: Job, is_clean: bool = False) -> Rest:
        """Measure a job, once."""
        if self._collect and not is_clean:
            clear_caches()
        with self._lock:
            if job._rest is not None:
                return job._rest
            if job in self._unsettled:
                self._unsettled.remove(job)
            job._rest = self._measure(job)
            job._seconds = _native.job_seconds(job._account)
            if self.trace_type is not None:
                from heaptide.leaks import graph

                job.graph = graph.write(self, job)
            _native.job_settle(job._account)
        if job.id is not None:
            records.end(JobRecord(job, _native.resident_bytes() if is_clean else None))
        if self._report is not None:
            report.deliver(self._report, job)
        self._check_memory()
        return job._rest

    def _settle_again(self, job: Job) -> None:
        """Measure the live memory of a job again. Its allocated and released bytes and its peak are final."""
        first = job.rest
        if self._collect:
            clear_caches()
        with self._lock:
            now = self._measure(job)
            kept = (now.kept_bytes, now.kept_blocks)
            final = (first.released_bytes, first.allocated_bytes, first.allocated_blocks)
            job._rest = Rest._make((*kept, *final, now.grown_types, now.sites, now.lost_blocks, first.peak_bytes, None))
        if job.id is not None:
            records.end(JobRecord(job))

    def _measure(self, job: Job | None) -> Rest:
        types = accounts.all_types()
        rest = _native.job_rest(None if job is None else job._account, types, MAX_SITES, None)
        if rest is None:
            raise RuntimeError("the accounts of jobs are closed; read a job's attributes before its tracer is closed")
        grown = [
            _grown_type(accounts.type_name(types[number]), count_of_all, count, n_bytes)
            for number, n_bytes, count, count_of_all in rest.types[:MAX_TYPES]
        ]
        # With `_make`, because a report would mistake the generated constructor for code of the program.
        sites = [Site._make((size, n, tuple(map(Frame._make, frames)))) for size, n, frames in rest.sites]
        numbers = (rest.kept_bytes, rest.n_kept, rest.released_bytes, rest.allocated_bytes, rest.n_allocated)
        return Rest._make((*numbers, grown, sites, rest.n_lost, rest.peak_bytes, rest.name_bytes))

    def _check_memory(self) -> None:
        """Set `should_stop`, once, if the process has become too large."""
        resident = _native.resident_bytes()
        if self.max_memory is None or self.should_stop or resident is None or resident <= self.max_memory * _MIB:
            return
        self.should_stop = True
        text = report.of_stop(self, resident)
        path = os.path.join(self.output_dir, f"heaptide-grown.{os.getpid()}.txt")
        try:
            os.makedirs(self.output_dir, exist_ok=True)
            private_files.write(path, text)
        except Exception as error:
            print_message(f"cannot write the report of growing objects: {reason(error)}")
            return
        self.stop_report = path
        print_message(f"the process has {resident / _MIB:.1f} MiB, more than max_memory; what grew is in {path}")

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._pickled_as:
            self._pickled_as = os.urandom(16).hex()
            _known[self._pickled_as] = self
        options = {"report": _portable(self._report), "collect": self._collect}
        return _same_tracer, (self._pickled_as, self.trace_type, self.output_dir, self.max_memory, options)


def _portable(report: Callable[[Job], None] | TextIO | None) -> Any:
    """Return the receiver of reports in a form that can be pickled: a function, or the name of a standard stream."""
    if report is None or callable(report):
        return report
    for name in ("stdout", "stderr"):
        if report in (getattr(sys, name), getattr(sys, f"__{name}__")):
            return name
    print_message_once(
        "a file that receives reports of jobs cannot be passed to another process, which prints no reports"
    )
    return None


def _same_tracer(
    name: str, trace_type: str | None, output_dir: str, max_memory: float | None, options: dict[str, Any]
) -> JobTracer:
    """Return the tracer of this process that a pickled one refers to; create it at the first call."""
    tracer = _known.get(name)
    if tracer is None:
        receiver = options["report"]
        receiver = getattr(sys, receiver, None) if isinstance(receiver, str) else receiver
        tracer = JobTracer(trace_type, output_dir, max_memory, report=receiver, collect=options["collect"])
        tracer._pickled_as = name
        tracer = _known.setdefault(name, tracer)
        _arrived.append(tracer)
    return tracer
