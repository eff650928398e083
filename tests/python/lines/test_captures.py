"""Tests that `heaptide lines --from CAPTURE` finds a function by name, however its lines were compiled."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from support.commands import heaptide


def test_function_that_contains_a_comprehension_is_found(heaptide_run: Callable[..., Any]) -> None:
    done = heaptide_run(
        """
        def load():
            return [bytearray(1 << 20) for _ in range(8)]

        kept = load()
        """
    )
    answer = json.loads(heaptide("lines", "--json", "--function", "load", "--from", done.capture).stdout)
    (function,) = answer["functions"]
    (row,) = [line for line in function["lines"] if "bytearray" in line["text"]]
    # Counted once, although before Python 3.12 the comprehension is a separate function on the same line. The line may also
    # be the one that needs a new arena of 1 MiB.
    assert 8 << 20 <= row["alive_bytes"] < 12 << 20
