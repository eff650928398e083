"""``HEAPTIDE_COMPAT=memray``: a program that imports another profiler gets Heaptide's front end of the same name.

Only the named profilers are replaced, whether or not they are installed: the user asked for it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from heaptide.messages import say_once

FOLDER = os.path.dirname(os.path.abspath(__file__))


class Substitution:
    """Finds Heaptide's front ends under the names of the profilers that they replace."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the front end with this name, if there is one."""
        if path is not None or name not in self.names:
            return None
        package = os.path.join(FOLDER, name, "__init__.py")
        if os.path.exists(package):
            return importlib.util.spec_from_file_location(
                name, package, submodule_search_locations=[os.path.dirname(package)]
            )
        return importlib.util.spec_from_file_location(name, os.path.join(FOLDER, f"{name}.py"))


def substitute(names: list[str]) -> None:
    """Let imports of these names find Heaptide's front ends. A name without one is reported and ignored."""
    known = {name.partition(".")[0] for name in os.listdir(FOLDER)} - {"__init__", "__pycache__", "substitution"}
    for name in names:
        if name not in known:
            say_once(f"there is no front end for {name!r}; there are {', '.join(sorted(known))}")
    sys.meta_path.insert(0, Substitution([name for name in names if name in known]))
