"""Measures the cost of tracing the jobs of a worker: bench/jobs.py [--jobs N] [--reps N].

Each job parses JSON, builds objects, renders text, and frees nearly all of it. The worker runs bare, with traced jobs,
traced without a garbage collection around each job, and traced while the process is recorded. Variants run in turn,
each in a separate process, and the best CPU time of each counts. Not part of `make test`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from measure import Cost, run

WORKER = r"""
import json, re, sys
from contextlib import nullcontext

variant, n_jobs, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]

class Order:
    def __init__(self, number, lines):
        self.number, self.lines = number, lines

    def total(self):
        return sum(line["price"] * line["count"] for line in self.lines)

def line(order, number):
    return {"sku": f"sku-{order}-{number}", "price": number * 1.5, "count": number}

TEXT = json.dumps([{"number": order, "lines": [line(order, number) for number in range(8)]} for order in range(150)])
KEPT = {}
WORD = re.compile(r"sku-(\d+)-(\d+)")

def job(number):
    orders = [Order(**row) for row in json.loads(TEXT)]
    totals = {order.number: order.total() for order in orders}
    page = "\n".join(f"{order.number:>6} {totals[order.number]:>12.2f}" for order in orders)
    found = WORD.findall(TEXT)
    KEPT[number] = page[:100]
    return len(found) + len(json.dumps(totals))

traced = lambda name: nullcontext()
if variant != "bare":
    from heaptide import Tracker, leaks
    if variant.startswith("recorded"):
        tracker = Tracker(folder + "/jobs.tide", objects=variant.endswith("objects"), overwrite=True)
        tracker.start()
    if "traced" in variant:
        tracer = leaks.JobTracer(collect="without collections" not in variant)
        traced = tracer.job
for number in range(n_jobs):
    with traced("job"):
        job(number)
"""

VARIANTS = (
    "bare",
    "traced",
    "traced, without collections",
    "recorded",
    "recorded and traced",
    "recorded and traced, with objects",
)


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=300, help="number of jobs per worker")
    parser.add_argument("--reps", type=int, default=3, help="repetitions of each variant")
    options = parser.parse_args()
    best: dict[str, Cost] = {}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "worker.py"
        program.write_text(WORKER)
        for _ in range(options.reps):
            for variant in VARIANTS:
                cost = run([sys.executable, program, variant, str(options.jobs), folder])
                if not cost.ok:
                    print(f"the worker variant {variant!r} failed: {cost.stderr}", file=sys.stderr)
                    return 1
                best[variant] = cost.better_of(best[variant]) if variant in best else cost
    bare = best["bare"]
    print(f"{'worker':<36} {'CPU s':>7} {'ratio':>6} {'max MB':>11}")
    for variant, cost in best.items():
        print(f"{variant:<36} {cost.cpu:>7.2f} {cost.cpu / bare.cpu:>6.2f} {cost.max_rss / 1e6:>11.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
