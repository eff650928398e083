"""Tests that the heap walk reports object sizes as `sys.getsizeof` does, with buffers counted once."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.json_program import run_json


def test_sizes_equal_getsizeof(tmp_path: Path) -> None:
    wrong = run_json(
        tmp_path,
        """
        import array, collections, gc, io, json, sys
        from heap_view import heap_now

        class Plain: pass
        class Ordered(collections.OrderedDict): pass
        shared = bytes(5000)
        fewer = collections.OrderedDict.fromkeys(range(500))
        for number in range(480): del fewer[number]
        class Slim: __slots__ = ("first", "second")
        class Dict(dict): pass
        class List(list): pass
        class Text(str): pass
        class Number(int): pass
        class Error(Exception): pass
        with_dict = Plain()
        with_dict.x = 1
        vars(with_dict)
        encoded = "é" * 7
        encoded.encode()
        objects = [
            Slim(), Dict(a=1), List("abc"), Text("x"), Text("é"), Number(5), Error("z"), vars(with_dict), encoded,
            0, 1, 2**70, -2**40, True, "abc", "é" * 5, "漢", "🦀", b"xyz", bytearray(b"abc"), [1], list(range(100)),
            {}, {1: 2}, {"a": 1}, dict.fromkeys(range(1000)), dict.fromkeys(map(str, range(300))), set(), {1, 2},
            set(range(1000)), frozenset(range(10)), (1, 2), 1.5, 1j, None, int, Plain, Slim, type, heap_now,
            heap_now.__code__, sys, len, array.array("i", range(100)), array.array("d"), collections.deque(range(200)),
            collections.deque(), collections.defaultdict(int, {1: 2}), collections.Counter("abc"), range(5),
            slice(1, 2), object(), collections.namedtuple("P", "x y")(1, 2), io.BytesIO(), io.BytesIO(b"x" * 10_000),
            io.BytesIO(shared), collections.OrderedDict(), collections.OrderedDict(a=1), fewer, Ordered(a=1, b=2),
            collections.OrderedDict.fromkeys(range(1000)),
        ]
        view = heap_now()
        found = [(repr(object)[:40], view.at([id(object)])) for object in objects]
        print(json.dumps([
            (name, len(one), one.bytes, sys.getsizeof(object))
            for object, (name, one) in zip(objects, found)
            if len(one) != 1 or one.bytes != sys.getsizeof(object)
        ]))
        """,
    )
    assert wrong == []


def test_buffers_of_arrays_are_counted_with_their_owners(tmp_path: Path) -> None:
    found = run_json(
        tmp_path,
        """
        import array, json, sys
        from heap_view import heap_now

        n = 1_000_000
        owners = {"bytearray": bytearray(n), "array": array.array("d", bytes(n))}
        views = {"memoryview": memoryview(owners["bytearray"])}
        try:
            import numpy
            owners["numpy"] = numpy.zeros(n, dtype="u1")
            owners["two dimensions"] = numpy.zeros((n // 8 // 5, 5))
            owners["in Fortran's order"] = numpy.zeros((n // 8 // 5, 5), order="F")
            views["numpy slice"] = owners["numpy"][1:]
        except ImportError:
            pass
        view = heap_now()
        bytes_of = lambda one: view.at([id(one)]).bytes
        print(json.dumps([{name: bytes_of(one) for name, one in owners.items()},
                          {name: bytes_of(one) for name, one in views.items()}]))
        """,
    )
    owners, views = found
    assert {name: bytes for name, bytes in owners.items() if not 1_000_000 <= bytes < 1_100_000} == {}
    assert {name: bytes for name, bytes in views.items() if bytes >= 1_000} == {}


@pytest.mark.once
def test_columns_of_a_data_frame_are_counted_once(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    grown, strings = run_json(
        tmp_path,
        """
        import gc, json
        import numpy, pandas
        from heap_view import heap_now

        def frame():
            return pandas.DataFrame({"number": numpy.arange(250_000), "half": numpy.arange(250_000) / 2})

        frame()  # pandas creates objects at its first use
        gc.collect()
        before = heap_now().of_kind("numpy.ndarray").bytes
        kept = frame()
        texts = numpy.array([f"text {number}" for number in range(1000)], dtype=object)
        gc.collect()
        view = heap_now()
        found = view.at([id(text) for text in texts])
        print(json.dumps([view.of_kind("numpy.ndarray").bytes - before, len(found)]))
        """,
    )
    assert 4_008_000 <= grown < 4_100_000, "two columns of two million bytes, and an array of a thousand references"
    assert strings == 1000
