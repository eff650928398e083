"""Measures what each job of a worker leaks: exact bytes, types and allocation sites, also of concurrent jobs."""

from __future__ import annotations

import functools
import inspect
import os
import threading
import weakref
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from heaptide import _native, private_files
from heaptide.containment import report_failure
from heaptide.leaks import accounts, report
from heaptide.leaks.caches import clear_caches
from heaptide.messages import reason, say

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import TextIO

    from typing_extensions import Self

MAX_TYPES = 30
MAX_SITES = 30
_MIB = 1 << 20

F = TypeVar("F", bound="Callable[..., Any]")


class Frame(NamedTuple):
    """A function on a stack, and the line that it was executing."""

    function: str
    file: str
    line: int


class Site(NamedTuple):
    """Live memory that was allocated by one stack; `frames` begins with the innermost."""

    bytes: int
    blocks: int
    frames: tuple[Frame, ...]

    @property
    def function(self) -> str:
        """The function that allocated."""
        return self.frames[0].function if self.frames else "<unknown>"

    @property
    def file(self) -> str:
        """Its file."""
        return self.frames[0].file if self.frames else "<unknown>"

    @property
    def line(self) -> int:
        """The line that allocated."""
        return self.frames[0].line if self.frames else 0


@dataclass(frozen=True)
class GrownType:
    """Live objects of one type: `delta` were made by this job, `count` by all jobs so far."""

    name: str
    count: int
    delta: int
    bytes: int


def _grown_type(name: str, count: int, delta: int, n_bytes: int) -> GrownType:
    """Return a row without calling its constructor: a report would take that generated code for the program's."""
    row = object.__new__(GrownType)
    row.__dict__.update(name=name, count=count, delta=delta, bytes=n_bytes)
    return row


class Rest(NamedTuple):
    """Live memory of one job, or of all jobs: the numbers that :class:`Job` shows."""

    kept_bytes: int
    kept_blocks: int
    released_bytes: int
    allocated_bytes: int
    allocated_blocks: int
    grown_types: list[GrownType]
    sites: list[Site]
    lost_blocks: int


class Job:
    """One job. Its attributes have values once it has ended:

    retained_bytes    bytes that it allocated and that are still alive, minus bytes of earlier jobs that it released
    grown_types       at most 30 rows: type, live objects of all jobs so far, live objects of this job, bytes
    sites             the stacks that allocated the live memory, largest first
    failed            whether it ended with an exception
    graph             the file with the reference graph, if one was requested

    A job is measured when it ends. A failed job is measured when one of its attributes is first read, or before the
    next job starts: while its exception is being handled, the exception keeps everything of the job alive.
    """

    __slots__ = (
        "__weakref__",
        "_account",
        "_is_running",
        "_key",
        "_outer",
        "_reset",
        "_rest",
        "_tracer",
        "failed",
        "graph",
        "name",
        "number",
    )

    def __init__(self, tracer: JobTracer, name: str) -> None:
        self.name = name
        self.number = 0
        self.failed = False
        self.graph: str | None = None
        self._tracer = tracer
        self._rest: Rest | None = None
        self._is_running = False
        self._outer: Job | None = None
        self._reset: Any = None
        self._account = 0
        self._key: Hashable = None

    @property
    def rest(self) -> Rest:
        """All measurements of the job."""
        if self._is_running:
            raise RuntimeError(f"job {self.name} is still running; read its attributes when it has ended")
        return self._rest or self._tracer._settle(self)

    @property
    def retained_bytes(self) -> int:
        """Bytes that the job leaked."""
        return self.rest.kept_bytes - self.rest.released_bytes

    memory_diff = retained_bytes

    @property
    def retained_blocks(self) -> int:
        """Number of the job's blocks that are alive."""
        return self.rest.kept_blocks

    @property
    def allocated_bytes(self) -> int:
        """Bytes that the job allocated in total."""
        return self.rest.allocated_bytes

    @property
    def grown_types(self) -> list[GrownType]:
        """Types of the live objects, most bytes first."""
        return self.rest.grown_types

    @property
    def sites(self) -> list[Site]:
        """Stacks that allocated the live memory, most bytes first."""
        return self.rest.sites

    def report(self) -> str:
        """Return the report of the job as text."""
        return report.of_job(self)

    def __repr__(self) -> str:
        state = "running" if self._is_running else f"{self.retained_bytes:,} bytes retained"
        return f"<job {self.name}: {state}>"


class TracedJob:
    """The result of :meth:`JobTracer.job`: a context manager, and a decorator for plain and async functions."""

    def __init__(self, tracer: JobTracer, name: str) -> None:
        self._tracer = tracer
        self._name = name
        self._job: Job | None = None

    def __enter__(self) -> Job:
        self._job = self._tracer.before(self._name)
        return self._job

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        job, self._job = self._job, None
        if job is not None:
            try:  # not `contained`: the arguments of its wrapper would be memory of the job
                self._tracer.after(job, error)
            except Exception as failure:
                report_failure(failure)

    def __call__(self, function: F) -> F:
        return _traced(self._tracer, self._name, function)


