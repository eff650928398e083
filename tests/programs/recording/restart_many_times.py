"""Starts and stops recordings many times, in several modes.

Prints the resources that the process holds after a quarter of the recordings, and after all of them.
"""

import json
import os
import sys
import time

import heaptide

MODES = [{}, {"objects": True}, {"sample": 4096}, {"objects": True, "sample": True}, {"aggregate": True}]
PAGE_KB = os.sysconf("SC_PAGESIZE") // 1024


def held():
    with open("/proc/self/statm") as memory, open("/proc/self/maps") as maps:
        resident_kb = int(memory.read().split()[1]) * PAGE_KB
        n_maps = len(maps.readlines())
    # The kernel lists a thread for a moment after it was joined.
    end = time.monotonic() + 300
    while (n_threads := len(os.listdir("/proc/self/task"))) > 1 and time.monotonic() < end:
        time.sleep(0.001)
    n_files = len(os.listdir("/proc/self/fd"))
    return {"files": n_files, "threads": n_threads, "maps": n_maps, "resident_kb": resident_kb}


def record(n_times):
    for n in range(n_times):
        with heaptide.Tracker("capture.tide", overwrite=True, **MODES[n % len(MODES)]):
            bytearray(5000)
    return held()


n_times = int(sys.argv[1])
print(json.dumps([record(n_times // 4), record(n_times - n_times // 4)]))
