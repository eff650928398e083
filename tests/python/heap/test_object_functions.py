"""Tests objgraph's functions in ``heaptide.objects``: their output, and objects that objgraph does not find."""

from __future__ import annotations

import collections
import inspect
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from support.object_program import run
from support.pages import assert_runs_only_its_own_script, data_of

pytestmark = pytest.mark.once


def test_objects_that_the_collector_does_not_track_are_counted(tmp_path: Path) -> None:
    seen, tracked = run(
        tmp_path,
        """
        rows = [{"number": number + 1000, "name": f"row {number}", "pair": (number, float(number))} for number in range(5000)]
        gc.collect()
        stats = objects.typestats()
        tracked = sum(1 for each in gc.get_objects() if type(each) is float)
        print(json.dumps([[stats["dict"], stats["str"], stats["tuple"], stats["float"]], tracked]))
        """,
    )
    assert all(number >= 5000 for number in seen), seen
    assert tracked == 0


def test_growth_is_printed_once_and_in_objgraphs_columns(tmp_path: Path) -> None:
    first, second, third, common = run(
        tmp_path,
        """
        def grown():
            file = io.StringIO()
            objects.show_growth(peak_stats=peaks, file=file)
            return file.getvalue().splitlines()
        peaks = {}
        first, second, third = len(grown()), None, None
        kept = [Node(number) for number in range(30)]
        second = grown()
        third = grown()
        file = io.StringIO()
        objects.show_most_common_types(limit=3, objects=[Node(1), Node(2), 7], file=file)
        print(json.dumps([first, second, third, file.getvalue()]))
        """,
    )
    assert first == 10
    (row,) = [line for line in second if line.startswith("Node")]
    assert row.split() == ["Node", "30", "+30"]
    assert len(row) == max(map(len, second))
    assert [line for line in third if line.startswith("Node")] == []
    assert common == "Node 2\nint  1\n"


def test_chains_lead_from_a_module_through_untracked_objects_to_the_object(tmp_path: Path) -> None:
    backward, none, forward = run(
        tmp_path,
        """
        import types
        def build():
            node = Node("last")
            return {"first": [Node("other"), (1, (2, [node]))]}, node
        holder = types.ModuleType("holder")
        sys.modules["holder"] = holder
        holder.registry, found = build()
        chain = objects.find_backref_chain(found, lambda each: each is holder)
        nowhere = objects.find_backref_chain(found, lambda each: False, max_depth=3)
        forward = objects.find_ref_chain(holder, lambda each: each is found)
        print(json.dumps([[type(each).__name__ for each in each_chain] for each_chain in (chain, nowhere, forward)]))
        """,
    )
    assert backward == ["module", "dict", "dict", "list", "tuple", "tuple", "list", "Node"]
    assert none == ["Node"]
    assert forward == backward


def test_string_held_only_by_an_untracked_dict_has_a_chain(tmp_path: Path) -> None:
    type_names = run(
        tmp_path,
        """
        class Box:
            rows = []
        Box.rows.append({"text": "".join(["unique", " text"])})
        gc.collect()
        chain = objects.find_backref_chain(Box.rows[0]["text"], lambda each: each is Box)
        print(json.dumps([type(each).__name__ for each in chain]))
        """,
    )
    assert type_names[-3:] == ["list", "dict", "str"]
    assert type_names[0] == "type"


def test_graphs_are_svg_html_and_dot_without_graphviz(tmp_path: Path) -> None:
    path = run(
        tmp_path,
        """
        first = Node("first")
        first.next = Node("second")
        keeper = {"key": [first.next]}
        objects.show_backrefs([first.next], filename="back.svg", refcounts=True)
        objects.show_refs(first, filename="forth.html", extra_info=lambda each: "extra <info>")
        objects.show_chain(objects.find_backref_chain(first.next, objects.is_proper_module), filename="chain.dot")
        output = io.StringIO()
        objects.show_backrefs(first.next, output=output, max_depth=1, too_many=1)
        open("stub.dot", "w").write(output.getvalue())
        try:
            objects.show_refs(first, filename="picture.tree")
        except ValueError as error:
            printed = [str(error), objects.show_refs(first), objects.show_refs(first, filename="picture.png")]
        print(json.dumps(printed))
        """,
    )
    assert path[0] == "the format of picture.tree is unknown: use a name that ends in .svg, .png, .html or .dot"
    Path(path[1]).unlink()
    assert path[2] == "picture.png"
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    picture = ElementTree.parse(tmp_path / "back.svg").getroot()
    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert any(text and text.startswith("list [") for text in texts), "the reference count is missing"
    assert_runs_only_its_own_script(tmp_path / "forth.html")
    assert "extra &lt;info&gt;" in data_of(tmp_path / "forth.html")["svg"]
    chain = (tmp_path / "chain.dot").read_text()
    assert chain.startswith("digraph ObjectGraph {") and 'label="next"' in chain and "__main__" in chain
    assert "more backreference" in (tmp_path / "stub.dot").read_text()


