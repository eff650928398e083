"""MRQ: its names for the settings of a worker, and how it calls a task."""

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
