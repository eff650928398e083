"""Tests that functions found by `dlsym`, as `ctypes` does, are recorded like those a program is linked with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import python

Run = Callable[..., Any]

# Resolves libc's functions through ctypes at run time.
LIBC = """
import ctypes, json, sys

def resolve(library=None):
    libc = ctypes.CDLL(library)
    def function(name, *types, result=ctypes.c_void_p):
        found = libc[name]
        found.argtypes, found.restype = types, result
        return found
    class Functions: pass
    f, size, pointer = Functions(), ctypes.c_size_t, ctypes.c_void_p
    f.malloc, f.valloc, f.pvalloc = (function(name, size) for name in ("malloc", "valloc", "pvalloc"))
    f.calloc, f.memalign, f.aligned_alloc = (function(name, size, size) for name in ("calloc", "memalign", "aligned_alloc"))
    f.realloc, f.reallocarray = function("realloc", pointer, size), function("reallocarray", pointer, size, size)
    f.posix_memalign = function("posix_memalign", pointer, size, size, result=ctypes.c_int)
    f.free = function("free", pointer, result=None)
    f.mmap = function("mmap", pointer, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    f.munmap = function("munmap", pointer, size, result=ctypes.c_int)
    return f
"""

EVERYTHING = (
    LIBC
    + """
f = resolve()
block = ctypes.c_void_p()
assert f.posix_memalign(ctypes.byref(block), 64, 707_041) == 0
made = {
    "malloc": (707_003, f.malloc(707_003)),
    "valloc": (707_011, f.valloc(707_011)),
    "pvalloc": (707_017, f.pvalloc(707_017)),
    "calloc": (707_019, f.calloc(3, 235_673)),
    "memalign": (707_027, f.memalign(64, 707_027)),
    "aligned_alloc": (707_072, f.aligned_alloc(64, 707_072)),
    "realloc": (707_033, f.realloc(f.malloc(17), 707_033)),
    "reallocarray": (707_039, f.reallocarray(f.malloc(19), 1, 707_039)),
    "realloc of nothing": (707_053, f.realloc(None, 707_053)),
    "posix_memalign": (707_041, block.value),
    "mmap": (708_608, f.mmap(None, 708_608, 3, 0x22, -1, 0)),
}
for name, (size, address) in made.items():
    if name == "mmap":
        assert f.munmap(address, size) == 0
    elif name != "malloc":
        f.free(address)
print(json.dumps(made))
"""
)


def test_every_function_resolved_by_ctypes_is_recorded_with_size_and_release(heaptide_run: Run, parse: Run) -> None:
    done = heaptide_run(EVERYTHING)
    lines = parse(done.capture)
    for name, (size, address) in json.loads(done.stdout).items():
        made_by = f" address={address:#x} size={size} allocator={name.split()[0]}"
        made = [i for i, line in enumerate(lines) if made_by in line]
        assert len(made) == 1, name
        ends = [line for line in lines[made[0] + 1 :] if line.startswith("FREE") and f" address={address:#x}" in line]
        assert bool(ends) == (name != "malloc"), name


def test_functions_resolved_in_a_named_library_are_recorded(heaptide_run: Run, parse: Run) -> None:
    done = heaptide_run(LIBC + "print(resolve('libc.so.6').malloc(707_003))")
    address = int(done.stdout)
    assert any(f" address={address:#x} size=707003 allocator=malloc" in line for line in parse(done.capture))


@pytest.mark.parametrize("later", ["", "objects=True", "sample=1"])
def test_function_resolved_in_one_recording_works_after_it_and_in_the_next(
    parse: Run, tmp_path: Path, later: str
) -> None:
    program = (
        LIBC
        + f"""
import heaptide
with heaptide.Tracker("first.tide"):
    f = resolve()
    f.free(f.malloc(707_003))
f.free(f.malloc(707_011))
with heaptide.Tracker("second.tide", {later}):
    f.free(f.malloc(707_017))
    kept = f.malloc(707_027)
f.free(kept)
"""
    )
    (tmp_path / "job.py").write_text(program)
    python("job.py", cwd=tmp_path)
    sizes = [707_003, 707_011, 707_017, 707_027]

    def seen(capture: str) -> list[int]:
        lines = [line for line in parse(tmp_path / capture) if line.startswith("ALLOCATION")]
        return [size for size in sizes if sum(f" size={size} " in line for line in lines) == 1]

    assert seen("first.tide") == [707_003]
    assert seen("second.tide") == [707_017, 707_027]


def test_rtld_next_does_not_return_the_hook(heaptide_run: Run) -> None:
    # RTLD_DEFAULT is 0 and RTLD_NEXT is -1.
    done = heaptide_run(
        """
import ctypes
dlsym = ctypes.CDLL(None).dlsym
dlsym.restype, dlsym.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t, ctypes.c_char_p]
malloc = ctypes.CDLL(None).malloc
hook = ctypes.cast(malloc, ctypes.c_void_p).value
print(dlsym(0, b"malloc") == hook, dlsym(-1, b"malloc") in (hook, None))
print(dlsym(0, b"no such function"), dlsym(0, b"strlen") is not None)
"""
    )
    assert done.stdout == "True False\nNone True\n"
