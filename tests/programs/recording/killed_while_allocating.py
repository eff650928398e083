"""Starts many processes that record themselves while they allocate, and kills each with SIGKILL at a random instant.

Each thread of a child numbers its blocks, and after each block writes the count into memory shared with this process.
The size of a block encodes its number. Prints as JSON each capture with the counts that its threads had written.

usage: killed_while_allocating.py FOLDER N_CHILDREN N_THREADS SEED
"""

import json
import mmap
import os
import random
import signal
import sys
import threading
import time

from heaptide import Tracker

FOLDER, (N_CHILDREN, N_THREADS, SEED) = sys.argv[1], map(int, sys.argv[2:5])
CYCLE = 5000  # Sizes repeat after this many blocks.
chance = random.Random(SEED)


def allocate(number, counts):
    base = 10_000 * (number + 1)
    n = 0
    while True:
        bytes(base + n % CYCLE)
        n += 1
        counts[number] = n


def child(capture, counts):
    Tracker(capture).start()
    for number in range(1, N_THREADS):
        threading.Thread(target=allocate, args=(number, counts), daemon=True).start()
    allocate(0, counts)


outcome = {}
for turn in range(N_CHILDREN):
    counts = memoryview(mmap.mmap(-1, 4096)).cast("Q")
    capture = os.path.join(FOLDER, f"{turn}.tide")
    pid = os.fork()
    if pid == 0:
        sys.setswitchinterval(1e-4)
        child(capture, counts)
    # Most are killed early, when the file is small; some after several chunks were packed.
    limit = int(10 ** chance.uniform(0, 5))
    while sum(counts[:N_THREADS]) < limit:
        time.sleep(0)
    for _ in range(chance.randrange(300)):
        pass
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    outcome[capture] = list(counts[:N_THREADS])
json.dump(outcome, sys.stdout)
