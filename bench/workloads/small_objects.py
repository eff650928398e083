"""Allocates and frees small dicts, tuples and strings by pymalloc; malloc allocates only arenas and lists."""


def build(n):
    return [{"id": i, "name": "row %d" % i, "pair": (i, str(i))} for i in range(n)]


keep = []
for _ in range(36):
    rows = build(50_000)
    keep.append(rows[:500])
