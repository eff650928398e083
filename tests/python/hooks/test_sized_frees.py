"""Tests that the frees of C23 are recorded once each, and that a process without them does not find them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import heaptide
from support.hooked_recording import event_of

PROGRAM = """
import ctypes, json, sys

library = ctypes.CDLL(sys.argv[1])
process = ctypes.CDLL(None)
for function in (library.allocate_and_free_sized, library.allocate_and_free_aligned_sized, process.malloc):
    function.restype = ctypes.c_void_p
process.free_sized.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
size = ctypes.c_size_t

sized = library.allocate_and_free_sized(size(100_003))
aligned = library.allocate_and_free_aligned_sized(size(64), size(100_032))
resolved = process.malloc(size(100_019))
process.free_sized(resolved, 100_019)
library.free_nothing()
print(json.dumps({"blocks": [[sized, 100_003], [aligned, 100_032], [resolved, 100_019]], "calls": process.n_sized_frees()}))
"""


@pytest.mark.parametrize("options", [(), ("--objects",), ("--sample=1",)])
def test_sized_frees_are_recorded_once_and_free_their_blocks(
    extension: Callable[..., Path], tmp_path: Path, options: tuple[str, ...]
) -> None:
    caller, capture = extension("hooks/calls_sized_frees"), tmp_path / "capture.tide"
    environment = {**os.environ, "LD_PRELOAD": str(extension("hooks/sized_frees"))}
    (tmp_path / "program.py").write_text(PROGRAM)
    done = heaptide(
        "run", "-q", *options, "-o", capture, tmp_path / "program.py", caller, cwd=tmp_path, env=environment
    )
    answers = json.loads(done.stdout)
    lines = heaptide("parse", capture).stdout.splitlines()
    events = [event_of(line) for line in lines if line.startswith(("ALLOCATION ", "FREE"))]
    assert answers["calls"] == 5
    for address, size in answers["blocks"]:
        allocations = [at for at, event in enumerate(events) if (event.address, event.size) == (address, size)]
        assert len(allocations) == 1
        later = [event.type for event in events[allocations[0] + 1 :] if event.address == address]
        assert later[0] == "FREE"
        assert later[1:2] != ["FREE"]


def test_process_without_sized_frees_finds_none_while_recorded(tmp_path: Path) -> None:
    program = "import ctypes; print(hasattr(ctypes.CDLL(None), 'free_sized'))"
    (tmp_path / "program.py").write_text(program)
    plain = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert heaptide("run", "-q", "-o", tmp_path / "capture.tide", tmp_path / "program.py").stdout == plain
