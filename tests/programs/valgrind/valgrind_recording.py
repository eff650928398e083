"""Exercises many paths of a recording in a short time, for runs under valgrind."""

import ctypes
import gc
import threading

libc = ctypes.CDLL(None)
libc.malloc.restype = libc.realloc.restype = libc.calloc.restype = ctypes.c_void_p
libc.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


def deep(n):
    block = bytearray(700)
    return deep(n - 1) if n else len(block)


def rows(n):
    for i in range(n):
        yield {"id": i, "text": str(i) * 200}


def work():
    kept = []
    for row in rows(200):
        kept.append(row)
        if len(kept) > 50:
            del kept[:40]
    block = libc.malloc(1000)
    block = libc.realloc(block, 100_000)
    libc.free(block)
    libc.free(libc.calloc(10, 100))
    deep(100)


for i in range(20):
    namespace = {}
    exec(f"def made_{i}():\n    return bytearray({1000 + i})", namespace)
    namespace[f"made_{i}"]()
    del namespace
gc.collect()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
work()
