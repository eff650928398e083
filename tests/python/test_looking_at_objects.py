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
