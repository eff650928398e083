"""Heaptide, a memory profiler for Python: where memory is allocated, when it grows, what it holds and why it stays.

``heaptide run job.py`` records a whole program; :class:`Tracker` records a block of code in a running one::

    with heaptide.Tracker("block.tide"):
        work()

More entry points:

- :func:`profile_memory` records the calls of a function and renders a report of each.
- :func:`profile` reports a function's memory line by line; :func:`memory_usage` samples the size of a process.
- :func:`label` names what this process is or serves, in every file and report.
- :func:`set_mode` changes how a running recording records; :func:`on_pressure` acts before memory runs out.
- :class:`component` records a part of a service if the configuration selects it.
- :func:`job` marks a unit of work, so that reports can show memory by job.
- :mod:`leaks` reports what each job of a worker leaks.
- :func:`heap_census` counts all objects by type; :func:`heap` and :func:`hpy` answer questions about them.
- :func:`heap_snapshot` writes all objects to a file; :mod:`objects` draws references between a few of them.

Importing this package loads almost nothing. The native module is loaded when one of these names is first used.
"""

import sys as _sys

if "t" in getattr(_sys, "abiflags", ""):
    raise ImportError(
        "free-threaded builds of Python are not supported by heaptide yet; "
        "use the build with the GIL of the same version"
    )

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself would be an import
    from heaptide import asgi, control, leaks, objects, reports, wsgi
    from heaptide._native import RecordingError, __version__
    from heaptide.activation.components import component
    from heaptide.inspection.census import HeapCensus, heap_census
    from heaptide.inspection.heapy import heap, hpy
    from heaptide.inspection.snapshots import HeapSnapshot, HeapTaken, heap_snapshot
    from heaptide.jobs.job import job
    from heaptide.labels import label
    from heaptide.lines.profile import profile
    from heaptide.lines.usage import memory_usage
    from heaptide.notebook import load_ipython_extension
    from heaptide.platforms.flyte import memray_profiling
    from heaptide.pressure import on_pressure
    from heaptide.recording.decorator import profile_memory
    from heaptide.recording.mode import set_mode
    from heaptide.recording.tracker import Tracker, active

__all__ = [
    "HeapCensus",
    "HeapSnapshot",
    "HeapTaken",
    "RecordingError",
    "Tracker",
    "__version__",
    "active",
    "asgi",
    "component",
    "control",
    "heap",
    "heap_census",
    "heap_snapshot",
    "hpy",
    "job",
    "label",
    "leaks",
    "load_ipython_extension",
    "memory_usage",
    "memray_profiling",
    "objects",
    "on_pressure",
    "profile",
    "profile_memory",
    "reports",
    "set_mode",
    "wsgi",
]

_MODULE_OF = {
    "HeapCensus": "inspection.census",
    "HeapSnapshot": "inspection.snapshots",
    "HeapTaken": "inspection.snapshots",
    "RecordingError": "_native",
    "Tracker": "recording.tracker",
    "__version__": "_native",
    "active": "recording.tracker",
    "component": "activation.components",
    "heap": "inspection.heapy",
    "heap_census": "inspection.census",
    "heap_snapshot": "inspection.snapshots",
    "hpy": "inspection.heapy",
    "job": "jobs.job",
    "label": "labels",
    "load_ipython_extension": "notebook",
    "memory_usage": "lines.usage",
    "memray_profiling": "platforms.flyte",
    "on_pressure": "pressure",
    "profile": "lines.profile",
    "profile_memory": "recording.decorator",
    "set_mode": "recording.mode",
}

# Submodules that the first use of `heaptide.NAME` imports.
_MODULES = ("asgi", "control", "leaks", "objects", "reports", "wsgi")

if not TYPE_CHECKING:  # type checkers would accept every name

    def __getattr__(name: str) -> object:
        module = _MODULE_OF.get(name)
        if name in _MODULES:
            return _load(name)
        if module is None:
            raise AttributeError(f"module 'heaptide' has no attribute {name!r}")
        value = getattr(_load(module), name)
        globals()[name] = value
        return value


def _load(name: str) -> object:
    """Import a module of this package without recording the memory that the import allocates."""
    import importlib

    name = f"heaptide.{name}"
    native = _sys.modules.get("heaptide._native")
    # While another thread imports the native module, the module has no functions yet, and no recording can run.
    if native is None or getattr(native, "active", _no_capture)() is None:
        return importlib.import_module(name)
    return native.unrecorded(importlib.import_module, name)


def _no_capture() -> None:
    return None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
