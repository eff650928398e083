"""A job that a tracer measures: its numbers, types and allocation sites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from heaptide import _native
from heaptide.leaks import report

if TYPE_CHECKING:
    from collections.abc import Hashable

    from heaptide.leaks.tracer import JobTracer

# A job record has at most this many sites and types; the job itself has up to MAX_SITES and MAX_TYPES of the tracer.
_RECORDED_ROWS = 10


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
    """Live objects of one type: `delta` were created by this job, `count` by all jobs so far."""

    name: str
    count: int
    delta: int
    bytes: int


def _grown_type(name: str, count: int, delta: int, n_bytes: int) -> GrownType:
    """Return a row without calling its constructor, whose generated code a report would mistake for the program's."""
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
    peak_bytes: int = 0
    # Live bytes of this job and of earlier jobs of its name when it was measured.
    name_bytes: int | None = None


class Job:
    """One job. Its attributes have values once it has ended:

    retained_bytes    bytes that it allocated and that are still alive, minus bytes of earlier jobs that it released
    peak_bytes        the most bytes that its own blocks took at once
    allocated_bytes   all bytes that it allocated
    grown_types       at most 30 rows: type, live objects of all jobs so far, live objects of this job, bytes
    sites             at most 30 stacks that allocated the live memory, largest first
    started, seconds  when it began, in seconds since 1970, and how long it ran
    failed            whether it ended with an exception
    graph             the file with the reference graph, if one was requested

    A job is measured when it ends. The exception of a failed job keeps objects alive while it is being handled. So a
    failed job is measured when one of its attributes is first read, or before the next job starts.
    A pickled job has its numbers and no tracer.
    """

    __slots__ = (
        "__weakref__",
        "_account",
        "_is_running",
        "_key",
        "_outer",
        "_reset",
        "_resident_before",
        "_rest",
        "_seconds",
        "_tracer",
        "error",
        "failed",
        "graph",
        "id",
        "name",
        "number",
        "outcome",
        "started",
    )

    def __init__(self, tracer: JobTracer | None, name: str) -> None:
        self.name = name
        self.number = 0
        # The ID in job records; None if no records are written.
        self.id: str | None = None
        self.outcome = "running"
        self.failed = False
        # The type of the exception.
        self.error: str | None = None
        self.graph: str | None = None
        self.started = 0.0
        self._tracer = tracer
        self._rest: Rest | None = None
        self._seconds: float | None = None
        self._resident_before: int | None = None
        self._is_running = False
        self._outer: Any = None
        self._reset: Any = None
        self._account = 0
        self._key: Hashable = None

    @property
    def key(self) -> Hashable:
        """The key under which it was started."""
        return self._key

    @property
    def rest(self) -> Rest:
        """All measurements of the job."""
        if self._is_running:
            raise RuntimeError(f"job {self.name} is still running; read its attributes when it has ended")
        if self._rest is not None:
            return self._rest
        if self._tracer is None:
            raise RuntimeError(f"job {self.name} was still running when it was pickled, so it has no numbers")
        return self._tracer._settle(self)

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
    def peak_bytes(self) -> int:
        """The most bytes that the job's own blocks took at once."""
        return self.rest.peak_bytes

    @property
    def allocated_bytes(self) -> int:
        """Bytes that the job allocated in total."""
        return self.rest.allocated_bytes

    @property
    def seconds(self) -> float | None:
        """How long the job ran; None while it runs."""
        if self._is_running:
            return None
        return self._seconds if self._seconds is not None else _native.job_seconds(self._account)

    @property
    def grown_types(self) -> list[GrownType]:
        """Types of the live objects, most bytes first."""
        return self.rest.grown_types

    @property
    def sites(self) -> list[Site]:
        """Stacks that allocated the live memory, most bytes first."""
        return self.rest.sites

    def settle(self) -> Job:
        """Measure the job again, for engines that keep frames of the job alive at its end and free them later."""
        if self._is_running:
            raise RuntimeError(f"job {self.name} is still running; settle it when it has ended")
        if self._tracer is None:
            raise RuntimeError(f"job {self.name} is a copy from another process and cannot be measured again")
        self._tracer._settle_again(self)
        return self

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers of the job as values that JSON can hold."""
        rest = self.rest
        return {
            "name": self.name,
            "number": self.number,
            "key": _plain(self._key),
            "id": self.id,
            "outcome": self.outcome,
            "failed": self.failed,
            "error": self.error,
            "started": self.started,
            "seconds": self.seconds,
            "retained_bytes": self.retained_bytes,
            "retained_blocks": rest.kept_blocks,
            "released_bytes": rest.released_bytes,
            "peak_bytes": rest.peak_bytes,
            "allocated_bytes": rest.allocated_bytes,
            "allocated_blocks": rest.allocated_blocks,
            "lost_blocks": rest.lost_blocks,
            "grown_types": [dict(row.__dict__) for row in rest.grown_types],
            "sites": [
                {"bytes": site.bytes, "blocks": site.blocks, "frames": [frame._asdict() for frame in site.frames]}
                for site in rest.sites
            ],
            "graph": self.graph,
        }

    def report(self) -> str:
        """Return the report of the job as text."""
        return report.of_job(self)

    def __repr__(self) -> str:
        if self._is_running or (self._rest is None and self._tracer is None):
            return f"<job {self.name}: running>"
        return f"<job {self.name}: {self.retained_bytes:,} bytes retained>"

    def __reduce__(self) -> tuple[Any, ...]:
        rest = None if self._is_running or (self._rest is None and self._tracer is None) else self.rest
        names = ("number", "id", "outcome", "failed", "error", "graph", "started")
        state = {name: getattr(self, name) for name in names}
        state.update(_rest=rest, _seconds=self.seconds, _key=_plain(self._key))
        return _restored, (self.name, state)


class JobRecord:
    """The numbers of a job at one moment, for a job record. It does not keep memory of the job alive."""

    key: Any
    number = None
    resident_peak = None
    capture = None

    def __init__(self, job: Job, resident_after: int | None = None) -> None:
        self.id = job.id
        self.name = job.name
        self.key = _plain(job._key)
        self.labels: dict[str, str] = {}
        self.outcome = job.outcome
        self.error = job.error
        self.started = job.started
        self.seconds = job.seconds
        self.resident_before = job._resident_before
        self.resident_after = resident_after
        self.measured = None if job._rest is None else _measured(job, job._rest)


def _measured(job: Job, rest: Rest) -> dict[str, Any]:
    sites = []
    for site in rest.sites[:_RECORDED_ROWS]:
        frame = next(iter(report.of_the_program(site)), None)
        if frame is not None:
            sites.append({"bytes": site.bytes, "blocks": site.blocks, **frame._asdict()})
    return {
        "allocated_bytes": rest.allocated_bytes,
        "peak_bytes": rest.peak_bytes,
        "retained_bytes": job.retained_bytes,
        "name_bytes": rest.name_bytes,
        "sites": sites,
        "types": [dict(row.__dict__) for row in rest.grown_types[:_RECORDED_ROWS]],
    }


def _plain(key: Hashable) -> str | int | None:
    """Return a key as a value that JSON can represent and every process can unpickle."""
    if key is None or isinstance(key, (str, int)):
        return key
    try:
        return str(key)
    except Exception:
        return f"<{type(key).__name__}>"


def _restored(name: str, state: dict[str, Any]) -> Job:
    job = Job(None, name)
    for attribute, value in state.items():
        setattr(job, attribute, value)
    return job
