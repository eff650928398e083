"""Allocates the same blocks on the same lines in every run: kept, temporary, grown, mapped, and in a second thread.

Python's own allocations differ between profilers; those of the functions below do not. All of these blocks are too
large for pymalloc, so that every profiler records a call of malloc or mmap.
"""

import ctypes
import mmap
import threading

KIB = 1 << 10
kept = []


def make_room():
    """Leave free memory in Python's pools, so that no arena is mapped on a line that is compared."""
    objects = list(map(float, range(200_000)))
    return objects[::2]


def keep(size):
    kept.append(bytearray(size))


def allocate_and_free(size):
    return len(bytearray(size))


def grow(size):
    block = bytearray(size)
    for _ in range(3):
        block += bytes(size)
    return len(block)


def deep(depth, size):
    return deep(depth - 1, size) if depth else bytearray(size)


class Table:
    def __init__(self):
        self.rows = [bytearray(3 * KIB) for _ in range(40)]

    def drop_half(self):
        del self.rows[::2]


def map_and_release_half():
    whole = libc.mmap(None, 64 * KIB, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    libc.munmap(whole, 32 * KIB)
    return whole


def work():
    for size in range(10 * KIB, 20 * KIB, KIB):
        keep(size)
        allocate_and_free(2 * size)


libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def map_and_close():
    mmap.mmap(-1, 100 * KIB).close()


def main():
    work()
    table = Table()
    table.drop_half()
    kept.append(deep(30, 5 * KIB))
    grow(7 * KIB)
    map_and_release_half()
    worker = threading.Thread(target=work, name="worker")
    worker.start()
    worker.join()
    allocate_and_free(4000 * KIB)
    map_and_close()
    del kept[::3]
    return table


room = make_room()
result = main()
