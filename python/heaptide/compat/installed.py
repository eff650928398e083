"""Runs the commands that ``heaptide compat install`` writes: ``memray`` and ``mprof``."""

from __future__ import annotations

import os
import runpy
import sys

from heaptide.compat.substitution import substitute

# Command → the profiler's module. Programs that the command runs import Heaptide's module instead of it.
MODULES = {"memray": "memray", "mprof": "memory_profiler"}


def main(name: str) -> int:
    """Run the front end of this name, as ``python -m`` would. Programs that it runs also import Heaptide's modules."""
    module = MODULES[name]
    chosen = [word for word in os.environ.get("HEAPTIDE_COMPAT", "").split(",") if word]
    if module not in chosen:
        os.environ["HEAPTIDE_COMPAT"] = ",".join([*chosen, module])
        substitute([module])
    # Messages show this name. With `alter_sys`, runpy would replace it by the name of a file.
    sys.argv[0] = name
    runpy.run_module(f"heaptide.compat.{name}", run_name="__main__", alter_sys=False)
    return 0
