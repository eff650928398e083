"""Makes many processes that record a known number of blocks and stop; kills each with SIGKILL on the way.

Every child tells, through memory shared with this process, when its blocks are made and when it has stopped. Some are
killed before they stop, most while the file is being completed, some after. Prints how many had not finished.

usage: is_killed_while_it_stops.py FOLDER N_CHILDREN N_BLOCKS SEED
"""

import mmap
import os
import random
import signal
import sys
import time

from heaptide import Tracker

FOLDER, (N_CHILDREN, N_BLOCKS, SEED) = sys.argv[1], map(int, sys.argv[2:5])
chance = random.Random(SEED)
MADE, STOPPED = 0, 1


def child(capture, told):
    tracker = Tracker(capture)
    tracker.start()
    for n in range(N_BLOCKS):
        bytes(10_000 + n % 5000)
    told[MADE] = 1
    tracker.stop()
    told[STOPPED] = 1
    signal.pause()


n_unfinished = 0
typical = 0.004
for turn in range(N_CHILDREN):
    told = memoryview(mmap.mmap(-1, 4096)).cast("Q")
    pid = os.fork()
    if pid == 0:
        child(os.path.join(FOLDER, f"{turn}.tide"), told)
    while not told[MADE]:
        time.sleep(0)
    start = time.perf_counter()
    # The first one shows how long it takes; the others are killed at a random point of that.
    until = start + chance.uniform(0, 1.1) * typical
    while time.perf_counter() < until if turn else not told[STOPPED]:
        pass
    if turn == 0:
        typical = time.perf_counter() - start
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    n_unfinished += not told[STOPPED]
print(n_unfinished)
