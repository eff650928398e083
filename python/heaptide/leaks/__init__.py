"""Finding what jobs leave behind: ``heaptide.leaks``.

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
from heaptide.leaks.tracer import Frame, GrownType, Job, JobTracer, Rest, Site

if TYPE_CHECKING:
    from collections.abc import Callable

    from heaptide.inspection.sets import IdentitySet

__all__ = ["Frame", "GrownType", "Job", "JobTracer", "Rest", "Site", "around", "clear_caches"]


def around(work: Callable[[], object], warmup: int = 10, runs: int = 1000) -> IdentitySet:
    """Call `work` a few times to get over what happens only at first, then many times, and return what remained.

    Python's own caches are emptied before both looks at the heap. What comes back prints as heapy's table; an index and
    ``byvia``, ``referrers``, ``shpaths`` lead on from there (see :func:`heaptide.hpy`).
    """
    from heaptide.inspection.heapy import Heapy

    if inspect.iscoroutinefunction(work):
        raise TypeError("work is async, and nobody would await it: give a function that runs it, such as asyncio.run")
    session = Heapy()
    for _ in itertools.repeat(None, warmup):
        work()
    # The look itself loads and makes things when it is done for the first time.
    session.heap()
    clear_caches()
    session.setrelheap()
    # Numbers of runs would be among what remained.
    for _ in itertools.repeat(None, runs):
        work()
    clear_caches()
    return session.heap()
