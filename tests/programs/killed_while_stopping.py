"""Makes many processes that record a known number of blocks and stop; kills each with SIGKILL on the way.

Every child tells, through memory shared with this process, when its blocks are made and when it has stopped. The first
never stops; of the others most are killed while the file is being completed, some before and some after: after each it is
known better how long that takes, however busy the machine is. Prints how many had not finished.

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


def child(capture, told, is_to_stop):
    tracker = Tracker(capture)
    tracker.start()
    for n in range(N_BLOCKS):
        bytes(10_000 + n % 5000)
    told[MADE] = 1
    if not is_to_stop:
        signal.pause()
    tracker.stop()
    told[STOPPED] = 1
    signal.pause()


n_unfinished = 0
typical = 0.004
for turn in range(N_CHILDREN):
    told = memoryview(mmap.mmap(-1, 4096)).cast("Q")
    pid = os.fork()
    if pid == 0:
        child(os.path.join(FOLDER, f"{turn}.tide"), told, turn > 0)
    while not told[MADE]:
        time.sleep(0)
    until = time.perf_counter() + chance.uniform(0, 1.1) * typical
    while time.perf_counter() < until:
        pass
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    n_unfinished += not told[STOPPED]
    typical *= 0.8 if told[STOPPED] else 1.25
print(n_unfinished)
