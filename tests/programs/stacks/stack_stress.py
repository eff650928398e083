"""Runs generators, coroutines, exceptions, new code and the garbage collector in several threads at once.

Prints two numbers that depend only on the computation, so that they are the same with and without a profiler. Takes the
number of rounds of each thread.
"""

import asyncio
import functools
import gc
import re
import sys
import threading
import weakref

N_THREADS = 4


def numbers(depth, limit):
    if depth:
        yield from numbers(depth - 1, limit)
        return
    for number in range(limit):
        yield number, bytes(500 + number)


def failing(depth):
    try:
        if depth == 0:
            raise ValueError(bytes(700))
        return failing(depth - 1)
    except ValueError as error:
        if depth % 3 == 0:
            raise ValueError(*error.args) from error
        raise
    finally:
        bytearray(depth + 600)


async def worker(delays):
    total = 0
    for delay in range(delays):
        await asyncio.sleep(0)
        total += len(bytes(800 + delay))
    return total


async def stream(limit):
    for number in range(limit):
        yield number
        await asyncio.sleep(0)


async def consume():
    results = await asyncio.gather(*(worker(n) for n in range(5)))
    return sum(results) + sum([number async for number in stream(5)])


class Node:
    def __init__(self, size):
        self.payload = bytearray(size)
        self.itself = self

    def __del__(self):
        len([bytes(n) for n in (513, 1025)])


def fresh_function(thread, number):
    name = f"f_{thread}_{number % 50}"
    lines = (
        "\n" * (number % 40)
        + f"def {name}(n):\n    class Local:\n        data = bytes(n)\n    return len(Local.data)\n"
    )
    namespace = {}
    exec(compile(lines, f"<fresh {thread}>", "exec"), namespace)
    return namespace[name](number + 512)


def recurse(depth):
    return functools.reduce(lambda total, n: total + n, map(recurse, [depth - 1]), 1) if depth else len(bytes(900))


def run(thread, rounds):
    total = 0
    dead = []
    for number in range(rounds):
        total += sum(n + len(block) for n, block in numbers(number % 20, 10))
        try:
            failing(number % 30)
        except ValueError as error:
            total += len(error.args[0])
        total += fresh_function(thread, number)
        total += recurse(number % 10)
        total += len(re.sub("a", lambda match: match.group() * 300, "abcabc"))
        node = Node(600 + number % 100)
        weakref.finalize(node, bytes, 600)
        pending = numbers(3, 4)
        total += next(pending)[0]
        dead.append(pending)
        if number % 16 == 0:
            dead.clear()
            total += asyncio.run(consume())
        if number % 32 == 0:
            gc.collect()
            total += len(sorted(range(50), key=lambda n: len(bytes(n + 500))))
    return total


def main(rounds):
    results = [0] * N_THREADS

    def entry(index):
        results[index] = run(index, rounds)

    gc.set_threshold(50, 5, 5)
    sys.setswitchinterval(0.00005)
    threads = [threading.Thread(target=entry, args=(index,)) for index in range(N_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sum(results), sum(results[:1]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
