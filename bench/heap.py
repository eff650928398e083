"""The walk of three million objects, next to guppy3's `heap()` on the same heap: bench/heap.py [--objects N].

Both run in a process of their own that has made the same objects, several times, in turn; the best of each counts. Not
part of `make test`: it says what a machine can do, not whether something works.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

HEAP = """
import gc, json, sys, time
gc.disable()

class Order:
    def __init__(self, number):
        self.number, self.customer, self.lines = number, f"customer {number}", [(number, 2.5)]

class Line:
    __slots__ = ("order", "text")
    def __init__(self, order):
        self.order, self.text = order, {"sku": str(id(order)), "n": order.number}

orders = [Order(number + 1000) for number in range(%d)]
lines = [Line(order) for order in orders]
gc.freeze()
gc.unfreeze()
"""

OURS = """
import heaptide
from heaptide.heap_snapshots import heap_now
heaptide.heap_snapshot("%s", overwrite=True)
times, walks = [], []
for _ in range(3):
    begin = time.perf_counter()
    taken = heaptide.heap_snapshot("%s", overwrite=True)
    times.append(time.perf_counter() - begin)
    walks.append(taken.walk_seconds)
print(json.dumps({"seconds": min(times), "walk": min(walks), "objects": taken.objects,
                  "bytes_per_object": taken.walker_bytes / taken.objects}))
"""

GUPPY = """
from guppy import hpy
hp = hpy()
times = []
for _ in range(2):
    begin = time.perf_counter()
    heap = hp.heap()
    times.append(time.perf_counter() - begin)
print(json.dumps({"seconds": min(times), "objects": heap.count}))
"""


def measured(program: str) -> dict[str, float]:
    """Run a program and read the numbers that it prints last."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the measured program failed:\n{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--objects", type=int, default=3_000_000)
    arguments.add_argument("--file", default="/tmp/heaptide-bench.heap")
    chosen = arguments.parse_args()
    # An order, its line and what both hold are eleven objects.
    heap = HEAP % (chosen.objects // 11)
    ours = measured(heap + OURS % (chosen.file, chosen.file))
    print(
        f"heaptide: {ours['objects']:,.0f} objects, walked in {ours['walk']:.2f} s, "
        f"{ours['bytes_per_object']:.1f} bytes per object in the walker; with the file {ours['seconds']:.2f} s"
    )
    try:
        guppy = measured(heap + GUPPY)
    except SystemExit as error:
        print(f"guppy3 is not here: {str(error).splitlines()[-1]}")
        return
    print(f"guppy3:   {guppy['objects']:,.0f} objects in {guppy['seconds']:.2f} s")
    print(
        f"ratio:    walk {guppy['seconds'] / ours['walk']:.1f}, with the file {guppy['seconds'] / ours['seconds']:.1f}"
    )


if __name__ == "__main__":
    main()
