"""MRQ: its names for the settings of a worker, how it calls a task, and a worker class that measures each job.

``mrq-worker --worker_class heaptide.platforms.mrq.Worker`` uses the class. It needs MRQ, which is imported only then.
"""

from heaptide.platforms import Platform

PLATFORM = Platform(
    variables={
        "trace_memory": "MRQ_TRACE_MEMORY",
        "trace_memory_type": "MRQ_TRACE_MEMORY_TYPE",
        "trace_memory_output_dir": "MRQ_TRACE_MEMORY_OUTPUT_DIR",
        "greenlets": "MRQ_GREENLETS",
        "max_jobs": "MRQ_MAX_JOBS",
        "max_memory": "MRQ_MAX_MEMORY",
    },
    task_methods={"run": "params"},
)


def __getattr__(name: str) -> object:
    if name != "Worker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from heaptide.platforms._mrq_worker import Worker

    return Worker
