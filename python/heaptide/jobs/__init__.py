"""Jobs: units of work that a program marks, such as tasks and requests.

``heaptide.job`` marks a job. While the process is recorded, every allocation belongs to the current job of its thread,
greenlet or task, and reports can be filtered and grouped by job.
"""

from __future__ import annotations

from heaptide.jobs.job import OUTCOMES, Job, current, job

__all__ = ["OUTCOMES", "Job", "current", "job"]
