"""The heap walk: it finds every object, says what it is called and how large it is, and changes nothing by looking.

Each program runs in a process of its own and answers in JSON; what it asserts of itself is what `gc` and `sys` say.
"""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import PROGRAMS, python


def answer(tmp_path: Path, program: str, **env: str) -> Any:
    script = tmp_path / "program.py"
    shutil.copy(PROGRAMS / "heap_view.py", tmp_path)
    script.write_text(textwrap.dedent(program))
    return json.loads(python(script, cwd=tmp_path, **env).stdout)


def test_looking_neither_makes_nor_frees_objects(tmp_path: Path) -> None:
    changes = answer(
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
        def look():
            heap_snapshot("some.heap", overwrite=True)

        def nothing():
            pass

        def change(function):
            objects, blocks = len(gc.get_objects()), sys.getallocatedblocks()
            function()
            return len(gc.get_objects()) - objects, sys.getallocatedblocks() - blocks

        gc.collect()
        gc.disable()
        for _ in range(3):  # what is made once is made now
            change(look), change(nothing)
        print(json.dumps([change(look), change(nothing)]))
        """,
    )
    (objects, blocks), (objects_without, blocks_without) = changes
    assert objects == objects_without
    assert abs(blocks - blocks_without) < 100, "2,000 dicts would be 2,000 blocks"


@pytest.mark.parametrize("look", ["heap_snapshot('some.heap', overwrite=True)", "heap_census()"])
def test_no_dict_and_no_frame_comes_into_being(tmp_path: Path, look: str) -> None:
    dicts, frames, blocks = answer(
        tmp_path,
        f"""
        import gc, json, sys
        from heaptide import heap_census, heap_snapshot

        class Plain:
            def __init__(self):
                self.left, self.right = [1], 2.5

        kept = [Plain() for _ in range(2000)]

        def kinds():
            names = [type(one).__name__ for one in gc.get_objects()]
            return names.count("dict"), names.count("frame"), sys.getallocatedblocks()

        def look():
            {look}

        def below(depth):
            if depth:
                return below(depth - 1)
            look()  # what is made once is made now
            before = kinds()
            look()
            return [after - before for before, after in zip(before, kinds())]

        gc.collect()
        gc.disable()
        below(0)
        print(json.dumps(below(500)))
        """,
    )
    assert (dicts, frames) == (0, 0)
    assert blocks < 100, "500 frames would be 500 blocks"


def test_attributes_stay_where_they_are_and_have_their_names(tmp_path: Path) -> None:
    found = answer(
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


def test_sizes_are_those_of_getsizeof(tmp_path: Path) -> None:
    wrong = answer(
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


def test_everything_the_collector_knows_is_found(tmp_path: Path) -> None:
    missing = answer(
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
    assert missing <= 2, "the list of addresses' own iterators, which are gone when the walk begins"


def test_garbage_is_told_apart_from_what_c_code_holds(tmp_path: Path) -> None:
    found = answer(
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


def test_objects_that_the_collector_does_not_follow_are_found(tmp_path: Path) -> None:
    found = answer(
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


def test_local_variables_of_running_functions_are_roots_with_names(tmp_path: Path) -> None:
    paths = answer(
        tmp_path,
        """
        import json, threading
        from heap_view import heap_now

        def work(begun, may_end, ids):
            in_a_thread = object()
            ids.append(id(in_a_thread))
            begun.set()
            may_end.wait()

        def generator():
            in_a_generator = object()
            yield id(in_a_generator)

        def main():
            begun, may_end, ids = threading.Event(), threading.Event(), []
            thread = threading.Thread(target=work, args=(begun, may_end, ids))
            thread.start()
            begun.wait()
            here = object()
            held = generator()
            ids += [id(here), next(held)]
            view = heap_now()
            may_end.set()
            thread.join()
            return [str(view.at([one]).paths(1)) for one in ids]

        print(json.dumps(main()))
        """,
    )
    for path, variable in zip(paths, ["in_a_thread", "here", "in_a_generator"], strict=True):
        assert variable in path, path


def test_constants_of_the_running_script_are_held_by_its_code(tmp_path: Path) -> None:
    paths = answer(
        tmp_path,
        """
        import json
        from heap_view import heap_now

        text = b"a constant that only the code of this script has"
        numbers = (2.5e7, 3.5e7, "inside a constant")
        ids = [id(text), id(numbers), id(numbers[2])]
        del text, numbers
        view = heap_now()
        print(json.dumps(["".join(steps) for one in ids for _, steps in view.at([one]).paths(2)[1]]))
        """,
    )
    assert len(paths) == 3
    for path in paths:
        # The parser, which is C code, keeps them as well until the script ends.
        assert "<frame thread 1/<module>" in path, path
        assert ".co_consts[" in path, path
        assert "held by C code" not in path, path


def test_interned_strings_that_only_their_table_keeps_are_found(tmp_path: Path) -> None:
    found = answer(
        tmp_path,
        """
        import gc, json, sys
        import heaptide
        from heap_view import heap_now

        def stays(text):
            # A count of references as large as this belongs to an object that is never freed.
            return sys.getrefcount(text) > 1 << 28

        def make():
            ring = [sys.intern("held by garbage " + str(4.25))]
            ring.append(ring)
            namespace = {}
            exec("a_" + "generated_name = 0", {}, namespace)
            texts = [*namespace, sys.intern("held by nobody " + str(3.25)), ring[0]]
            return [id(text) for text in texts if stays(text)], [id(ring), id(ring[0])]

        gc.disable()
        held = sys.intern("held by a variable " + str(5.25))
        ids, garbage = make()
        view = heap_now()
        is_garbage = [one in view.unreachable().addresses() for one in garbage]
        ways = [["".join(steps) for _, steps in view.at([one]).paths(9)[1]] for one in ids]
        of_held = ["".join(steps) for _, steps in view.at([id(held)]).paths(9)[1]]
        n_holders = len(view.at([id(held)]).referrers())

        before = heaptide.heap_census()["str"].objects
        for number in range(3000):
            sys.intern("generated again " + str(number))
        grown = heaptide.heap_census()["str"].objects - before
        in_snapshot = len(heap_now().of_kind("str")) - heaptide.heap_census()["str"].objects
        print(json.dumps([list(sys.version_info[:2]), ways, is_garbage, of_held, n_holders, grown, in_snapshot]))
        """,
    )
    version, ways, is_garbage, of_held, n_holders, grown, in_snapshot = found
    assert all(len(ways_of_one) == 1 for ways_of_one in ways)
    assert all(way.startswith("<interned strings>.keys()[") for [way] in ways), ways
    # The table is named only where there is no other holder.
    assert of_held == ["sys.modules['__main__'].__dict__['held']"]
    assert n_holders == 1
    assert abs(in_snapshot) < 100
    if version == [3, 12]:
        assert len(ways) == 3, ways
        assert is_garbage == [True, False]
        assert 3000 <= grown < 3100
    else:
        # Here sys.intern() does not keep what nobody holds; 3.13 keeps names in code that was compiled.
        assert grown < 100
        assert is_garbage == [True, True]
        assert version > [3, 13] or len(ways) == (version == [3, 13]), ways


def test_a_forked_copy_sees_the_same_and_the_process_goes_on(tmp_path: Path) -> None:
    found = answer(
        tmp_path,
        """
        import json, os
        import heaptide
        from heaptide._native import HeapView

        marks = [object() for _ in range(100)]
        taken = heaptide.heap_snapshot("copy.heap", fork=True)
        view = HeapView.open("copy.heap")
        try:
            os.waitpid(-1, 0)
            children = "left"
        except ChildProcessError:
            children = "none"
        print(json.dumps([len(view.at([id(mark) for mark in marks])), view.pid == os.getpid(), children,
                          taken.objects == len(view), taken.stood_still > 0]))
        """,
    )
    assert found == [100, True, "none", True, True]


@pytest.mark.once
def test_values_are_kept_only_when_asked_for_and_secrets_never(tmp_path: Path) -> None:
    answer(
        tmp_path,
        """
        import json
        import heaptide

        colour = "".join(["ultra", "marine"])
        config = {"api_token": "".join(["s3cr", "et-word"]), "colour": colour}
        heaptide.heap_snapshot("without.heap")
        heaptide.heap_snapshot("with.heap", values=True, redact=["*token*"])
        print("null")
        """,
    )
    assert packed_texts(tmp_path / "without.heap", b"ultramarine") == 0
    assert packed_texts(tmp_path / "with.heap", b"ultramarine") == 1
    assert packed_texts(tmp_path / "with.heap", b"s3cret-word") == 0


def packed_texts(snapshot: Path, text: bytes) -> int:
    """How often a text is among the values of a snapshot: through the reader, as nobody can search packed bytes."""
    from heaptide import _native

    return sum(text.decode() in value for value in _native.heap_values(snapshot))


@pytest.mark.once
def test_a_snapshot_does_not_overwrite_a_file_unless_told_to(tmp_path: Path) -> None:
    found = answer(
        tmp_path,
        """
        import json, heaptide
        heaptide.heap_snapshot("a.heap")
        try:
            heaptide.heap_snapshot("a.heap")
        except FileExistsError as error:
            said = str(error)
        heaptide.heap_snapshot("a.heap", overwrite=True)
        print(json.dumps(said))
        """,
    )
    assert "a.heap exists already" in found and "overwrite=True" in found


def test_nasty_types_do_not_stop_the_walk(tmp_path: Path, extension: Callable[..., Path]) -> None:
    library = extension("unusual_types")
    found = answer(
        tmp_path,
        """
        import json, sys
        import unusual_types
        from heap_view import heap_now

        kept = unusual_types.make()
        class Lies(dict):
            def __sizeof__(self): raise SystemExit("a walk runs no Python code")
            def __getattribute__(self, name): raise SystemExit("nor this")
        class Meta(type):
            def __getattribute__(self, name): raise SystemExit("nor that")
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


def test_buffers_of_arrays_are_counted_with_their_owners(tmp_path: Path) -> None:
    found = answer(
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
    grown, strings = answer(
        tmp_path,
        """
        import gc, json
        import numpy, pandas
        from heap_view import heap_now

        def frame():
            return pandas.DataFrame({"number": numpy.arange(250_000), "half": numpy.arange(250_000) / 2})

        frame()  # what pandas makes once is made now
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


def test_static_types_are_roots_under_their_names(tmp_path: Path) -> None:
    found = answer(
        tmp_path,
        """
        import json
        from heap_view import heap_now

        view = heap_now()
        # A builtin type is kept by itself: the shortest way to it is none.
        print(json.dumps([view.at([id(one)]).paths(5)[1] for one in (int, dict, type(len))]))
        """,
    )
    for ways, name in zip(found, ("int", "dict", "builtin_function_or_method"), strict=True):
        assert any(f"<type {name}>" in str(way) for way in ways), ways
