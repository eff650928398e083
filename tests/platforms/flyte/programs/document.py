"""The example of the plugin's documentation, with the return type `int`, because flytekit rejects its type `list`."""

from flytekitplugins.memray.profiling import memray_profiling
from flytekit import task, workflow


@memray_profiling(memray_html_reporter="flamegraph")
@task
def my_memory_intensive_task(n: int) -> int:
    """
    A task that allocates a significant amount of memory.
    """
    data = [i for i in range(n)]
    return len(data)


@workflow
def my_profiling_workflow():
    my_memory_intensive_task(n=1000000)


if __name__ == "__main__":
    my_profiling_workflow()
