"""Tasks of Flyte 2 that are profiled in both decorator orders, and that return, fail and run in parallel."""

import asyncio
import json
import shutil
import sys
import uuid

import flyte

from heaptide import memray_profiling, profile_memory

env = flyte.TaskEnvironment(name="memory")


def grow(n):
    return len([None] * n)


# In `below` and `above`, the profiling decorator is below or above `@env.task`.
@env.task(report=True)
@memray_profiling
async def below(n: int) -> int:
    return grow(n)


@memray_profiling
@env.task
async def above(n: int) -> int:
    return grow(n)


@profile_memory(reporter="table")
@env.task
def plain(n: int) -> int:
    return grow(n)


@memray_profiling
@env.task
async def failing(n: int) -> int:
    grow(n)
    raise ValueError("mine")


@memray_profiling
@env.task
def plain_failing(n: int) -> int:
    grow(n)
    raise ValueError("mine")


@env.task
async def parallel(n: int) -> int:
    return sum(await asyncio.gather(above(n=n), above(n=2 * n), below(n=3 * n)))


@env.task
def mapped(n: int) -> int:
    return sum(flyte.map(plain, [n, 2 * n]))


if __name__ == "__main__":
    flyte.init()
    results = {"names": {"above": above.name, "below": below.name}}
    for task in (below, above, plain, failing, plain_failing, parallel, mapped):
        task_name = task.func.__name__
        # Local executions write to a fixed folder, in a subfolder named after the run.
        run_name = f"{task_name}-{uuid.uuid4()}"
        try:
            run = flyte.with_runcontext(mode="local", name=run_name).run(task, n=1_000_000)
            results[task_name] = run.outputs()[0]
        except flyte.errors.RuntimeUserError as error:
            results[task_name] = str(error)
        written = f"/tmp/flyte/metadata/{run_name}"
        shutil.copytree(written, f"{sys.argv[1]}/{task_name}")
        shutil.rmtree(written)
    print("RESULTS", json.dumps(results))
