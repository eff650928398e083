"""Calls a recursive function some 600,000 times and allocates nothing: the cost of profiling with nothing to record."""


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


fib(27)
