"""Calls a recursive function about 600,000 times and hardly allocates, so there is hardly anything to record."""


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


fib(27)
