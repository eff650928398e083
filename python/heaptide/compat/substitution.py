"""``HEAPTIDE_COMPAT=memray``: a program that imports another profiler gets our front end of the same name.

Only names that were asked for are replaced, whether or not the other profiler is installed; it is what the user said.
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
    """Finds our front ends under the names of those they stand for."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where `name` is, if it is one of ours."""
        if path is not None or name not in self.names:
            return None
        package = os.path.join(FOLDER, name, "__init__.py")
        if os.path.exists(package):
            return importlib.util.spec_from_file_location(
                name, package, submodule_search_locations=[os.path.dirname(package)]
            )
        return importlib.util.spec_from_file_location(name, os.path.join(FOLDER, f"{name}.py"))


def substitute(names: list[str]) -> None:
    """From now on imports of these names find our front ends. A name that has none is told and left alone."""
    known = {name.partition(".")[0] for name in os.listdir(FOLDER)} - {"__init__", "__pycache__", "substitution"}
    for name in names:
        if name not in known:
            say_once(f"there is no front end for {name!r}; there are {', '.join(sorted(known))}")
    sys.meta_path.insert(0, Substitution([name for name in names if name in known]))
