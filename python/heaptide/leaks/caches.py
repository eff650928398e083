"""Empties Python's own caches, so that they do not count as leaks of a job.

It empties only caches of the interpreter and of loaded standard-library modules, and only those that refill
automatically. It never empties the program's own caches, because one of them may be the leak.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from typing import Any

# Module, and the attributes that lead to the function which empties its cache.
_CLEARING = tuple(
    (module, tuple(path.split(".")))
    for module, path in (
        ("re", "purge"),
        ("linecache", "clearcache"),
        ("urllib.parse", "clear_cache"),
        ("fnmatch", "_compile_pattern.cache_clear"),
        ("_struct", "_clearcache"),
        ("_strptime", "_regex_cache.clear"),
        ("filecmp", "clear_cache"),
        ("copyreg", "clear_extension_cache"),
        ("tokenize", "_compile.cache_clear"),
        ("ipaddress", "_split_scope_id.cache_clear"),
    )
)
_TYPING_CACHES = "_cleanups"


def clear_caches() -> None:
    """Empty Python's own caches, then collect garbage, which also empties the interpreter's free lists."""
    for module_name, path in _CLEARING:
        target: Any = sys.modules.get(module_name)
        for name in path:
            target = getattr(target, name, None)
        if callable(target):
            with contextlib.suppress(Exception):
                target()
    for clear in getattr(sys.modules.get("typing"), _TYPING_CACHES, ()):
        with contextlib.suppress(Exception):
            clear()
    clear_internal = getattr(sys, "_clear_internal_caches", None) or getattr(sys, "_clear_type_cache", None)
    if clear_internal is not None:
        clear_internal()
    gc.collect()
