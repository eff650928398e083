"""Allocates N blocks, by default ten million, and keeps the newest 1,021, so the number of events is known."""

import sys

N_BLOCKS = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000

ring = [None] * 1021


def grab(n):
    return bytearray(n)


for i in range(N_BLOCKS):
    ring[i % 1021] = grab(520 + i * 7919 % 4001)
