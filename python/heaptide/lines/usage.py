"""``memory_usage``: samples the size of a process, or of this process during a call."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from math import ceil, inf
from typing import Any, TextIO

from heaptide import _native
from heaptide.lines.monitor import BACKENDS, check_backend

_MIB = 1 << 20

# Time, bytes, and the pids and bytes of descendants.
_Sample = tuple[float, int, list[tuple[int, int]]]


def memory_usage(
    proc: Any = -1,
    interval: float = 0.1,
    timeout: float | None = None,
    timestamps: bool = False,
    include_children: bool = False,
    multiprocess: bool = False,
    max_usage: bool = False,
    retval: bool = False,
    stream: TextIO | None = None,
    backend: str | None = None,
    max_iterations: int | None = None,
) -> Any:
    """Return the memory of a process over time, in MiB.

    proc              a process ID, -1 for this process, a :class:`subprocess.Popen`, a function, or a tuple of a
                      function, its arguments and its keyword arguments. A function is called exactly once.
    interval          seconds between two samples
    timeout           seconds after which sampling of a process stops; without it, a process ID is sampled once. Has no
                      effect on a function, which is sampled until it returns
    timestamps        return pairs of MiB and time
    include_children  add the memory of all descendants
    multiprocess      return a list for each sample: the process, then its descendants
    max_usage         return only the largest sample
    retval            return a pair: the samples and the function's return value
    stream            write the samples to this file in mprof's format, and return None
    backend           what is measured: see :func:`heaptide.profile`
    max_iterations    ignored; memory_profiler uses it to repeat short functions
    """
    backend = "psutil" if backend is None else backend
    check_backend(backend)
    if not interval > 0:
        raise ValueError(f"interval must be a number of seconds above 0, not {interval!r}")
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout must be a number of seconds above 0, not {timeout!r}")
    children = include_children or multiprocess
    returned: Any = None
    if backend == "tracemalloc":
        if not (callable(proc) or isinstance(proc, (list, tuple))):
            raise ValueError("tracemalloc measures only this process: pass a function to call, or another backend")
        samples, returned = _traced(*_call_of(proc))
    elif callable(proc) or isinstance(proc, (list, tuple)):
        samples, returned = _during(*_call_of(proc), interval, BACKENDS[backend], children)
    else:
        found = _of_process(proc, interval, timeout, BACKENDS[backend], children)
        if stream is None:
            samples = list(found)
        else:
            # Write each sample at once, so that `tail -f` shows the samples of a long run.
            samples = []
            for sample in found:
                _write(stream, [sample], include_children, multiprocess)
                stream.flush()
    if stream is not None:
        _write(stream, samples, include_children, multiprocess)
        result: Any = None
    else:
        result = _shape(samples, timestamps, include_children, multiprocess, max_usage)
    return (result, returned) if retval else result


def _write(stream: TextIO, samples: list[_Sample], include_children: bool, multiprocess: bool) -> None:
    """Write samples in mprof's format."""
    for moment, size, others in samples:
        whole = size + (sum(bytes for _, bytes in others) if include_children else 0)
        stream.write(f"MEM {whole / _MIB:.6f} {moment:.4f}\n")
        if multiprocess:
            for pid, other in others:
                stream.write(f"CHLD {pid} {other / _MIB:.6f} {moment:.4f}\n")


def _shape(
    samples: list[_Sample], timestamps: bool, include_children: bool, multiprocess: bool, max_usage: bool
) -> Any:
    figures: list[Any] = []
    for moment, size, others in samples:
        whole = (size + (sum(bytes for _, bytes in others) if include_children else 0)) / _MIB
        figure: Any = (whole, moment) if timestamps else whole
        figures.append([figure, *(bytes / _MIB for _, bytes in others)] if multiprocess else figure)
    return max(figures) if max_usage else figures


def _call_of(proc: Any) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return a function, its arguments and its keyword arguments."""
    if callable(proc):
        return proc, (), {}
    if not 1 <= len(proc) <= 3 or not callable(proc[0]):
        raise ValueError("proc must be a function, or a tuple of a function, its arguments and its keyword arguments")
    return proc[0], tuple(proc[1]) if len(proc) > 1 else (), dict(proc[2]) if len(proc) > 2 else {}


def _during(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    interval: float,
    backend: str,
    children: bool,
) -> tuple[list[_Sample], Any]:
    """Call the function while a native thread samples the process."""
    sampler = _native.MemorySampler(os.getpid(), interval, backend, children)
    try:
        returned = function(*args, **kwargs)
    except BaseException:
        sampler.stop()
        raise
    return sampler.stop(), returned


def _traced(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[_Sample], Any]:
    """Measure tracemalloc's traced memory before and after the call, and its peak in between."""
    import tracemalloc

    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before: _Sample = (time.time(), tracemalloc.get_traced_memory()[0], [])
        returned = function(*args, **kwargs)
        current, peak = tracemalloc.get_traced_memory()
        now = time.time()
        return [before, (now, peak, []), (now, current, [])], returned
    finally:
        if not was_tracing:
            tracemalloc.stop()


def _of_process(proc: Any, interval: float, timeout: float | None, backend: str, children: bool) -> Iterator[_Sample]:
    """Sample another process, or this one, from this thread. Polls a Popen, so that its `returncode` gets set."""
    if isinstance(proc, subprocess.Popen):
        pid, most = proc.pid, inf if timeout is None else ceil(timeout / interval)
    elif isinstance(proc, int):
        pid, most = os.getpid() if proc == -1 else proc, 1 if timeout is None else ceil(timeout / interval)
    else:
        raise ValueError(f"proc must be a process ID, a Popen or a function, not {proc!r}")
    if pid <= 0:
        raise ValueError(f"{pid} is not a process ID: use -1 for this process")
    try:
        reader = _native.MemoryReader(pid, backend, children)
    except ProcessLookupError:
        if isinstance(proc, subprocess.Popen) and proc.poll() is not None:
            return
        raise
    n_samples = 0
    while True:
        sample = reader.sample()
        has_ended = isinstance(proc, subprocess.Popen) and _poll(proc, is_over=sample is None)
        if sample is not None:
            n_samples += 1
            yield sample
        if sample is None or has_ended or n_samples >= most:
            return
        time.sleep(interval)


def _poll(proc: subprocess.Popen[Any], *, is_over: bool) -> bool:
    if is_over:
        # The process is a zombie, or about to become one.
        try:
            proc.wait(1)
        except subprocess.TimeoutExpired:
            return False
    return proc.poll() is not None
