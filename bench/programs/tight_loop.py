"""Runs a tight loop, bare or line by line, and prints the CPU seconds of its best run to standard error."""

import io
import sys
import time

ITERATIONS = 200_000


def loop(count):
    total = 0
    for number in range(count):
        total += number
    return total


tool, repeats = sys.argv[1], int(sys.argv[2])
if tool == "heaptide":
    from heaptide import profile

    loop = profile(stream=io.StringIO())(loop)
elif tool == "memory_profiler":
    from memory_profiler import profile

    loop = profile(loop, stream=io.StringIO())

loop(10)
best = float("inf")
for _ in range(repeats):
    start = time.process_time()
    loop(ITERATIONS)
    best = min(best, time.process_time() - start)
print(best, file=sys.stderr)
