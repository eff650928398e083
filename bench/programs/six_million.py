"""Causes six million events on a thousand call stacks, with a hundred thousand live blocks, to measure reports."""

N_SITES = 50
N_DEPTHS = 20
N_BLOCKS = 3_000_000
N_LIVE = 100_003

names = {}
source = "\n".join(f"def site{n}(size): return bytearray(size)" for n in range(N_SITES))
exec(compile(source, "sites.py", "exec"), names)
sites = [names[f"site{n}"] for n in range(N_SITES)]


def reach(site, depth, size):
    return reach(site, depth - 1, size) if depth else site(size)


ring = [None] * N_LIVE
for i in range(N_BLOCKS):
    ring[i % N_LIVE] = reach(sites[i % N_SITES], i // N_SITES % N_DEPTHS, 520 + i * 7919 % 4001)
