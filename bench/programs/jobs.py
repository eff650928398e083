"""Runs small jobs: jobs.py HOW N_JOBS SIZE. SIZE 0 makes jobs that do nothing.

HOW is plain or plain generator (no marks), block, calls (of begin and end), function (decorated)
or generator (decorated, one step).
"""

import json
import sys

how, n_jobs, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
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


if not how.startswith("plain"):
    import heaptide

    decorated = heaptide.job("work", key="same", queue="mail")
if how == "plain":
    for _ in range(n_jobs):
        work()
elif how == "plain generator":
    for _ in range(n_jobs):
        for _ in steps():
            pass
elif how == "block":
    for _ in range(n_jobs):
        with heaptide.job("work", key="same", queue="mail"):
            work()
elif how == "calls":
    for _ in range(n_jobs):
        job = heaptide.job("work", key="same", queue="mail").begin()
        work()
        job.end()
elif how == "function":
    marked = decorated(work)
    for _ in range(n_jobs):
        marked()
else:
    marked = decorated(steps)
    for _ in range(n_jobs):
        for _ in marked():
            pass
