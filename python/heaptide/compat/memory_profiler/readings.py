"""memory_profiler's functions that read the size of a process in MiB, and its class ``MemTimer``, which samples one."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from typing import Any

from heaptide import _native
from heaptide.lines.monitor import BACKENDS

_MIB = 1 << 20


def choose_backend(new_backend: str | None = None) -> str:
    """Return the requested backend, or psutil if it is None. An unknown backend raises KeyError."""
    if new_backend is None:
        return "psutil"
    if new_backend not in BACKENDS and new_backend != "tracemalloc":
        raise KeyError(new_backend)
    return new_backend


def _get_memory(
    pid: int, backend: str, timestamps: bool = False, include_children: bool = False, filename: str | None = None
) -> Any:
    """Return the size of a process, or size and time if `timestamps` is true. The `pid` -1 names this process."""
    if backend == "tracemalloc":
        size, now = _traced(filename), time.time()
    else:
        reader = _native.MemoryReader(os.getpid() if pid == -1 else pid, BACKENDS[backend], include_children)
        sample = reader.sample()
        now, size, children = sample if sample is not None else (time.time(), 0, [])
        size += sum(other for _, other in children)
    return (size / _MIB, now) if timestamps else size / _MIB


def _traced(filename: str | None) -> int:
    """Return the bytes that the code of a file has allocated, according to tracemalloc."""
    import tracemalloc

    if filename is None or filename == "<unknown>":
        raise RuntimeError("There is no access to source file of the profiled function")
    snapshot = tracemalloc.take_snapshot()
    return sum(each.size for each in snapshot.statistics("filename") if each.traceback[0].filename == filename)


def _get_child_memory(
    process: Any, meminfo_attr: str | None = None, memory_metric: int | str = 0
) -> Iterator[tuple[int, float]]:
    """Yield the process ID and size of each descendant of a process, given as a process ID or a psutil.Process."""
    pid = process if isinstance(process, int) else process.pid
    backend = {"pss": "proportional", "uss": "unique"}.get(str(memory_metric), "resident")
    try:
        sample = _native.MemoryReader(os.getpid() if pid == -1 else pid, backend, True).sample()
    except ProcessLookupError:
        sample = None
    for child, size in sample[2] if sample is not None else [(0, 0)]:
        yield child, size / _MIB


class MemTimer(multiprocessing.Process):
    """A process that samples another one until it receives a message through a pipe, and then sends its samples."""

    def __init__(
        self,
        monitor_pid: int,
        interval: float,
        pipe: Any,
        backend: str,
        max_usage: bool = False,
        *args: Any,
        timestamps: bool = False,
        include_children: bool = False,
        **kw: Any,
    ) -> None:
        self.monitor_pid = monitor_pid
        self.interval = interval
        self.pipe = pipe
        self.cont = True
        self.backend = backend
        self.max_usage = max_usage
        self.timestamps = timestamps
        self.include_children = include_children
        self.mem_usage = [self._sample()]
        self.n_measurements = 1
        super().__init__(*args, **kw)

    def _sample(self) -> Any:
        return _get_memory(self.monitor_pid, self.backend, self.timestamps, self.include_children)

    def run(self) -> None:
        """Sample until the other end of the pipe sends anything."""
        self.pipe.send(0)  # ready
        is_over = False
        while True:
            sample = self._sample()
            self.n_measurements += 1
            if self.max_usage:
                self.mem_usage[0] = max(sample, self.mem_usage[0])
            else:
                self.mem_usage.append(sample)
            if is_over:
                break
            is_over = self.pipe.poll(self.interval)
        self.pipe.send(self.mem_usage)
        self.pipe.send(self.n_measurements)
