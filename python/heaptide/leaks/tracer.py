"""What each job of a worker leaves behind: exact bytes, types and allocating lines, also when jobs run side by side."""

from __future__ import annotations

import functools
import inspect
import os
import threading
import weakref
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from heaptide import _native
from heaptide.leaks import accounts, report
from heaptide.leaks.caches import clear_caches
from heaptide.messages import say

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import TextIO

    from typing_extensions import Self

MAX_TYPES = 30
MAX_SITES = 30
_MIB = 1 << 20

F = TypeVar("F", bound="Callable[..., Any]")


class Frame(NamedTuple):
    """A function on a stack, and the line at which it stood."""

    function: str
    file: str
    line: int


class Site(NamedTuple):
    """What one stack allocated that is alive: `frames` from the innermost outwards."""

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
    """Objects of one type: `delta` of them are left of this job, `count` of all jobs so far."""

    name: str
    count: int
    delta: int
    bytes: int


class Rest(NamedTuple):
    """What is left of one job, or of all: the numbers behind :class:`Job`."""

    kept_bytes: int
    kept_blocks: int
    released_bytes: int
    allocated_bytes: int
    allocated_blocks: int
    grown_types: list[GrownType]
    sites: list[Site]
    lost_blocks: int


class Job:
    """One job. While it runs nothing is known; afterwards:

    retained_bytes    what it left behind: bytes it allocated that are alive, less that of earlier jobs it released
    grown_types       at most 30 rows: type, objects left by all jobs so far, objects left by this one, bytes
    sites             the stacks that allocated what is alive, largest first
    failed            whether it ended by an exception
    graph             the file with the reference graph, if one was asked for

    What a job left is looked at when it ends. A job that failed is looked at when it is first asked for, or before the
    next one begins: as long as its exception is being handled, that holds everything the job had.
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
        """Everything that is known of what the job left."""
        if self._is_running:
            raise RuntimeError(f"job {self.name} is still running; look at it when it has ended")
        return self._rest or self._tracer._settle(self)

    @property
    def retained_bytes(self) -> int:
        """What the job left behind, in bytes."""
        return self.rest.kept_bytes - self.rest.released_bytes

    memory_diff = retained_bytes

    @property
    def retained_blocks(self) -> int:
        """How many blocks of its own are alive."""
        return self.rest.kept_blocks

    @property
    def allocated_bytes(self) -> int:
        """What the job allocated in its whole life."""
        return self.rest.allocated_bytes

    @property
    def grown_types(self) -> list[GrownType]:
        """Types of which objects are left, most bytes first."""
        return self.rest.grown_types

    @property
    def sites(self) -> list[Site]:
        """Where what is left was allocated, most bytes first."""
        return self.rest.sites

    def report(self) -> str:
        """What the job left, as lines of text."""
        return report.of_job(self)

    def __repr__(self) -> str:
        state = "running" if self._is_running else f"{self.retained_bytes:,} bytes left"
        return f"<job {self.name}: {state}>"


class TracedJob:
    """What :meth:`JobTracer.job` gives: ``with`` it, or decorate a function, async ones too."""

    def __init__(self, tracer: JobTracer, name: str) -> None:
        self._tracer = tracer
        self._name = name
        self._job: Job | None = None

    def __enter__(self) -> Job:
        self._job = self._tracer.before(self._name)
        return self._job

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        job, self._job = self._job, None
        if job is not None:
            self._tracer.after(job, error)

    def __call__(self, function: F) -> F:
        return _traced(self._tracer, self._name, function)


class JobTracer:
    """Trace what each job leaves behind.

    trace_type   the name of a type: after each job that left objects of it, a graph of what refers to them is written
    output_dir   the folder for these graphs and for the report of `max_memory`; it is made if there is none
    max_memory   resident size in MiB beyond which :attr:`should_stop` becomes true and a report of what grew is written
    report       what gets each job when its numbers are there: a function, or a file to print on
    collect      collect garbage before and after each job and empty Python's own caches; without it the numbers hold
                 what garbage and caches hold

    One process keeps one set of accounts; it may be recorded meanwhile. The accounts are opened by the first job and
    closed by :meth:`close`, or when the tracer is used as a context manager, at its end.
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
        """A job of that name, to be used as ``with tracer.job("name") as job:`` or as a decorator."""
        return TracedJob(self, name)

    def traced(self, function: F) -> F:
        """Decorate a function: each call is a job under the function's name."""
        return _traced(self, function.__qualname__, function)

    def before(self, name: str, key: Hashable = None) -> Job:
        """Begin a job here: in this thread, greenlet or task. `key` is a name for :meth:`after`, if one is needed."""
        self._open()
        self.settle()
        job = Job(self, name)
        job._key = key
        with self._lock:
            self.n_jobs += 1
            job.number = self.n_jobs
            if key is not None:
                self._by_key[key] = job
        accounts.look_around()
        if self._collect:
            clear_caches()
        job._outer = accounts.current.get(None)
        job._account = _native.job_begin(job) or 0
        job._is_running = True
        # From here on the hooks find the job, so nothing may come between this and the job itself.
        job._reset = accounts.current.set(job)
        return job

    def after(self, job: Job | Hashable = None, error: BaseException | None = None) -> Job:
        """End a job: the one given, or the one begun under that key, or the one that runs here."""
        if not isinstance(job, Job):
            found = accounts.current.get(None) if job is None else self._by_key.get(job)
            if found is None:
                raise LookupError(f"no job has begun under {job!r}" if job is not None else "no job runs here")
            job = cast("Job", found)
        if not job._is_running:
            return job
        _native.job_end(job._account, job._outer._account if job._outer is not None else 0)
        if error is None and self._collect:
            clear_caches()  # before anything of ours takes what the job put on the interpreter's lists of free objects
        job._is_running = False
        try:
            accounts.current.reset(job._reset)
        except ValueError:  # begun in another context, as signals of a framework may do
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
        """Look at jobs that failed, now that their exceptions have been handled."""
        for job in self._take_unsettled():
            self._settle(job)

    def remaining(self) -> Rest:
        """What all jobs so far have left that is alive now."""
        self._open()
        return self._look(None)

    def report(self) -> str:
        """What all jobs so far have left, as lines of text."""
        return report.of_all(self)

    def close(self) -> None:
        """Settle what is not settled yet, and let go of the accounts."""
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
        """Look at what a job left, once."""
        if self._collect and not is_clean:
            clear_caches()
        with self._lock:
            if job._rest is not None:
                return job._rest
            if job in self._unsettled:
                self._unsettled.remove(job)
            job._rest = self._look(job)
            if self.trace_type is not None:
                from heaptide.leaks import graph

                job.graph = graph.write(self, job)
            _native.job_settle(job._account)
        if self._report is not None:
            report.deliver(self._report, job)
        self._check_memory()
        return job._rest

    def _look(self, job: Job | None) -> Rest:
        types = accounts.all_types()
        headers = accounts.with_headers(types)
        of_all = _native.job_rest(None, headers, MAX_SITES, None)
        rest = of_all if job is None else _native.job_rest(job._account, headers, MAX_SITES, None)
        if rest is None or of_all is None:
            raise RuntimeError("the accounts of jobs are closed; look at a job before its tracer is closed")
        counts = {number: count for number, _, count in of_all.types}
        grown = [
            GrownType(accounts.type_name(types[number]), counts.get(number, 0), count, n_bytes)
            for number, n_bytes, count in rest.types[:MAX_TYPES]
        ]
        sites = [Site(size, count, tuple(Frame(*frame) for frame in frames)) for size, count, frames in rest.sites]
        return Rest(
            rest.kept_bytes,
            rest.n_kept,
            rest.released_bytes,
            rest.allocated_bytes,
            rest.n_allocated,
            grown,
            sites,
            rest.n_lost,
        )

    def _check_memory(self) -> None:
        """Ask for a stop, once, if the process has become too large."""
        resident = _native.resident_bytes()
        if self.max_memory is None or self.should_stop or resident is None or resident <= self.max_memory * _MIB:
            return
        self.should_stop = True
        text = report.of_stop(self, resident)
        path = os.path.join(self.output_dir, f"heaptide-grown.{os.getpid()}.txt")
        try:
            os.makedirs(self.output_dir, exist_ok=True)
            with open(path, "w") as file:
                file.write(text)
        except OSError as error:
            say(f"the report of what grew could not be written: {error}")
            return
        self.stop_report = path
        say(f"{resident // _MIB} MiB are more than max_memory allows; what grew is in {path}")


def _traced(tracer: JobTracer, name: str, function: F) -> F:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            with tracer.job(name):
                return await function(*args, **kwargs)

        return cast("F", call_async)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with tracer.job(name):
            return function(*args, **kwargs)

    return cast("F", call)
