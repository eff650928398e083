"""Exercises job accounts, heap walks and restarted recordings, for runs under valgrind.

The first argument may name a library with a bundled allocator.
"""

import array
import ctypes
import os
import sys
import tempfile
import threading
import weakref

import heaptide
from heaptide.leaks import JobTracer


class Slotted:
    """An object with its fields in slots."""

    __slots__ = ("__weakref__", "first", "second")


class Plain:
    """An object with a `__dict__`, which `objects` replaces."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


def objects():
    slotted = Slotted()
    slotted.first = [slotted]
    plain = Plain(name="x" * 300, self_made={i: str(i) for i in range(50)})
    plain.__dict__ = dict(plain.__dict__)
    walker = (item for item in [slotted, plain])
    next(walker)
    return [
        slotted,
        plain,
        walker,
        weakref.ref(slotted),
        array.array("d", range(100)),
        memoryview(bytearray(900)),
        1 << 900,
    ]


def job(kept):
    kept.append(objects())
    bytearray(100_000)
    threads = [threading.Thread(target=objects) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def grow(library):
    library.arena_grow.restype = ctypes.c_void_p
    library.arena_grow.argtypes = [ctypes.c_size_t]
    library.arena_shrink.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.arena_grow(3_002_368)
    library.arena_shrink(library.arena_grow(5_001_216), 5_001_216)


kept = []
with tempfile.TemporaryDirectory() as folder:
    with JobTracer() as tracer:
        for name in ("first", "second"):
            with tracer.job(name) as traced:
                job(kept)
            assert traced.retained_bytes > 0 and traced.sites and traced.grown_types
        # Records the next job, unless a recording is already running.
        if not heaptide.active():
            with heaptide.Tracker(os.path.join(folder, "own.tide")):
                job(kept)
    assert heaptide.heap_census().objects > 1000
    heaptide.heap_snapshot(os.path.join(folder, "all.heap"), values=True)
    if len(sys.argv) > 1:
        grow(ctypes.CDLL(sys.argv[1]))
    if not heaptide.active():
        ended = threading.Event()

        def allocate():
            while not ended.is_set():
                bytearray(2000)

        threads = [threading.Thread(target=allocate) for _ in range(2)]
        for thread in threads:
            thread.start()
        for mode in ({}, {"sample": 4096}, {"objects": True}, {"native": True}):
            for _ in range(2):
                with heaptide.Tracker(os.path.join(folder, "again.tide"), overwrite=True, **mode):
                    job(kept)
        ended.set()
        for thread in threads:
            thread.join()
