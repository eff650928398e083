"""Keeps a million blocks alive at once, to measure the memory of a report."""

keep = [bytearray(600) for _ in range(1_000_000)]
