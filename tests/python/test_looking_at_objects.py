"""Looking at one's own objects makes none, on any Python: what a comprehension or a frame leaves differs between them."""

from __future__ import annotations

from pathlib import Path

from test_objects import run


def test_looking_leaves_nothing_behind(tmp_path: Path) -> None:
    before, after = run(
        tmp_path,
        """
        kept = {"key": [Node(1)]}
        def look():
            objects.typestats()
            objects.find_backref_chain(kept["key"][0], objects.is_proper_module)
            objects.show_backrefs([kept["key"][0]], output=io.StringIO())
        look()
        gc.collect()
        gc.disable()
        before = len(gc.get_objects())
        for _ in range(3):
            look()
        print(json.dumps([before, len(gc.get_objects())]))
        """,
    )
    assert after - before < 20


def test_objects_that_asyncio_keeps_to_use_again_get_no_references(tmp_path: Path) -> None:
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
        if n_unused:  # given back a second time by now: the collector would never end
            print(json.dumps([n_unused]), flush=True)
            os._exit(0)
        asyncio_of_c = sys.modules["_asyncio"]
        chain = objects.find_backref_chain(vars(asyncio_of_c), objects.is_proper_module)
        objects.show_refs([asyncio_of_c], output=io.StringIO())
        asyncio.run(wait())
        gc.collect()
        print(json.dumps([0, chain[0].__name__, len(chain)]))
        """,
    )
    assert n_unused == 0
    assert rest == ["_asyncio", 2]
