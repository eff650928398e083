"""Tests that the census counts the same objects as a snapshot and as guppy3, and explains every difference."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.json_program import run_json

MAKES_OBJECTS = """
    import array, collections, gc, json, sys

    class Order:
        def __init__(self, number):
            self.number, self.lines = number, [(number, 0.5 + number)]
    class Slim:
        __slots__ = ("order", "text")
        def __init__(self, order):
            self.order, self.text = order, {"sku": str(order.number), order.number: None}
    class Wide(Slim):
        def __init__(self, order):
            super().__init__(order)
            self.weight = complex(order.number, 1)
    class Open:
        __slots__ = ("__dict__", "here")
        def __init__(self, number):
            self.here, self.there = complex(number, 2), complex(number, 3)
    class Shown:
        def __init__(self, number):
            self.number = complex(number, 4)
            vars(self)
    class Special(dict): pass
    Pair = collections.namedtuple("Pair", "left right")

    def make(n):
        orders = [Order(number + 100_000) for number in range(n)]
        return [orders, [Slim(order) for order in orders], [Special(a=number) for number in range(n)],
                [Pair(number, None) for number in range(n)], [{number} for number in range(n)],
                [frozenset([number]) for number in range(n)], [bytes([number % 250]) * 3 for number in range(n)],
                [bytearray(3) for _ in range(n)], [complex(number) for number in range(n)],
                [array.array("d", [1.5]) for _ in range(n)], [collections.deque([number]) for number in range(n)],
                [(lambda number=number: number) for number in range(n)], [Wide(order) for order in orders],
                [Open(number) for number in range(n)], [Shown(number) for number in range(n)]]
