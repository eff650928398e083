"""Allocates and frees small dicts, tuples and strings in arenas of pymalloc; only the lists need malloc."""


def build(n):
    return [{"id": i, "name": "row %d" % i, "pair": (i, str(i))} for i in range(n)]


keep = []
for _ in range(36):
    rows = build(50_000)
    keep.append(rows[:500])
