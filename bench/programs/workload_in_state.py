"""Runs a workload while the profiler is in one state, and prints its CPU seconds on the last line of standard error.

The CPU time excludes the import and start of Heaptide: a program that is not being recorded should run as fast as
without Heaptide.

    workload_in_state.py (bare | imported | stopped) WORKLOAD SCRATCH_FILE
"""

import runpy
import sys
import time

state, workload, scratch = sys.argv[1:]
if state == "bare":
    pass
elif state == "imported":
    import heaptide.recording.tracker
elif state == "stopped":
    import heaptide

    tracker = heaptide.Tracker(scratch)
    tracker.start()
    tracker.stop()
else:
    sys.exit(f"unknown state {state!r}; use bare, imported or stopped")

start = time.process_time()
runpy.run_path(workload, run_name="__main__")
print(time.process_time() - start, file=sys.stderr)
