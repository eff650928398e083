"""Calls Python code in many ways, in a random but reproducible order, and prints the true stacks.

For each of its allocations `bytes(n)` the program reads the frames from the interpreter on the same line. It prints
them as JSON: n, then name, file and line of each frame, outermost first. Takes a seed, a number of allocations, and
the word `greenlet` if it may also call code in greenlets.
"""

import contextlib
import functools
import gc
import json
import random
import re
import sys
import threading

SEED, LIMIT = int(sys.argv[1]), int(sys.argv[2])
MAX_DEPTH = 25
truth = {}
forms = []
lock = threading.Lock()


def form(function):
    forms.append(function)
    return function


def witness():
    with lock:
        n = 1_000_000 + len(truth)
        truth[n] = None
    bytes(n), note(n, sys._getframe())


def note(n, frame):
    frames = []
    while frame is not None:
        frames.append((frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    truth[n] = frames[::-1]


def walk(state, depth):
    if len(truth) >= LIMIT:
        return 0
    witness()
    if depth < MAX_DEPTH:
        for _ in range(state.rng.choice((1, 1, 2, 3))):
            state.rng.choice(forms)(state, depth + 1)
    witness()
    return depth


class State:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.suspended = []


@form
def plain(state, depth):
    walk(state, depth)
    return walk(
        state,
        depth,
    )


@form
def recursive(state, depth):
    def dive(n):
        return dive(n - 1) if n else walk(state, depth)

    dive(state.rng.randrange(30))


def counting(state, depth):
    for _ in range(4):
        walk(state, depth)
        yield
    try:
        yield walk(state, depth)
    finally:
        witness()


@form
def generator(state, depth):
    one = counting(state, depth)
    next(one)
    state.suspended.append(one)
    if len(state.suspended) > 8:
        state.suspended.pop(0).close()


@form
def resume_suspended(state, depth):
    for one in state.rng.sample(state.suspended, min(2, len(state.suspended))):
        with contextlib.suppress(StopIteration, ValueError):
            next(one)


@form
def delegated(state, depth):
    def outer():
        witness()
        yield from counting(state, depth)

    for _ in outer():
        if state.rng.random() < 0.5:
            break


@form
def coroutine(state, depth):
    class Pause:
        def __await__(self):
            yield walk(state, depth)

    async def inner():
        await Pause()
        witness()

    async def outer():
        await inner()
        async for _ in stream():
            witness()

    async def stream():
        yield walk(state, depth)
        await Pause()

    one = outer()
    try:
        while True:
            one.send(None)
            witness()
    except StopIteration:
        pass


@form
def from_c(state, depth):
    sorted([1, 2], key=lambda _: walk(state, depth))
    list(map(lambda _: walk(state, depth), "a"))
    functools.reduce(lambda total, _: total + walk(state, depth), [1], 0)
    re.sub("x", lambda _: str(walk(state, depth)), "x")


@form
def fresh_code(state, depth):
    name = f"fresh_{state.rng.randrange(1000)}"
    text = "\n" * state.rng.randrange(300) + f"def {name}():\n  witness()\n  return walk(state, depth)\n{name}()"
    exec(compile(text, f"<{name}>", "exec"), {"witness": witness, "walk": walk, "state": state, "depth": depth})
    eval("walk(state, depth)")


@form
def class_body(state, depth):
    class Body:
        value = walk(state, depth)

        def __init__(self):
            walk(state, depth)

        @property
        def prop(self):
            return walk(state, depth)

        def __getattr__(self, name):
            return walk(state, depth)

        def __add__(self, other):
            return walk(state, depth)

        def __del__(self):
            witness()

    body = Body()
    body.prop
    body.missing
    body + body
    body.itself = body
    del body
    if state.rng.random() < 0.1:
        gc.collect()


@form
def exceptions(state, depth):
    try:
        try:
            walk(state, depth)
            raise KeyError(depth)
        except KeyError:
            walk(state, depth)
            raise
        finally:
            witness()
    except KeyError as error:
        error.__traceback__ = None
        witness()


@contextlib.contextmanager
def managed():
    witness()
    try:
        yield
    finally:
        witness()


@form
def contexts(state, depth):
    with managed(), managed():
        walk(state, depth)


@form
def comprehensions(state, depth):
    [walk(state, depth) for _ in "a"]
    {walk(state, depth): witness() for _ in "a"}
    sum(walk(state, depth) for _ in "a")


@form
def thread(state, depth):
    if depth < 6:
        helper = State(state.rng.random())
        other = threading.Thread(target=walk, args=(helper, depth))
        other.start()
        walk(state, depth)
        other.join()


@form
def traced(state, depth):
    # Trace functions are Python code that runs between two lines.
    if sys.gettrace() is None:
        sys.settrace(lambda *_: None)
        walk(state, depth)
        sys.settrace(None)


if "greenlet" in sys.argv[3:]:
    import greenlet

    @form
    def greenlets(state, depth):
        def other():
            walk(state, depth)
            parent.switch()
            witness()

        parent = greenlet.getcurrent()
        one = greenlet.greenlet(other)
        one.switch()
        witness()
        one.switch()


gc.disable()
sys.setrecursionlimit(20_000)
start = State(SEED)
while len(truth) < LIMIT:
    walk(start, 0)
json.dump(truth, sys.stdout)
