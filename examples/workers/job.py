"""A job with four worker processes. Six calls keep the data that they read; one of them frees it every ten steps."""

import multiprocessing
import time


def read(size):
    return bytearray(size)


def remember(kept, size):
    kept.append(read(size))


def compute(n):
    scratch = [bytearray(50_000) for _ in range(20)]
    time.sleep(0.01)
    return len(scratch) * n


def work(n):
    kept = []
    for step in range(40):
        remember(kept, 100_000 * (n + 1))
        compute(n)
        if n == 1 and step % 10 == 9:
            kept.clear()
    return len(kept)


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(4) as pool:
        print(sum(pool.map(work, range(6), chunksize=1)))
