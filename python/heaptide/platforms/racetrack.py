"""Racetrack: its names for the profiler of a served program, and the paths and methods that it expects."""

from heaptide.platforms import Platform

PLATFORM = Platform(variables={"profiler": "MEMRAY_PROFILER", "leaks": "MEMRAY_LEAKS"})

# The method that returns example arguments for a call of the program.
EXAMPLE_METHOD = "docs_input_example"


def public_path(name: str, version: str) -> str:
    """Return the path that Racetrack's gateway puts before all routes of a program."""
    return f"/pub/job/{name}/{version}"
