"""A job in three steps, with workers, to show a timeline.

    heaptide record examples/timeline/job.py
    heaptide plot

The steps appear as brackets in the timeline. Without a recording, ``timestamp`` has no effect.
"""

import multiprocessing
import time

import heaptide

MIB = 1 << 20


def load():
    """Read a data set, piece by piece."""
    pieces = []
    for _ in range(20):
        pieces.append(bytearray(4 * MIB))
        time.sleep(0.05)
    return pieces


def work(size):
    """Do a worker's part: its memory grows and is freed at the end."""
    parts = []
    for _ in range(size):
        parts.append(bytearray(2 * MIB))
        time.sleep(0.06)


def compute():
    """Share the work among three processes."""
    processes = multiprocessing.get_context("spawn")
    workers = [processes.Process(target=work, args=(size,)) for size in (12, 18, 24)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def main():
    """Load, compute, summarize."""
    with heaptide.profile.timestamp("job"):
        with heaptide.profile.timestamp("load"):
            pieces = load()
        with heaptide.profile.timestamp("compute"):
            compute()
        del pieces[5:]
        with heaptide.profile.timestamp("summarize"):
            time.sleep(0.5)


if __name__ == "__main__":
    main()