"""


def test_census_counts_the_objects_of_a_snapshot(tmp_path: Path) -> None:
    found = run_json(
        tmp_path,
        MAKES_OBJECTS,
        """
        import heaptide
        from heap_view import heap_now

        kept = make(1000)
        gc.collect()
        gc.disable()
        heaptide.heap_census(), heap_now()  # the first calls create objects that are kept
        census = heaptide.heap_census()
        counted = {kind.name: (kind.objects, kind.bytes) for kind in census}
        del census
        rows = heap_now().all().partition("type").rows()
        print(json.dumps([counted, {name: (objects, bytes) for objects, bytes, name in rows}]))
        """,
    )
    counted, held = found
    # The test's own results are of these types: a dict of tuples with a string and two numbers.
    result_types = {"str", "int", "tuple", "dict", "list"}
    assert counted.keys() ^ held.keys() == set()
    # The probe instance shrinks as its class learns the number of attributes. Each inspection has its own frames.
    compared = counted.keys() - result_types - {"heaptide.inspection.snapshots._Instance", "types.FrameType"}
    assert {name: (counted[name], held[name]) for name in compared if counted[name] != held[name]} == {}
    for name in result_types:
        assert abs(counted[name][0] - held[name][0]) < 3 * len(counted), name
    assert counted["__main__.Order"][0] == 1000
    assert counted["__main__.Slim"][0] == 1000
    # A thousand in a list, and four thousand that are reached only through slots and attributes.
    assert counted["complex"][0] >= 5000


def test_census_changes_nothing_and_reports_its_duration(tmp_path: Path) -> None:
    found = run_json(
        tmp_path,
        MAKES_OBJECTS,
        """
        import heaptide

        kept = make(2000)
        gc.collect()
        gc.disable()
        heaptide.heap_census()
        objects, blocks = len(gc.get_objects()), sys.getallocatedblocks()
        census = heaptide.heap_census()
        print(json.dumps([len(gc.get_objects()) - objects - len(census), sys.getallocatedblocks() - blocks,
                          len(census), census.paused_seconds == census.stood_still > 0, census.notes, census.walker_bytes < 32 * census.objects]))
        """,
    )
    objects, blocks, n_types, was_paused, notes, is_small = found
    # The result itself: a list of rows with a name and two numbers each.
    assert objects < 20
    assert blocks < 5 * n_types + 100, "2,000 dicts would be thousands of blocks"
    assert (was_paused, notes, is_small) == (True, [], True)


@pytest.mark.once
def test_growth_since_an_earlier_census_is_reported_by_type(tmp_path: Path) -> None:
    found = run_json(
        tmp_path,
        MAKES_OBJECTS,
        """
        import heaptide

        gone = [Pair(1, 2) for _ in range(3)]
        before = heaptide.heap_census()
        kept = [Order(number) for number in range(500)]
        del gone[:]
        after = heaptide.heap_census()
        grown = {change.name: change.objects for change in after.since(before)}
        print(json.dumps([grown["__main__.Order"], grown["__main__.Pair"], after["__main__.Order"].objects,
                          repr(after).splitlines(), len(after)]))
        """,
    )
    *counts, table, n_types = found
    assert counts == [500, -3, 500]
    assert table[1] == " Index  Count   %     Size   % Cumulative  % Type"
    assert len(table) == 13
    assert table[-1] == f"<{n_types - 10} more types. Iterate over the census to see them.>"


def test_every_difference_from_guppy3_is_explained(tmp_path: Path) -> None:
    pytest.importorskip("guppy", reason="guppy3, with which the census is compared, is not installed")
    found = run_json(
        tmp_path,
        MAKES_OBJECTS,
        """
        from guppy import hpy
        import heaptide
        from heap_view import heap_now

        kept = make(300)
        hp = hpy()
        gc.collect()
        gc.disable()
        hp.heap(), heap_now()  # the first calls create objects that are kept; guppy3 also creates dicts of instances
        gathered = hp.heap()
        view = heap_now()
        guppys = {id(one): one for one in gathered.nodes}
        only_census = set(view.all().addresses()) - guppys.keys()

        # Objects that guppy3 did not find must not be touched: some of them are freed by now.
        kinds = {address: kind for address, _, kind, _ in view.at(list(only_census)).describe()}
        dicts = [one for one in guppys.values() if issubclass(type(one), dict)]
        keys = {id(key) for one in dicts for key in dict.__iter__(one)}
        types = {id(one) for one in guppys.values() if issubclass(type(one), type)}
        tools = {id(one) for name, module in list(sys.modules.items()) if name.split(".")[0] in ("guppy", "heaptide")
                 for one in vars(module).values() if isinstance(one, type)}

        def explain(address):
            if kinds[address].removeprefix("dict of ").split(".")[0] in ("guppy", "heaptide") or address in tools:
                return "of the tools themselves"
            if address in keys and kinds[address] == "str":
                return "strings that are keys, which dicts do not report to the collector"
            referrers = set(view.at([address]).referrers().addresses()) - only_census
            if not referrers:
                # C code holds it, or another object that guppy3 did not find.
                return "reached only through objects that guppy3 does not follow"
            if referrers <= types:
                return "attributes of types that guppy3 does not follow"
            return f"{kinds[address]} in {[str(type(guppys.get(referrer))) for referrer in referrers]}"

        reasons = {}
        for address in only_census:
            reason = explain(address)
            reasons[reason] = reasons.get(reason, 0) + 1
        census = heaptide.heap_census()
        of_types = collections.Counter(type(one).__name__ for one in guppys.values())
        counts = {name: (of_types[name], census["__main__." + name].objects)
                  for name in ("Order", "Slim", "Special", "Pair")}
        print(json.dumps({"only guppys": len(guppys.keys() - set(view.all().addresses())), "guppys": len(guppys),
                          "reasons": reasons, "counts": counts}))
        """,
    )
    assert found["guppys"] > 300 * 20
    assert found["only guppys"] == 0
    assert set(found["reasons"]) <= {
        "of the tools themselves",
        "reached only through objects that guppy3 does not follow",
        "strings that are keys, which dicts do not report to the collector",
        "attributes of types that guppy3 does not follow",
    }
    assert found["counts"] == {name: [300, 300] for name in ("Order", "Slim", "Special", "Pair")}


def test_notebooks_show_sets_and_censuses_as_tables(tmp_path: Path) -> None:
    heap, more, census, text = run_json(
        tmp_path,
        """
        import json
        import heaptide
        held = [{"<tag>": number} for number in range(100_000)]
        heap = heaptide.heap()
        print(json.dumps([heap._repr_html_(), heap.more._repr_html_(), heaptide.heap_census()._repr_html_(), repr(heap)]))
        """,
    )
    for table in (heap, more, census):
        assert table.count("<tr>") == 11 and table.endswith(" more rows</p>"), "a head, ten rows and the rest"
    assert '<th scope="row">0</th>' in heap and '<th scope="row">10</th>' in more
    assert "dict" in heap and "dict" in census and text.startswith("Partition of a set")
