"""Draws why a job's leaked objects are alive: one reference graph per job, in the tracer's folder."""

from __future__ import annotations

import os
import re
import sys
import types
from typing import TYPE_CHECKING, Any

from heaptide import _native, objects, private_files
from heaptide.leaks import accounts
from heaptide.messages import print_message, reason
from heaptide.objects import drawing, references
from heaptide.objects.boxes import Boxes

if TYPE_CHECKING:
    from heaptide.leaks.job import Job
    from heaptide.leaks.tracer import JobTracer

MAX_EXAMPLES = 3
MAX_DEPTH = 20


def write(tracer: JobTracer, job: Job) -> str | None:
    """Draw the shortest paths from modules and running functions to objects of the traced type.

    Returns the path of the picture. The same graph is also written as dot text and as a page. If the job leaked no
    such object, this prints a line. Never raises: a failure must not reach the job.
    """
    try:
        return _write(tracer, job)
    except Exception as error:
        print_message(f"no graph of job {job.name} could be drawn: {reason(error)}")
        return None


def _write(tracer: JobTracer, job: Job) -> str | None:
    examples, n_left = _examples(tracer.trace_type or "", job)
    if not examples:
        print_message(f"job {job.name} left no objects of type {tracer.trace_type}, so there is no graph")
        return None
    chains: list[list[Any]] = []
    referrers = references.Referrers([examples, chains, sys._getframe()])
    for example in examples:
        chains.append(references.chain_back(example, _is_root, MAX_DEPTH, referrers))
    graph = Boxes(None, None, None, False, None, ()).chains(chains)
    os.makedirs(tracer.output_dir, exist_ok=True)
    # The key is preferred: each worker numbers its jobs from 1, so numbers repeat if several workers share the folder.
    name = re.sub(r"[^\w.-]+", "_", f"{tracer.trace_type}-{job.name}-{job.number if job.key is None else job.key}")
    path = os.path.join(tracer.output_dir, name)
    title = f"job {job.name}: {len(examples)} of {n_left} objects of type {tracer.trace_type} that it left"
    for form in ("svg", "dot", "html"):
        private_files.write(f"{path}.{form}", drawing.draw(graph, form, title))
    return f"{path}.svg"


def _is_root(each: Any) -> bool:
    return objects.is_proper_module(each) or type(each) is types.FrameType


def _examples(name: str, job: Job) -> tuple[list[Any], int]:
    """Return some leaked objects of the type, the oldest first, and their total number."""
    types_ = accounts.all_types()
    found: list[Any] = []
    n_left = 0
    for number, type_ in enumerate(types_):
        if name not in (accounts.type_name(type_), type.__getattribute__(type_, "__name__")):
            continue
        rest = _native.job_rest(job._account, types_, 0, number)
        if rest is not None:
            n_left += len(rest.examples)
            found.extend(rest.examples[: MAX_EXAMPLES - len(found)])
    return found, n_left