def test_graphs_of_referrers_exclude_objects_created_to_draw_them(tmp_path: Path) -> None:
    dot = run(
        tmp_path,
        """
        import types
        class Order:
            pass
        class Basket:
            def __init__(self, order):
                self.order = order
                self.orders = [order]
        holder = types.ModuleType("holder")
        sys.modules["holder"] = holder
        def hold():
            order = Order()
            holder.orders = [{"order": order, "number": number} for number in range(5)]
        hold()
        def handle(order):
            basket = Basket(order)
            raise ValueError
        try:
            handle(holder.orders[0]["order"])
        except ValueError as error:
            holder.error = error
        output = io.StringIO()
        objects.show_backrefs(holder.orders[0]["order"], output=output, max_depth=5)
        print(json.dumps(output.getvalue()))
        """,
    )
    counts = collections.Counter(re.findall(r'^  o\d+ \[label="(\w+)', dot, re.MULTILINE))
    # Five dicts with the order, and the dict of the module; in 3.10 also the dict of the basket. The list in the
    # basket, and the list that contains the five dicts.
    n_dicts = 6 if sys.version_info >= (3, 11) else 7
    assert counts == {
        **{"Order": 1, "Basket": 1, "dict": n_dicts, "list": 2, "module": 1},
        **{"frame": 1, "traceback": 2, "ValueError": 1},
    }, dot
    names = set(re.findall(r'-> o\d+ \[label="(.*)"\]', dot))
    assert {"order", "orders", "basket", "tb_frame", "tb_next", "__traceback__", "error", "__dict__"} < names, (
        "an arrow has no name"
    )
    assert "];" in dot and not re.search(r"-> o\d+;", dot)


def test_graphs_count_omitted_objects_and_omit_modules_last(tmp_path: Path) -> None:
    back, forth = run(
        tmp_path,
        """
        import types
        holder = types.ModuleType("holder")
        sys.modules["holder"] = holder
        holder.first = Node("first")
        # The type name "dict" sorts before "module", so by name alone the dicts would all come first.
        holder.dicts = [{"names": vars(holder), "number": number} for number in range(4)]
        back, forth, inner = io.StringIO(), io.StringIO(), [1000.5]
        objects.show_backrefs([holder.first], max_depth=2, too_many=2, output=back)
        objects.show_refs([[inner, inner, inner, (inner,)]], max_depth=1, output=forth)
        print(json.dumps([back.getvalue(), forth.getvalue()]))
        """,
    )
    assert "module\\nholder" in back and "3 more backreferences" in back, back
    assert "dict\\n2 items\\n↑ 1 more" in back, "the list of dicts lies beyond the maximum depth"
    assert '[label="[0] and 2 more"]' in forth and forth.count("↓ 1 more") == 2, forth


def test_objects_are_found_by_type_by_address_and_as_new(tmp_path: Path) -> None:
    seen = run(
        tmp_path,
        """
        nodes = [Node(number) for number in range(3)]
        new = io.StringIO()
        objects.get_new_ids(file=io.StringIO())
        nodes.append(Node("new"))
        ids = objects.get_new_ids(file=new, limit=2)
        print(json.dumps([
            objects.count("Node"), objects.count("__main__.Node"), len(objects.by_type("Node")),
            objects.at(id(nodes[0])) is nodes[0], objects.at(1) is None, len(objects.at_addrs({id(each) for each in nodes})),
            ids["Node"] == {id(nodes[3])}, new.getvalue(), objects.is_proper_module(sys), objects.is_proper_module(nodes),
        ]))
        """,
    )
    assert seen[:7] == [4, 4, 4, True, True, 4, True]
    table = seen[7].splitlines()
    assert table[0] == table[2] == table[-1] == "=" * len(table[1])
    assert table[1].split() == ["Type", "Old_ids", "Current_ids", "New_ids", "Count_Deltas"]
    assert "Node" in seen[7]
    assert seen[8:] == [True, False]


# Names and parameters of the functions of objgraph 3.6.
OBJGRAPH = {
    "at": "addr",
    "at_addrs": "address_set",
    "by_type": "typename objects",
    "count": "typename objects",
    "find_backref_chain": "obj predicate max_depth extra_ignore",
    "find_ref_chain": "obj predicate max_depth extra_ignore",
    "get_leaking_objects": "objects",
    "get_new_ids": "skip_update limit sortby shortnames file",
    "growth": "limit peak_stats shortnames filter",
    "is_proper_module": "obj",
    "most_common_types": "limit objects shortnames filter",
    "show_backrefs": "objs max_depth extra_ignore filter too_many highlight filename extra_info refcounts shortnames "
    "output extra_node_attrs",
    "show_growth": "limit peak_stats shortnames file filter",
    "show_most_common_types": "limit objects shortnames file filter",
    "show_refs": "objs max_depth extra_ignore filter too_many highlight filename extra_info refcounts shortnames "
    "output extra_node_attrs",
    "typestats": "objects shortnames filter",
}


def test_every_function_of_objgraph_exists_with_its_parameters() -> None:
    from heaptide import objects

    for name, parameters in OBJGRAPH.items():
        assert list(inspect.signature(getattr(objects, name)).parameters) == parameters.split(), name
        assert getattr(objects, name).__name__ == name
        assert getattr(objects, name).__doc__
    assert {*OBJGRAPH, "show_chain"} <= set(objects.__all__)
