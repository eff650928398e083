"""Runs small jobs: jobs.py HOW N_JOBS SIZE. With SIZE 0, jobs do nothing.

HOW is block (a with statement), calls (of begin and end), or a decorated function: function, generator, async function
or async generator. Generators have one step. With "plain" before a function, or "plain" alone, jobs are not marked.
"""

import contextlib
import json
import sys

form, n_jobs, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
TEXT = json.dumps([{"number": n, "lines": [n * 1.5, n * 2.5], "name": f"order {n}"} for n in range(size)])


def work() -> int:
    """Parse, transform and render, as a small task does."""
    if not size:
        return 0
    orders = json.loads(TEXT)
    totals = {order["number"]: sum(order["lines"]) for order in orders}
    page = "\n".join(f"{number:>6} {total:>12.2f}" for number, total in totals.items())
    return len(page) + len(bytearray(4000))


def steps():
    """Work in one step."""
    yield work()


async def work_async():
    """Work in a coroutine."""
    return work()


async def steps_async():
    """Work in one step of an asynchronous generator."""
    yield work()


async def consume(generator):
    """Run an asynchronous generator to its end."""
    async for _ in generator:
        pass


def drive(coroutine):
    """Run a coroutine that never waits, without an event loop."""
    with contextlib.suppress(StopIteration):
        coroutine.send(None)


def run(form, mark):
    """Run the jobs as functions."""
    if form == "generator":
        marked = mark(steps)
        for _ in range(n_jobs):
            for _ in marked():
                pass
    elif form == "async function":
        marked = mark(work_async)
        for _ in range(n_jobs):
            drive(marked())
    elif form == "async generator":
        marked = mark(steps_async)
        for _ in range(n_jobs):
            drive(consume(marked()))
    else:
        marked = mark(work)
        for _ in range(n_jobs):
            marked()


if form.startswith("plain"):
    run(form.removeprefix("plain").strip(), lambda function: function)
else:
    import heaptide

    if form == "block":
        for _ in range(n_jobs):
            with heaptide.job("work", key="same", queue="mail"):
                work()
    elif form == "calls":
        for _ in range(n_jobs):
            job = heaptide.job("work", key="same", queue="mail").begin()
            work()
            job.end()
    else:
        run(form, heaptide.job("work", key="same", queue="mail"))
