"""Runs a workload as one job of a JobTracer without garbage collections: traced.py WORKLOAD."""

import runpy
import sys

from heaptide.leaks import JobTracer

with JobTracer(collect=False).job("workload"):
    runpy.run_path(sys.argv[1], run_name="__main__")
