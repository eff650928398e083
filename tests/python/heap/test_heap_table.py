"""Tests that the table of ``hp.heap()`` leaves out garbage, and equals the table of the assembled objects."""

from __future__ import annotations

from pathlib import Path

from support.json_program import run_json

HEAD = """
import gc, json, weakref
import heaptide
from heaptide.inspection import heapy

class Order:
    def __init__(self, number):
        self.number = number

class WithDict(Order):
    pass

class Slotted:
    __slots__ = ("first", "second")

class Finalized(Order):
    def __del__(self):
        FINALIZED.append(self.number)

class Both:
    pass

FINALIZED = []
kept = [Order(number) for number in range(20)]
for number in range(10):
    one = WithDict(number)
    one.__dict__["again"] = [number]
    kept.append(one)
slotted = Slotted()
slotted.first = kept
# Two objects with one dict.
one, other = Both(), Both()
other.__dict__ = one.__dict__
shared = [one, other]

def make_garbage(cls, n=7):
    for number in range(n):
        cycle = cls(number)
        cycle.own = cycle

def counts(found):
    return {name: count for count, _, name in found.partition.rows()}

gc.collect()
gc.disable()
"""


def test_table_is_equal_to_the_one_of_the_assembled_objects(tmp_path: Path) -> None:
    quick, slow, members, after = run_json(
        tmp_path,
        HEAD,
        """
        make_garbage(Order)
        view = heapy._view(heapy._TOKEN)
        left_out = ["str", "__main__.Slotted"]
        found = view.reachable_without(left_out)
        table = found.partition("kind")
        quick = [len(found), found.bytes, table.rows()]
        members = [len(table.members(row)) for row in range(len(table))]
        objects = view.reachable() - view.of_kinds(left_out)
        print(json.dumps([
            quick, [len(objects), objects.bytes, objects.partition("kind").rows()], members,
            [len(found), found.bytes, found.partition("kind").rows()],
        ]))
        """,
    )
    assert quick == slow == after
    rows = {name: count for count, _, name in quick[2]}
    assert rows["dict of __main__.WithDict"] == 10
    assert rows["dict of __main__.Both"] == 1
    assert rows["__main__.Order"] == 20, "garbage is left out"
    assert "str" not in rows and "__main__.Slotted" not in rows
    assert members == [count for count, _, _ in quick[2]]


def test_garbage_is_left_out_without_a_collection(tmp_path: Path) -> None:
    seen, n_collected = run_json(
        tmp_path,
        HEAD,
        """
        make_garbage(Order)
        hp = heaptide.hpy()
        seen = counts(hp.heap())
        n_collected = gc.collect()
        hp.setrelheap()
        make_garbage(Order)
        kept.append(Order(1))
        print(json.dumps([[seen["__main__.Order"], counts(hp.heap())["__main__.Order"]], n_collected]))
        """,
    )
    assert seen == [20, 1]
    assert n_collected >= 7


def test_garbage_whose_collection_changes_other_objects_is_collected(tmp_path: Path) -> None:
    finalized, weak, first, second = run_json(
        tmp_path,
        HEAD,
        """
        hp = heaptide.hpy()
        make_garbage(Finalized)
        first = counts(hp.heap()).get("__main__.Finalized")
        cycle = Order(1)
        cycle.own = cycle
        by_number = weakref.WeakValueDictionary({1: cycle})
        del cycle
        second = counts(hp.heap())["__main__.Order"]
        print(json.dumps([len(FINALIZED), len(by_number.data), first, second]))
        """,
    )
    assert (finalized, weak) == (7, 0)
    assert (first, second) == (None, 20)


def test_references_are_those_of_the_moment_of_the_inspection(tmp_path: Path) -> None:
    n_orders, via = run_json(
        tmp_path,
        HEAD,
        """
        holder = Slotted()
        holder.second = [WithDict(77)]
        h = heaptide.hpy().heap()
        holder.second = None
        lists = (h & Slotted).referents & list
        n_orders = (lists.referents & WithDict).count
        print(json.dumps([n_orders, [name for _, _, name in lists.byvia.partition.rows()]]))
        """,
    )
    # `kept` has ten of this class.
    assert n_orders == 11
    assert "'.second'" in via
