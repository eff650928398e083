"""Finds what jobs leak: ``heaptide.leaks``.

::

    tracer = heaptide.leaks.JobTracer()
    with tracer.job("send_mail") as job:
        send_mail()
    print(job.retained_bytes, job.grown_types, job.sites)
"""

from __future__ import annotations

import inspect
import itertools
from typing import TYPE_CHECKING

from heaptide.leaks.caches import clear_caches
from heaptide.leaks.job import Frame, GrownType, Job, Rest, Site
from heaptide.leaks.tracer import JobTracer

if TYPE_CHECKING:
    from collections.abc import Callable

    from heaptide.inspection.sets import IdentitySet

__all__ = ["Frame", "GrownType", "Job", "JobTracer", "Rest", "Site", "around", "clear_caches"]


def around(work: Callable[[], object], warmup: int = 10, runs: int = 1000) -> IdentitySet:
    """Call `work` `warmup` times, then `runs` times, and return the objects that the latter calls leaked.

    Before each of the two inspections that it compares, Python's own caches are emptied. The result prints as heapy's
    table; continue with an index, ``byvia``, ``referrers`` or ``shpaths`` (see :func:`heaptide.hpy`).
    """
    from heaptide.inspection.heapy import Heapy

    if inspect.iscoroutinefunction(work):
        raise TypeError("work is async and would not be awaited: pass a function that calls asyncio.run")
    session = Heapy()
    for _ in itertools.repeat(None, warmup):
        work()
    # The first inspection imports modules and creates objects.
    session.heap()
    clear_caches()
    session.setrelheap()
    # Not `range`, whose integers would appear as leaked objects.
    for _ in itertools.repeat(None, runs):
        work()
    clear_caches()
    return session.heap()
