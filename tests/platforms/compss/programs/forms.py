"""Other forms of the decorator: above or below `@task`, with a one-line report, bare, and on every type of function."""

import asyncio
import threading

from compss_task import task
from pycompss.functions.profile import profile


@profile()
@task(returns=1)
def above(n):
    data = [1] * n
    return len(data)


@task(returns=1)
@profile(full_report=False)
def short(n):
    data = [1] * n
    return len(data)


@profile
def bare(n):
    data = [1] * n
    return len(data)


@profile()
def raising(n):
    data = [1] * n
    raise KeyError(len(data))


@profile()
def nested(n):
    data = [1] * n
    return bare(len(data))


@profile()
def recursive(n):
    return n if n == 0 else recursive(n - 1)


@profile()
def generating(n):
    for number in range(3):
        yield number


@profile()
async def waiting(n):
    await asyncio.sleep(0)
    return n


assert above(10**6) == short(10**6) == bare(10**6) == 10**6
try:
    raising(10**6)
except KeyError as error:
    assert error.args == (10**6,)
assert nested(10**6) == 10**6
assert recursive(3) == 0
assert list(generating(1)) == [0, 1, 2]
assert asyncio.run(waiting(5)) == 5
thread = threading.Thread(target=bare, args=(10**6,))
thread.start()
thread.join()
