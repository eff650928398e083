"""Tests the heap session of ``heaptide.hpy()`` with the steps that heapy's documentation shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.commands import python
from support.json_program import run_json

HEAD = """
import gc, json, sys
import heaptide
from heaptide import leaks

class Document:
    def __init__(self, text):
        self.text = text
        self.tags = ["one", "two"]

KEPT = []

def run_task(n=100):
    for number in range(n):
        KEPT.append(Document(f"document {number} " * 10))
"""

ROW = re.compile(r"^ {0,5}\d+ +\d+ +\d+ +\d+ +\d+ +\d+ +\d+ \S")


def test_session_shows_new_objects_in_heapys_tables(tmp_path: Path) -> None:
    table, kinds, via, via_names, referrers, referrers_via = run_json(
        tmp_path,
        HEAD,
        """
        hp = heaptide.hpy()
        hp.heap()
        hp.setrelheap()
        run_task()
        h = hp.heap()
        texts = h & str
        via = texts.byvia
        print(json.dumps([
            repr(h), {name: [count, size] for count, size, name in h.partition.rows()},
            repr(via), [name for _, _, name in via.partition.rows()],
            repr(texts.byvia[0].referrers), repr((h & list)[0].referrers.byvia),
        ]))
        """,
    )
    first, columns, *rows = table.splitlines()
    assert re.fullmatch(r"Partition of a set of \d+ objects\. Total size = \d+ bytes\.", first)
    assert columns == " Index  Count   %     Size   % Cumulative  % Kind (class / dict of class)"
    assert all(ROW.match(row) or row.startswith("<") for row in rows), table
    assert kinds["__main__.Document"][0] == 100
    assert kinds["str"][0] in (100, 101, 102)
    assert kinds["list"][0] == 100
    assert sum(count for count, _ in kinds.values()) < 420, "older objects are not shown"
    assert via.splitlines()[1].endswith("% Referred Via:")
    assert any("text" in name for name in via_names), via
    assert referrers.startswith("Partition of a set of 100 objects.") and "Document" in referrers
    assert "Referred Via:" in referrers_via


@pytest.mark.once
def test_sets_are_combined_followed_and_measured(tmp_path: Path) -> None:
    seen = run_json(
        tmp_path,
        HEAD,
        """
        hp = heaptide.hpy()
        hp.heap()
        hp.setrelheap()
        run_task()
        h = hp.heap()
        documents = h & Document
        paths = documents.shpaths
        print(json.dumps({
            "count": documents.count,
            "kind": documents[0].kind,
            "others": (h - documents).count + documents.count == h.count,
            "either": ((h - documents) | documents) == h,
            "both": ((h - documents) & documents).count,
            "subset": documents <= h and not h <= documents,
            "sizes": sum(part.size for part in h) == h.size,
            "in": KEPT[3] in documents and run_task not in documents,
            "path": paths[0],
            "n_paths": len(paths),
            "paths": repr(paths),
            "dominated": documents.domisize > documents.size + 100 * 100,
            "dominos": (documents.dominos & str).count,
            "rp": repr(documents.rp),
            "slice": h[0:2].count == h[0].count + h[1].count,
            "last": h[-1].count > 0,
            "tables": [repr(h.by(name)).splitlines()[1] for name in
                       ("Type", "Size", "Rcs", "Via", "Module", "Unity", "Clodo")],
            "identity": repr(documents.byid).splitlines()[0],
            "iso": [hp.iso(KEPT[0]).count, hp.iso(KEPT[0]).theone is KEPT[0], hp.iso(KEPT).shpaths[0]],
            "more": repr(h.bysize.all).count("\\n") >= repr(h.bysize).count("\\n"),
            "two heaps": (hp.heap() & documents).count,
        }))
        """,
    )
    assert seen["count"] == 100 and seen["kind"] == "__main__.Document"
    for name in ("others", "either", "subset", "sizes", "in", "dominated", "slice", "last", "more"):
        assert seen[name] is True, name
    assert seen["both"] == 0
    assert "KEPT" in seen["path"] and seen["path"].endswith("]")
    # One path from the module and, in some versions, one from the running frame.
    assert seen["n_paths"] in (100, 200)
    assert seen["paths"].splitlines()[-1] == f"<... {seen['n_paths'] - 10} more paths ...>"
    assert seen["dominos"] == 100
    assert seen["rp"].startswith("Reference Pattern by <[dict of] class>.") and " list" in seen["rp"]
    assert [title.rpartition("% ")[2] for title in seen["tables"]] == [
        "Type",
        "Individual Size",
        "Referrers by Kind (class / dict of class)",
        "Referred Via:",
        "Module",
        "<unclassified>",
        "Kind (class / dict of class)",
    ]
    assert seen["identity"].startswith("Set of 100 ")
    assert seen["iso"][:2] == [1, True] and "['KEPT']" in seen["iso"][2]
    assert seen["two heaps"] == 100


def test_set_of_given_objects_does_not_show_references_from_the_call(tmp_path: Path) -> None:
    seen = run_json(
        tmp_path,
        HEAD,
        """
        run_task()
        hp = heaptide.hpy()
        named = hp.iso(*KEPT)
        only_here = hp.iso([1, 2, 3])
        print(json.dumps({
            "path": named.shpaths[0],
            "referrers": [named.referrers.count, named.referrers.kind],
            "dominators": named.imdom.kind,
            "texts": hp.iso(*KEPT).maprox.text.imdom.kind,
            "of an iterable": hp.idset(each for each in KEPT).imdom.kind,
            "only here": [only_here.count, only_here.kind, only_here.theone, hp.iso("new " + KEPT[0].text).count],
        }))
        """,
    )
    assert "['KEPT'][" in seen["path"]
    assert seen["referrers"] == [1, "list"]
    assert seen["dominators"] == seen["of an iterable"] == "list"
    assert "Document" in seen["texts"]
    assert seen["only here"] == [1, "list", [1, 2, 3], 1]


@pytest.mark.once
def test_saved_heap_answers_the_same_questions(tmp_path: Path) -> None:
    live, loaded, path = run_json(
        tmp_path,
        HEAD,
        """
        run_task()
        hp = heaptide.hpy()
        live = (hp.heap() & Document).count
        hp.save("kept.heap")
        loaded = heaptide.hpy().load("kept.heap") & "__main__.Document"
        print(json.dumps([live, loaded.count, loaded.shpaths[0]]))
        """,
    )
    assert live == loaded == 100
    assert "KEPT" in path


@pytest.mark.once
def test_leaks_around_shows_only_objects_that_remain_after_many_runs(tmp_path: Path) -> None:
    nothing, leaked, refused = run_json(
        tmp_path,
        HEAD,
        """
        import re
        def clean():
            re.compile("x" * 5).match("y")
            return [Document("gone") for _ in range(5)]
        leaks.around(clean, warmup=2, runs=2)
        nothing = leaks.around(clean, warmup=10, runs=100)
        leaked = leaks.around(lambda: run_task(1), warmup=3, runs=50)
        async def never_awaited(): pass
        try:
            leaks.around(never_awaited)
        except TypeError as error:
            refused = str(error)
        print(json.dumps([[nothing.count, repr(nothing)], [(leaked & Document).count, leaked.count], refused]))
        """,
    )
    assert nothing[0] < 15, nothing[1]
    assert leaked[0] == 50
    assert leaked[1] < 50 * 4 + 20, "an object, its dict, its list and its text"
    assert refused.startswith("work is async")


@pytest.mark.once
def test_wrong_operations_raise_one_sentence(tmp_path: Path) -> None:
    seen = run_json(
        tmp_path,
        HEAD,
        """
        h = heaptide.hpy().heap()
        messages = []
        for ask in (lambda: h.by("colour"), lambda: h[100000], lambda: h & 7, lambda: h[0:9:2], lambda: h.theone):
            try:
                repr(ask())
            except (ValueError, IndexError, TypeError) as error:
                messages.append(f"{type(error).__name__}: {error}")
        print(json.dumps(messages))
        """,
    )
    assert seen[0].startswith("ValueError: cannot group objects by colour")
    assert seen[1].startswith("IndexError: there is no row 100000")
    assert seen[2] == "TypeError: a set can be combined with another one, a type or a kind's name, not int"
    assert seen[3].startswith("ValueError: a slice of rows cannot have a step")
    assert seen[4].startswith("ValueError: the set has ")


@pytest.mark.once
def test_tables_can_be_kept_subtracted_dumped_and_loaded(tmp_path: Path) -> None:
    (tmp_path / "guppy.hpy").write_text(
        ".loader: _load_stat\n.format: SetFormat\n.timemade: 1794809170.035187\n.count: 3\n.size: 300\n.kindname: \n"
        ".kindheader: Kind (class / dict of class)\n.numrows: 2\n.r: 1 200 dict of job.Order\n.r: 2 100 list\n"
        ".end: .loader: _load_stat\n\n"
    )
    kept, loaded, difference, foreign, n_tables, sizes, refused = run_json(
        tmp_path,
        HEAD,
        """
        hp = heaptide.hpy()
        hp.setrelheap()
        run_task()
        before = hp.heap() & Document
        before.stat.dump("tables.hpy", "w")
        run_task(11)
        after = hp.heap() & Document
        after.dump("tables.hpy")
        guppys = hp.load("guppy.hpy")
        try:
            hp.pb()
        except NotImplementedError as error:
            refused = str(error)
        print(json.dumps([
            repr(before.stat) == repr(before),
            [repr(hp.load("tables.hpy")), repr(list(hp.loadall("tables.hpy"))[-1])] == [repr(before), repr(after)],
            [(after.stat - before.stat).count, repr(after.diff(before)).splitlines()],
            [guppys.count, guppys.size, repr(guppys).splitlines()[2]], len(list(hp.loadall("tables.hpy"))),
            [before.stat.size == before.size, before.stat.numrows], refused,
        ]))
        """,
    )
    assert kept and loaded and n_tables == 2 and sizes == [True, 1]
    assert difference[0] == 11
    assert difference[1][0] == "Summary of difference operation (A-B)."
    assert difference[1][-1].split()[1] == "11"
    assert foreign == [3, 300, "     0      1  33      200  67       200  67 dict of job.Order"]
    assert "heaptide heap explore" in refused


@pytest.mark.once
def test_heapys_relations_and_kinds_classify_and_select_objects(tmp_path: Path) -> None:
    seen = run_json(
        tmp_path,
        HEAD,
        """
        hp = heaptide.hpy()
        hp.setrelheap()
        run_task()
        h = hp.heap()
        documents = h & hp.Type(Document)
        first = KEPT[0]
        print(json.dumps([
            documents.count, (h & hp.Clodo(Document)).count, (h & hp.Id(id(first))).theone is first,
            (h & hp.Module(name="__main__")).count, (h & hp.Size(hp.iso(KEPT[-1]).size)).count >= 50,
            (h.by(hp.Via)[0] & hp.Anything).count == h.byvia[0].count, (h & hp.Via("['KEPT']")).count,
            (hp.iso(first).maprox.tags).theone is first.tags, (hp.iso(first.tags).maprox[1]).theone,
            hp.iso(Document).dictof.owners.theone is Document, repr(hp.Nothing), repr(h - h), documents.brief[:25],
            (h & hp.Clodo(dictof=Document)).count == documents.dictof.count, "unknown: record" in hp.iso(first).prod,
        ]))
        """,
    )
    assert seen[:4] == [100, 100, True, 100]
    assert seen[4:6] == [True, True]
    assert seen[6] in (0, 1), "the list is older than the reference heap"
    assert seen[7:] == [True, "two", True, "hp.Nothing", "hp.Nothing", "<100 __main__.Document: 0", True, True]


@pytest.mark.once
def test_session_during_a_recording_has_allocation_sites(tmp_path: Path) -> None:
    lines, prod = run_json(
        tmp_path,
        HEAD,
        """
        with heaptide.Tracker("session.tide", objects=True):
            run_task()
            h = heaptide.heap() & Document
            rows = [name for _, _, name in h.byprod.partition.rows()]
            prod = h.byid[0].prod
        print(json.dumps([rows, prod]))
        """,
    )
    line = next(number for number, text in enumerate(HEAD.splitlines(), 1) if "KEPT.append" in text)
    assert any(f"program.py:{line}" in row for row in lines), lines
    assert f'program.py", line {line}, in run_task' in prod


@pytest.mark.once
def test_code_for_guppy_and_objgraph_runs_on_heaptide(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from guppy import hpy\nimport objgraph\nprint(hpy().heap().count > 1000, objgraph.count('dict') > 0)\n"
    )
    assert python(program, cwd=tmp_path, HEAPTIDE_COMPAT="guppy,objgraph").stdout == "True True\n"
