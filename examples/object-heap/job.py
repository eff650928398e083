"""A job that keeps what it has loaded: `python job.py FILE` leaves a heap snapshot in FILE.

Then `heaptide heap suspects FILE` names the cache, and `heaptide heap explore FILE` makes a page of it.
"""

import functools
import sys

import heaptide


class Order:
    """What the job loads."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lines = [f"line {number}.{line}" for line in range(5)]


cache: dict[int, Order] = {}


@functools.cache
def price_list(day: int) -> list[float]:
    """A list that is asked for rarely and kept for ever."""
    return [day + cent / 100 for cent in range(200)]


def load(number: int) -> Order:
    """Load an order, or find it again."""
    if number not in cache:
        cache[number] = Order(number)
    return cache[number]


def main() -> None:
    """Load orders, and write down what is left."""
    for number in range(5000):
        load(number)
        price_list(number % 50)
    print(heaptide.heap_snapshot(sys.argv[1], overwrite=True))


if __name__ == "__main__":
    main()
