"""Allocates two million blocks above pymalloc's limit and frees nearly every one immediately: four million events."""

import random

rng = random.Random(7)
keep = []


def grab(n):
    return bytearray(n)


for i in range(2_000_000):
    block = grab(rng.choice((600, 2_000, 9_000, 40_000)))
    if i % 500 == 0:
        keep.append(block)
