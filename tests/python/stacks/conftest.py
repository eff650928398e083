"""Fixture of the tests of stacks: record a program and read its call stacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.call_stacks import Recording, recorder


@pytest.fixture
def record(
    heaptide_run: Callable[..., Any], parse: Callable[[Path], list[str]], tmp_path: Path
) -> Callable[..., Recording]:
    """Record a program, given as text or path, and read its capture."""
    return recorder(heaptide_run, parse, tmp_path)
