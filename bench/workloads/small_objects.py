"""Churn of dicts, tuples and strings, all small enough for pymalloc: malloc sees only the arenas and the lists."""


def build(n):
    return [{"id": i, "name": "row %d" % i, "pair": (i, str(i))} for i in range(n)]


keep = []
for _ in range(36):
    rows = build(50_000)
    keep.append(rows[:500])
