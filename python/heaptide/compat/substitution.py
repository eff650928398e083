"""``HEAPTIDE_COMPAT=memray``: a program that imports another profiler gets Heaptide's front end of the same name.

Only the profilers that the user names are replaced. They are replaced even if they are installed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from heaptide.messages import print_message_once

# Modules that are replaced together: those of one distribution, and modules of platforms that use the profiler.
_GROUPS = (
    ["memory_profiler", "mprof", "pycompss.functions.profile"],
    ["memray", "flytekitplugins.memray"],
)
_OF_PLATFORMS = [name for group in _GROUPS for name in group if "." in name]

FOLDER = os.path.dirname(os.path.abspath(__file__))
NOT_FRONT_ENDS = {"__init__", "__pycache__", "installed", "substitution"}


class Substitution:
    """Finds Heaptide's front ends under the names of the profilers that they replace."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the front end with this name, if there is one."""
        if name not in self.names:
            return None
        folder = os.path.join(FOLDER, *name.split("."))
        package = os.path.join(folder, "__init__.py")
        if os.path.exists(package):
            return importlib.util.spec_from_file_location(name, package, submodule_search_locations=[folder])
        return importlib.util.spec_from_file_location(name, f"{folder}.py")


def all_names(names: list[str]) -> list[str]:
    """Return the names of modules to replace: the chosen ones, and the other modules of their groups."""
    groups = [group for group in _GROUPS if any(name in group for name in names)]
    return list(dict.fromkeys([*names, *(name for group in groups for name in group)]))


def substitute(names: list[str]) -> None:
    """Make imports of these names return Heaptide's front ends. A name without a front end is reported and ignored."""
    known = {name.partition(".")[0] for name in os.listdir(FOLDER)} - NOT_FRONT_ENDS
    known = known - {name.partition(".")[0] for name in _OF_PLATFORMS} | {*_OF_PLATFORMS}
    for name in names:
        if name not in known:
            print_message_once(f"there is no front end for {name!r}; there are {', '.join(sorted(known))}")
    wanted = [name for name in all_names(names) if name in known]
    sys.meta_path.insert(0, Substitution(wanted))
    # Parent packages of a front end come last, so that an installed parent package is preferred.
    sys.meta_path.append(Substitution([package for name in wanted for package in _packages(name)]))


def _packages(name: str) -> list[str]:
    words = name.split(".")
    return [".".join(words[:length]) for length in range(1, len(words))]
