"""Tests that the heap walk finds every object, and neither creates nor frees objects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.json_program import run_json


def test_snapshot_neither_creates_nor_frees_objects(tmp_path: Path) -> None:
    changes = run_json(
        tmp_path,
        """
        import gc, json, sys
        from heaptide.inspection.snapshots import heap_snapshot

        class Plain:
            def __init__(self):
                self.left, self.right = [1], {"a": 2.5}

        kept = [Plain() for _ in range(2000)]
        def generator():
            local = object()
            yield local
        running = generator()
        next(running)
        def take():
            heap_snapshot("some.heap", overwrite=True)

        def nothing():
            pass

        def change(function):
            objects, blocks = len(gc.get_objects()), sys.getallocatedblocks()
            function()
            return len(gc.get_objects()) - objects, sys.getallocatedblocks() - blocks

        gc.collect()
        gc.disable()
        for _ in range(3):  # the first calls create objects that are kept
            change(take), change(nothing)
        print(json.dumps([change(take), change(nothing)]))
        """,
    )
    (objects, blocks), (objects_without, blocks_without) = changes
    assert objects == objects_without
    assert abs(blocks - blocks_without) < 100, "2,000 dicts would be 2,000 blocks"


@pytest.mark.parametrize("inspection", ["heap_snapshot('some.heap', overwrite=True)", "heap_census()"])
def test_inspection_creates_no_dicts_and_no_frames(tmp_path: Path, inspection: str) -> None:
    dicts, frames, blocks = run_json(
        tmp_path,
        f"""
        import gc, json, sys
        from heaptide import heap_census, heap_snapshot

        class Plain:
            def __init__(self):
                self.left, self.right = [1], 2.5

        kept = [Plain() for _ in range(2000)]

        def counts():
            names = [type(one).__name__ for one in gc.get_objects()]
            return names.count("dict"), names.count("frame"), sys.getallocatedblocks()

        def inspect():
            {inspection}

        def below(depth):
            if depth:
                return below(depth - 1)
            inspect()  # the first call creates objects that are kept
            before = counts()
            inspect()
            return [after - before for before, after in zip(before, counts())]

        gc.collect()
        gc.disable()
        below(0)
        print(json.dumps(below(500)))
        """,
    )
    assert (dicts, frames) == (0, 0)
    assert blocks < 100, "500 frames would be 500 blocks"


def test_attributes_are_named_in_paths_without_creating_dicts(tmp_path: Path) -> None:
    found = run_json(
        tmp_path,
        """
        import gc, json, sys
        from heap_view import heap_now

        class Order:
            def __init__(self):
                self.price, self.lines = object(), [1, 2, 3]

        class Slim:
            __slots__ = ("first", "second")

        orders = [Order() for _ in range(500)]
        slim = Slim()
        slim.first, slim.second = object(), object()
        heap_now()
        before = sys.getallocatedblocks()
        view = heap_now()
        after = sys.getallocatedblocks()
        def path(object):
            return view.at([id(object)]).paths(1)
        print(json.dumps({
            "grown": after - before,
            "price": str(path(orders[7].price)),
            "second": str(path(slim.second)),
            "notes": view.notes,
        }))
        """,
    )
    assert found["grown"] < 100
    assert found["notes"] == []
    assert "price" in found["price"] and "orders" in found["price"]
    assert "second" in found["second"] and "slim" in found["second"]


def test_every_object_of_the_collector_is_found(tmp_path: Path) -> None:
    missing = run_json(
        tmp_path,
        """
        import gc, json
        import decimal, email.message, logging, xml.dom.minidom
        from heap_view import heap_now

        gc.collect()
        gc.disable()
        addresses = [id(object) for object in gc.get_objects()]
        view = heap_now()
        print(json.dumps(len(addresses) - len(view.at(addresses))))
        """,
    )
    assert missing <= 2, "the iterators that listed the addresses are gone when the walk begins"


def test_unreachable_objects_are_distinguished_from_objects_held_by_c_code(tmp_path: Path) -> None:
    found = run_json(
        tmp_path,
        """
        import ctypes, gc, json
        from heap_view import heap_now

        gc.collect()
        gc.disable()
        class Node: pass
        ring = [Node() for _ in range(50)]
        for one, next_one in zip(ring, ring[1:] + ring[:1]):
            one.next = next_one
        garbage = [id(node) for node in ring]
        del ring, one, next_one
        held = Node()
        held.load = [object()]
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))
        by_c, load = id(held), id(held.load)
        del held
        view = heap_now()
        unreachable = view.unreachable()
        print(json.dumps([
            len(view.at(garbage)), len(view.at(garbage) & unreachable),
            len(view.at([by_c, load])), len(view.at([by_c, load]) & unreachable),
        ]))
        """,
    )
    assert found == [50, 50, 2, 0]


def test_objects_that_the_collector_does_not_track_are_found(tmp_path: Path) -> None:
    found = run_json(
        tmp_path,
        """
        import json
        from heap_view import heap_now

        text = "".join(["only ", "here"])
        number = 10**40
        untracked = tuple([text, 2.5e7])
        only_strings = {"k" + str(n): str(n) * 3 for n in range(100)}
        wanted = [id(text), id(number), id(untracked), id(untracked[1]), id(only_strings)]
        wanted += [id(o) for pair in only_strings.items() for o in pair]
        print(json.dumps([len(set(wanted)), len(heap_now().at(wanted))]))
        """,
    )
    assert found[0] == found[1]


def test_walk_survives_unusual_types_and_runs_no_python_code(tmp_path: Path, extension: Callable[..., Path]) -> None:
    library = extension("heap/unusual_types")
    found = run_json(
        tmp_path,
        """
        import json, sys
        import unusual_types
        from heap_view import heap_now

        kept = unusual_types.make()
        class Lies(dict):
            def __sizeof__(self): raise SystemExit("a walk runs no Python code")
            def __getattribute__(self, name): raise SystemExit("a walk calls no __getattribute__")
        class Meta(type):
            def __getattribute__(self, name): raise SystemExit("a walk calls no __getattribute__ of a type")
        liar = Lies(a=1)
        class Odd(metaclass=Meta): pass
        odd = Odd()
        class Late:
            def __del__(self):
                found.append(len(heap_now().at([id(self)])))
        found = []
        Late()
        view = heap_now()
        print(json.dumps([len(view.at([id(one) for one in kept])), len(kept), len(view.at([id(liar), id(odd)])), found]))
        """,
        PYTHONPATH=str(library.parent),
    )
    assert found[0] == found[1]
    assert found[2:] == [2, [1]]
