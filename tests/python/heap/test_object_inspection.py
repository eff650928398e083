"""Tests that the functions of ``heaptide.objects`` neither create objects nor run code of the inspected ones.

These run on every Python, since comprehensions and frames create different objects in each version.
"""

from __future__ import annotations

from pathlib import Path

from support.object_program import run


def test_inspection_leaves_no_objects(tmp_path: Path) -> None:
    before, after = run(
        tmp_path,
        """
        kept = {"key": [Node(1)]}
        def inspect():
            objects.typestats()
            objects.find_backref_chain(kept["key"][0], objects.is_proper_module)
            objects.show_backrefs([kept["key"][0]], output=io.StringIO())
        inspect()
        gc.collect()
        gc.disable()
        before = len(gc.get_objects())
        for _ in range(3):
            inspect()
        print(json.dumps([before, len(gc.get_objects())]))
        """,
    )
    assert after - before < 20


def test_objects_in_asyncios_free_list_get_no_references(tmp_path: Path) -> None:
    n_unused, *rest = run(
        tmp_path,
        """
        import asyncio, os
        async def wait():
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            loop.call_soon(future.set_result, 1)
            await future
        asyncio.run(wait())
        gc.collect()
        gc.disable()
        n_unused = objects.count("FutureIter")
        if n_unused:  # references have freed them again, so a collection at exit would loop for ever
            print(json.dumps([n_unused]), flush=True)
            os._exit(0)
        c_module = sys.modules["_asyncio"]
        chain = objects.find_backref_chain(vars(c_module), objects.is_proper_module)
        objects.show_refs([c_module], output=io.StringIO())
        asyncio.run(wait())
        gc.collect()
        print(json.dumps([0, chain[0].__name__, len(chain)]))
        """,
    )
    assert n_unused == 0
    assert rest == ["_asyncio", 2]


def test_inspection_calls_no_method_of_the_inspected_objects(tmp_path: Path) -> None:
    called, counted, chain, pictures, rows = run(
        tmp_path,
        """
        import heaptide, weakref
        called = []
        class Lazy:
            @property
            def __class__(self): called.append("class"); raise RuntimeError("too early")
            def __len__(self): called.append("len"); raise RuntimeError("too early")
            def __repr__(self): called.append("repr"); raise RuntimeError("too early")
            def __eq__(self, other): called.append("eq"); raise RuntimeError("too early")
            __hash__ = None
        class Meta(type):
            def __getattribute__(self, name): called.append(name); raise RuntimeError("too early")
        class Made(metaclass=Meta): pass
        gone = weakref.proxy(Node(1))
        made = Made()
        kept = [gone, Lazy(), made, Node(2)]
        counted = [objects.count("Lazy"), objects.count("Made"), objects.count("Node")]
        objects.show_growth(file=io.StringIO()); objects.get_new_ids(file=io.StringIO()); objects.get_leaking_objects()
        chain = objects.find_backref_chain(kept[1], objects.is_proper_module)
        pictures = []
        for each in kept:
            for draw in (objects.show_backrefs, objects.show_refs):
                out = io.StringIO()
                draw(each, output=out, refcounts=True)
                pictures.append(out.getvalue().startswith("digraph"))
        h = heaptide.hpy().heap()
        rows = [(h & Lazy).count, (h & type(made)).count]
        print(json.dumps([called, counted, len(chain), pictures, rows]))
        """,
    )
    assert called == []
    assert counted == [1, 1, 1]
    assert chain == 4
    assert all(pictures)
    assert len(pictures) == 8
    assert rows == [1, 1]


def test_graphs_and_reference_counts_exclude_heaptides_own_objects(tmp_path: Path) -> None:
    nodes, counts = run(
        tmp_path,
        """
        import re
        kept = {"outer": [[[Node(1)]]]}
        out = io.StringIO()
        objects.show_backrefs(kept["outer"][0][0][0], max_depth=6, output=out, refcounts=True)
        labels = re.findall(r'label="(\\w+) \\[(\\w+)\\]', out.getvalue())
        print(json.dumps([sorted(name for name, _ in labels), [int(n) for name, n in labels if name in ("Node", "list")]]))
        """,
    )
    assert [name for name in nodes if name != "function"] == ["Node", "dict", "dict", "list", "list", "list", "module"]
    assert counts == [1, 1, 1, 1]
