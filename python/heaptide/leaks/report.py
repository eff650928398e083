"""The text of reports: of one ended job, and of all jobs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from heaptide.messages import print_message, printable, reason

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from heaptide.leaks.job import Frame, GrownType, Job, Rest, Site
    from heaptide.leaks.tracer import JobTracer

_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_COMMAND = _OWN_FOLDER + "__main__.py"
_SHOWN_SITES = 10
_SHOWN_FRAMES = 4
_MIB = 1 << 20


def deliver(report: Callable[[Job], None] | TextIO, job: Job) -> None:
    """Pass a job to the report function or file. Never raises: a failure must not reach the job."""
    try:
        if callable(report):
            report(job)
        else:
            report.write(printable(of_job(job)) + "\n")
            report.flush()
    except Exception as error:
        print_message(f"cannot deliver the report of job {job.name}: {reason(error)}")


def of_job(job: Job) -> str:
    """Return the report of one job."""
    outcome = " and failed" if job.failed else ""
    rest = job.rest
    head = f"job {job.name} left {amount(job.retained_bytes)}{outcome}"
    if rest.released_bytes:
        head += f": kept {amount(rest.kept_bytes)}, released {amount(rest.released_bytes)} of earlier jobs"
    lines = [head, *_type_rows(rest.grown_types), *_site_rows(rest.sites), *_loss(rest)]
    if job.graph is not None:
        lines.append(f"  graph: {job.graph}")
    return "\n".join(lines)


def of_all(tracer: JobTracer) -> str:
    """Return the report of all jobs so far."""
    rest = tracer.remaining()
    rows = [*_type_rows(rest.grown_types), *_site_rows(rest.sites), *_loss(rest)]
    return "\n".join([_head_of_all(tracer, rest), *rows])


def of_stop(tracer: JobTracer, resident: int) -> str:
    """Return the report of a process that exceeds its `max_memory`."""
    return (
        f"The process has {resident / _MIB:.1f} MiB of memory, more than max_memory = {tracer.max_memory:g} MiB.\n\n"
        f"{of_all(tracer)}\n"
    )


def amount(n_bytes: int) -> str:
    """Return a number of bytes with its unit, in the singular for one."""
    return f"{n_bytes:,} byte{'' if abs(n_bytes) == 1 else 's'}"


def _head_of_all(tracer: JobTracer, rest: Rest) -> str:
    jobs = f"{tracer.n_jobs:,} job{'' if tracer.n_jobs == 1 else 's'}"
    return f"{jobs} left {amount(rest.kept_bytes)} that are alive now"


def _loss(rest: Rest) -> list[str]:
    if not rest.lost_blocks:
        return []
    return [f"  {rest.lost_blocks:,} blocks are missing from these numbers: there was no memory to record them"]


def _type_rows(rows: list[GrownType]) -> list[str]:
    if not rows:
        return ["  no objects left"]
    width = max(4, *(len(row.name) for row in rows))
    lines = [f"  {'type':<{width}} {'count':>9} {'new':>9} {'bytes':>12}"]
    return lines + [f"  {row.name:<{width}} {row.count:>9} {f'+{row.delta}':>9} {row.bytes:>12,}" for row in rows]


def of_the_program(site: Site) -> list[Frame]:
    """Return the frames, innermost first, without Heaptide's own and those that started its command."""
    frames = []
    for frame in site.frames:
        if frame.file == _COMMAND:
            break
        if not frame.file.startswith(_OWN_FOLDER):
            frames.append(frame)
    return frames


def _site_rows(sites: list[Site]) -> list[str]:
    lines = []
    for site in sites[:_SHOWN_SITES]:
        frames = of_the_program(site)
        shown = [f"{frame.file}:{frame.line} {frame.function}" for frame in frames[:_SHOWN_FRAMES]]
        blocks = f"{site.blocks:,} block{'' if site.blocks == 1 else 's'}"
        other = "Heaptide itself" if site.frames else "outside Python"
        lines.append(f"  {amount(site.bytes)} in {blocks} from {shown[0] if shown else other}")
        lines.extend(f"      called by {frame}" for frame in shown[1:])
    if len(sites) > _SHOWN_SITES:
        lines.append(f"  … and {len(sites) - _SHOWN_SITES} more sites")
    return lines