class _TracedCall(TracedJob):
    """One call of a decorated function: it runs even if it cannot be measured."""

    def __enter__(self) -> Job | None:  # type: ignore[override]
        try:
            return TracedJob.__enter__(self)
        except Exception as failure:
            report_failure(failure)
            return None


class JobTracer:
    """Measures what each job leaks.

    trace_type   a type or its name: after each job that leaked objects of it, write a graph of their referrers
    output_dir   folder for these graphs and for the report of `max_memory`; created if missing
    max_memory   resident size in MiB above which :attr:`should_stop` becomes true and a report is written
    report       receives each job when it has been measured: a function, or a file object to print to
    collect      collect garbage and empty Python's own caches before and after each job; without it, garbage and
                 caches count as leaked

    The process may be recorded at the same time. The first job opens the accounts of all jobs in the process;
    :meth:`close`, or the end of a ``with`` block, closes them.
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
        self._close: weakref.finalize[..., Any] | None = None

    def job(self, name: str) -> TracedJob:
        """Return a job of that name, for ``with tracer.job("name") as job:`` or as a decorator."""
        return TracedJob(self, name)

    def traced(self, function: F) -> F:
        """Decorate a function: each call is a job under the function's name."""
        return _traced(self, function.__qualname__, function)

    def before(self, name: str, key: Hashable = None) -> Job:
        """Start a job in this thread, greenlet or task. Pass the same `key` to :meth:`after` to end it elsewhere."""
        self._open()
        self.settle()
        job = Job(self, name)
        job._key = key
        with self._lock:
            self.n_jobs += 1
            job.number = self.n_jobs
            if key is not None:
                self._by_key[key] = job
        accounts.update_inheritance()
        if self._collect:
            clear_caches()
        job._outer = accounts.current.get(None)
        job._account = _native.job_begin(job) or 0
        job._is_running = True
        # From here on the hooks account to the job: no other code may run between this line and the job.
        job._reset = accounts.current.set(job)
        return job

    def after(self, job: Job | Hashable = None, error: BaseException | None = None) -> Job:
        """End a job: the given one, the one with that key, or by default the one that runs here."""
        if not isinstance(job, Job):
            found = accounts.current.get(None) if job is None else self._by_key.get(job)
            if found is None:
                raise LookupError(f"no job was started as {job!r}" if job is not None else "no job runs here")
            job = cast("Job", found)
        if not job._is_running:
            return job
        _native.job_end(job._account, job._outer._account if job._outer is not None else 0)
        if error is None and self._collect:
            clear_caches()  # before Heaptide's own code reuses objects that the job put on the interpreter's free lists
        job._is_running = False
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
            with self._lock:
                self._unsettled.append(job)
        return job

    def settle(self) -> None:
        """Measure jobs that failed, now that their exceptions have been handled."""
        for job in self._take_unsettled():
            self._settle(job)

    def remaining(self) -> Rest:
        """Return what all jobs so far leaked, as of now."""
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
            if self.trace_type is not None:
                from heaptide.leaks import graph

                job.graph = graph.write(self, job)
            _native.job_settle(job._account)
        if self._report is not None:
            report.deliver(self._report, job)
        self._check_memory()
        return job._rest

    def _measure(self, job: Job | None) -> Rest:
        types = accounts.all_types()
        of_all = _native.job_rest(None, types, MAX_SITES, None)
        rest = of_all if job is None else _native.job_rest(job._account, types, MAX_SITES, None)
        if rest is None or of_all is None:
            raise RuntimeError("the accounts of jobs are closed; read a job's attributes before its tracer is closed")
        counts = {number: count for number, _, count in of_all.types}
        grown = [
            _grown_type(accounts.type_name(types[number]), counts.get(number, 0), count, n_bytes)
            for number, n_bytes, count in rest.types[:MAX_TYPES]
        ]
        # `_make`: a named tuple's constructor is generated code, which a report would take for the program's.
        sites = [Site._make((size, n, tuple(map(Frame._make, frames)))) for size, n, frames in rest.sites]
        numbers = (rest.kept_bytes, rest.n_kept, rest.released_bytes, rest.allocated_bytes, rest.n_allocated)
        return Rest._make((*numbers, grown, sites, rest.n_lost))

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
            say(f"cannot write the report of what grew: {reason(error)}")
            return
        self.stop_report = path
        say(f"the process has {resident // _MIB} MiB, more than max_memory; what grew is in {path}")


def _traced(tracer: JobTracer, name: str, function: F) -> F:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            with _TracedCall(tracer, name):
                return await function(*args, **kwargs)

        return cast("F", call_async)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _TracedCall(tracer, name):
            return function(*args, **kwargs)

    return cast("F", call)
