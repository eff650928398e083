"""A job that caches everything it loads: `python job.py FILE` writes a heap snapshot to FILE.

Then `heaptide heap suspects FILE` names the cache, and `heaptide heap explore FILE` writes a page.
"""

import functools
import sys

import heaptide


class Order:
    """An order that the job loads."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lines = [f"line {number}.{line}" for line in range(5)]


cache: dict[int, Order] = {}


@functools.cache
def price_list(day: int) -> list[float]:
    """Return a list that is rarely used and never freed."""
    return [day + cent / 100 for cent in range(200)]


def load(number: int) -> Order:
    """Load an order, or return the cached one."""
    if number not in cache:
        cache[number] = Order(number)
    return cache[number]


def main() -> None:
    """Load orders and take a snapshot."""
    for number in range(5000):
        load(number)
        price_list(number % 50)
    print(heaptide.heap_snapshot(sys.argv[1], overwrite=True))


if __name__ == "__main__":
    main()
