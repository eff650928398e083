"""Allocates at every level of a stack 180 calls deep: no two successive allocations share their innermost frame."""

import sys


def down(n):
    block = bytearray(700)
    if n:
        down(n - 1)
    return len(block)


sys.setrecursionlimit(5000)
for _ in range(20_000):
    down(180)
