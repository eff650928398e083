"""Waits for a condition by polling, with a limit that only a failure reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

# Seconds to wait for a condition: far more than the slowest machine needs.
NEVER = 300


def wait_until(poll: Callable[[], Result], what: str) -> Result:
    """Call `poll` until its result is true, and return the result; `what` names it in the failure message."""
    limit = time.monotonic() + NEVER
    while not (result := poll()):
        assert time.monotonic() < limit, f"{what} did not happen within {NEVER} seconds"
        time.sleep(0.01)
    return result
