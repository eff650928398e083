"""Waiting for something that must come: looked for again and again, with a bound that only a failure reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

# Seconds: far beyond what the slowest machine needs for anything that a test waits for.
NEVER = 300


def wait_until(look: Callable[[], Found], what: str) -> Found:
    """Look until there is something to see, and return it; `what` says what never came."""
    limit = time.monotonic() + NEVER
    while not (found := look()):
        assert time.monotonic() < limit, f"{what} did not come within {NEVER} seconds"
        time.sleep(0.01)
    return found
