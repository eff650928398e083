"""Starts many processes that record a known number of blocks and stop, and kills each with SIGKILL around the stop.

Every child writes into memory shared with this process when it has allocated its blocks and when it has stopped. The
first child never stops. Most others are killed while they complete the file, some before and some after: the delay
adapts to how long that takes on this machine. Prints how many had not finished.

usage: killed_while_stopping.py FOLDER N_CHILDREN N_BLOCKS SEED
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


def child(capture, flags, stops):
    tracker = Tracker(capture)
    tracker.start()
    for n in range(N_BLOCKS):
        bytes(10_000 + n % 5000)
    flags[MADE] = 1
    if not stops:
        signal.pause()
    tracker.stop()
    flags[STOPPED] = 1
    signal.pause()


n_unfinished = 0
typical = 0.004
for turn in range(N_CHILDREN):
    flags = memoryview(mmap.mmap(-1, 4096)).cast("Q")
    pid = os.fork()
    if pid == 0:
        child(os.path.join(FOLDER, f"{turn}.tide"), flags, turn > 0)
    while not flags[MADE]:
        time.sleep(0)
    until = time.perf_counter() + chance.uniform(0, 1.1) * typical
    while time.perf_counter() < until:
        pass
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    n_unfinished += not flags[STOPPED]
    typical *= 0.8 if flags[STOPPED] else 1.25
print(n_unfinished)
