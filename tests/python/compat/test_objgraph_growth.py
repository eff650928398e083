"""Tests that `growth` has the same counts as objgraph after a collection, and rarely runs a collection itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Objects in states in which a collection changes the counts: garbage, and tuples and dicts that it stops tracking.
PROGRAM = """
import collections, contextvars, functools, gc, itertools, json, sys, threading, weakref
from heaptide.compat import objgraph

class Cycle:
    def __init__(self):
        self.own = self

class Plain:
    pass

class Revived:
    def __init__(self):
        self.own = self
    def __del__(self):
        kept.append(self)

class Slotted:
    __slots__ = ("own", "other")

# With these objects, a scenario that creates few objects adds less than a tenth.
many = [Plain() for _ in range(30_000)]
kept = []
collections_run = []

def leak():
    kept.extend(Plain() for _ in range(500))

def garbage():
    for _ in range(300):
        Cycle()
    kept.extend(Cycle() for _ in range(40))

def much_garbage():
    for _ in range(50_000):
        Cycle()

def finalizers():
    for _ in range(20):
        Revived()

def tuples():
    kept.extend((number, "text") for number in range(600))
    kept.extend({number: (number, 1.5)} for number in range(600))
    kept.extend((Plain(), number) for number in range(600))

def nested_tuples():
    kept.extend(((number, "text"), (number, (number,))) for number in range(600))

def held_by_c():
    @functools.lru_cache(None)
    def cached(number):
        return Plain()
    for number in range(100):
        cached(number)
    context = contextvars.copy_context()
    context.run(contextvars.ContextVar("name").set, [Plain() for _ in range(100)])
    endless = itertools.cycle([Plain() for _ in range(100)])
    next(endless)
    queue = collections.deque(Plain() for _ in range(100))
    def generate():
        held = [Plain() for _ in range(100)]
        yield held
    suspended = generate()
    next(suspended)
    slotted = Slotted()
    slotted.own, slotted.other = slotted, Plain()
    weak = weakref.WeakValueDictionary({number: each for number, each in enumerate(queue)})
    kept.extend([cached, context, endless, queue, suspended, slotted, weak, map(str, [Plain()]), lambda: slotted])

def in_a_thread():
    def work():
        held = [Plain() for _ in range(300)]
        ready.set()
        done.wait()
        return held
    ready, done = threading.Event(), threading.Event()
    kept.append(done)
    threading.Thread(target=work).start()
    ready.wait()

def in_a_local_variable():
    return [Plain() for _ in range(300)]

def note(phase, info):
    if phase == "start" and info["generation"] == 2:
        collections_run.append(1)

def main(name):
    gc.collect()
    gc.collect()
    gc.disable()
    objgraph.growth(limit=None)
    held = globals()[name]()
    gc.callbacks.append(note)
    by_heaptide = dict([(name, count) for name, count, _ in objgraph.growth(limit=None, peak_stats={})])
    gc.callbacks.remove(note)
    # A second collection would stop tracking further tuples.
    if not collections_run:
        gc.collect()
    by_objgraph = collections.Counter([type(each).__name__ for each in gc.get_objects()])
    for each in kept:
        if isinstance(each, threading.Event):
            each.set()
    names = {*by_heaptide, *by_objgraph}
    pairs = {name: (by_heaptide.get(name, 0), by_objgraph[name]) for name in names}
    different = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    print(json.dumps([different, len(collections_run)]))

main(sys.argv[1])
"""

# Scenario → whether `growth` must run a collection.
SCENARIOS = {
    "leak": False,
    "garbage": False,
    "much_garbage": True,
    "finalizers": True,
    "tuples": False,
    "nested_tuples": True,
    "held_by_c": False,
    "in_a_thread": False,
    "in_a_local_variable": False,
}
# Containers of the test itself, which exist during only one of the two counts.
ALLOWED = {"list": 2, "dict": 2, "tuple": 2, "cell": 2, "method": 1, "Counter": 1}


@pytest.mark.parametrize("name", SCENARIOS)
def test_growth_counts_the_objects_that_remain_after_a_collection(tmp_path: Path, name: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    different, n_collections = json.loads(done.stdout)
    assert {
        name: counts for name, counts in different.items() if abs(counts[0] - counts[1]) > ALLOWED.get(name, 0)
    } == {}
    assert n_collections == int(SCENARIOS[name])
