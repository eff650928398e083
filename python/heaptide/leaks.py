"""Finding what jobs leave behind: ``heaptide.leaks``.

::

    tracer = heaptide.leaks.JobTracer()
    with tracer.job("send_mail") as job:
        send_mail()
    print(job.retained_bytes, job.grown_types, job.sites)
"""

from __future__ import annotations

from heaptide.interpreter_caches import clear_caches
from heaptide.job_tracer import Frame, GrownType, Job, JobTracer, Rest, Site

__all__ = ["Frame", "GrownType", "Job", "JobTracer", "Rest", "Site", "clear_caches"]
