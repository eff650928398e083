"""Tests that programs written for guppy run unchanged on Heaptide, and that both print the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

pytest.importorskip("guppy", reason="guppy3 has no wheel for this interpreter")

HEAD = """
import guppy, sys
from guppy import Root, hpy
import guppy.heapy, guppy.sets
hp = hpy()

class Order:
    __slots__ = ("items", "number", "__weakref__")
    def __init__(self, number):
        self.number = number
        self.items = [number, str(number)]

class Box:
    __slots__ = ("order",)

# No other module refers to these objects, so the results do not depend on loaded modules.
orders = [Order(1000 + number) for number in range(12)]
cache = {"a": orders[3]}
boxes = (Box(), [orders[5]])
boxes[0].order = orders[5]
chain = Box()
for number in range(12):
    holder = Box() if number % 2 else [None]
    if number % 2:
        holder.order = outer
    else:
        holder[0] = chain if number == 0 else outer
    outer = holder
"""

# Expressions whose results guppy and Heaptide print as the same text.
SAME_RESULTS = {
    "paths of one object": "sorted(tail(path) for path in hp.iso(orders[3]).sp)",
    "numpaths": "hp.iso(*orders).sp.numpaths, hp.iso(orders[3]).sp.maxpaths",
    "paths as list": "len(hp.iso(*orders).sp.aslist()), len(list(hp.iso(*orders).shpaths))",
    "path by number": "tail(hp.iso(orders[0]).sp[0])",
    "path number out of range": "fails(lambda: hp.iso(orders[0]).sp[7])",
    "printed paths": "[tail(line) for line in str(hp.iso(orders[0]).sp).splitlines()]",
    "number of printed paths": "len(str(hp.iso(*orders).sp).splitlines()), str(hp.iso(*orders).sp).splitlines()[-1]",
    "more paths": "len(str(hp.iso(*orders).sp.more).splitlines())",
    "paths from a set": "str(hp.iso(orders[3]).get_shpaths(src=hp.iso(cache))).partition('[')[2]",
    "paths around an object": "len(hp.iso(orders[3]).get_shpaths(avoid_nodes=hp.iso(cache)).aslist())",
    "first and last object": "hp.iso(orders[0]).sp[0].tgt.theone is orders[0], hp.iso(orders[0]).sp.Dst.theone is orders[0]",
    "sets of steps": "hp.iso(orders[3]).sp.sets[-1].theone is orders[3], hp.iso(orders[3]).sp.sets[-2].count",
    "references at the last step": "hp.iso(orders[3]).get_shpaths(avoid_edges=hp.iso(orders[3]).sp.edges_at(-1)).numpaths",
    "avoided": "hp.iso(orders[3]).sp.avoided(-1).numpaths",
    "reference pattern": "without_addresses(hp.iso(*orders).rp)",
    "pattern by type": "without_addresses(hp.iso(orders[5]).get_rp(depth=1, er=hp.Type))",
    "rows of a pattern": "hp.iso(orders[3]).rp[0].theone is orders[3], hp.iso(orders[3]).rp.a.count",
    "row by letters": "hp.iso(orders[3]).rp._.theone is orders[3], str(hp.iso(*orders).rp.a.kind)",
    "iterated pattern": "[each.count for each in hp.iso(orders[3]).rp], len(hp.iso(orders[3]).rp)",
    "unknown row": "fails(lambda: hp.iso(orders[3]).rp.zz)",
    "pattern from a source": "without_addresses(hp.iso(orders[3]).get_rp(src=hp.iso(cache))).splitlines()[1]",
    "values by id": "hp.iso('one text', 5, 'another').byid",
    "values of one kind": "hp.iso('one text', 'another').byid",
    "object of a row": "hp.iso('one text', 'another').byid[1].theone",
    "kinds": "texts(hp.Type(int), hp.Clodo(Order), hp.Clodo(dictof=Order), hp.Size(28), hp.Via(\"['a']\"), hp.Type(Order).dictof)",
    "kinds of referrers": "texts(hp.Rcs(hp.Type(int)), hp.Prod(), hp.Module('__main__'), hp.Anything, hp.Nothing)",
    "subtypes": "str(hp.Type(int).alt('<=')), (hp.iso(True, 5, 'x') & hp.Type(int).alt('<=')).count",
    "sizes": "(hp.iso(*orders, [], ()) & hp.Size(hp.iso(orders[0]).size)).count == 12",
    "kinds together": "(hp.iso(5, 'a', []) & (hp.Type(int) | hp.Type(str))).count, (hp.iso(5, 'a') - hp.Type(int)).theone",
    "both relations": "len(hp.iso(5, 1 << 40, 'a').by(hp.Type & hp.Size)), hp.iso(5, 1 << 40, 'a').by(hp.Type & hp.Size).count",
    "two rows": "len(hp.iso(5, 6, 'a').by(hp.Type(int).biper))",
    "findex": "len(hp.iso(5, 'a', []).by(hp.findex(hp.Type(int), hp.Type(str))))",
    "referred by": "len(hp.iso(*orders).by(hp.Clodo.refdby)) > 1",
    "set of objects": "hp.Idset(orders).theone is orders, hp.idset(orders).count",
    "attributes of types": "texts(hp.Type.Int, hp.Type.Str)",
    "families": "hp.Anything.fam is not None, hp.iso(5).fam is not None",
    "rows of the partition": "[(row.index, row.count, row.name) for row in hp.iso(5, 6, 'a').partition.get_rows()]",
    "number of rows": "hp.iso(5, 6, 'a').partition.numrows, hp.iso(5, 6, 'a').partition.get_row(0).name",
    "part of a table": "hp.iso(5, 6, 'a', []).stat[0:2]",
    "difference": "hp.iso(5, 6, 7, 'a', [1]).stat - hp.iso(5).stat",
    "row of a difference": "(hp.iso(5, 6, 7, 'a', [1]).stat - hp.iso(5).stat)[0]",
    "length of a difference": "len(hp.iso(5, 6, 7, 'a', [1]).stat - hp.iso(5).stat)",
    "references to an object": "hp.iso(orders[3]).pathsin.numpaths",
    "root": "Root().guppy.heapy.Use.iso(5).theone, hp.Root, guppy.__version__",
    "prefix": "[hp.reprefix, setattr(hp, 'reprefix', 'h.'), hp.reprefix]",
    "bit sets": "guppy.sets.immbitset([1, 5]) | guppy.sets.immbit(3), list(guppy.sets.immbitrange(1, 4)), 7 in ~guppy.sets.immbitset([1])",
    "changed bit set": "changed_bits()",
    "node sets": "len(guppy.sets.immnodeset(orders) - guppy.sets.mutnodeset(orders[:5])), orders[1] in guppy.sets.immnodeset(orders)",
    "union of node sets": "len(guppy.sets.immnodeset_union([orders[:3], orders[2:6]]))",
    "brief": "without_addresses(hp.iso(*orders).brief)",
    "objects of a set": "sorted(type(each).__name__ for each in hp.iso(orders[0], 5, 'a').nodes), len(hp.iso(*orders).nodes)",
    "comparisons of sizes": "texts(*(hp.Size(10).alt(sign) for sign in ('<', '<=', '==', '!=', '>', '>=')))",
    "comparisons of types": "texts(*(hp.Type(dict).alt(sign) for sign in ('<', '<=', '==', '!=', '>', '>=')), ~hp.Type(int))",
    "types of referrers": "hp.iso(*orders).by(hp.Type.refdby)",
    "pattern with more rows": "without_addresses(hp.iso(chain).get_rp(depth=15))",
    "more rows of a pattern": "without_addresses(hp.iso(chain).get_rp(depth=15).more)",
    "rows after the last": "str(hp.iso(chain).get_rp(depth=15).more.more)",
    "complement of a bit set": "~guppy.sets.immbitset([1])",
    "operators of a mutable bit set": "mutable_operators()",
    "numbers popped from a bit set": "popped_bits([1, 2, 9])",
    "numbers popped from a complement": "popped_bits(~guppy.sets.immbitset([1, 2])), popped_bits(-1), fails((~guppy.sets.mutbitset([1])).mutcopy().pop)",
    "end of a complement": "[fails(lambda: function(guppy.sets.mutbitset(-1))) for function in (len, list)]",
    "brief with values": "hp.iso(5, 6).brief, hp.iso('a' * 200).brief, hp.iso(1.5, 2.5).brief, hp.iso(None).brief, hp.iso(b'abc').brief",
    "brief with names": "hp.iso(tail).brief, hp.iso(len).brief, hp.iso(sys).brief, hp.iso(Order).brief",
    "brief of several kinds": "without_addresses(hp.iso(5, 'a', []).brief), str(hp.iso(5, 'a').kind)",
    "brief of many objects": "len(hp.iso(*orders).brief), hp.iso(*map(float, range(9))).brief",
    "paths into an object": "re.sub('0x[0-9a-f]+', '', str(hp.iso(chain).pathsin)), str(hp.iso(boxes[1]).pathsin)",
    "paths out of an object": "texts(hp.iso(orders).pathsout, hp.iso(boxes[1]).pathsout)",
    "order of paths": "[tail(line) for line in str(hp.iso(*orders).sp).splitlines()]",
    "values of floats by id": "hp.iso(1.5, 2.25).byid, hp.iso(b'x', b'yy').byid, hp.iso(sys, re).byid, hp.iso(2.5, 'b').byid",
    "long text by id": "hp.iso('x' * 100, 'ab').byid",
    "immediate dominators": "[row.name for row in hp.iso(orders[3]).imdom.partition.get_rows()], hp.iso(orders[1]).imdom.theone is orders",
    "pattern of dominators": "without_addresses(hp.iso(orders[3]).get_rp(imdom=True, depth=1))",
    "pattern by type in depth": "[row.partition(':')[0] for row in str(hp.iso(orders[3]).get_rp(er=hp.Type)).splitlines()]",
    "table of unreachable objects": "type(hp.heapu()).__name__, hp.heapu().kindheader, hp.heapu(rma=0, abs=1).count >= 0",
    "reference point": "[hp.setref(None, hp.heapu()), hp.setrelheapu(hp.heapu()), hp.setrelheapu()][0]",
    "tables of first kinds": "hp.iso(5, 'a', []).by(hp.findex(hp.Type(int), hp.Type(str))), hp.iso(5, 6, 'a').by(hp.Type(int).biper)",
    "table of both relations": "hp.iso(5, 6, 'a').by(hp.Type & hp.Size)",
    "kind contains": "5 in hp.Type(int), orders[0] in hp.Type(int), orders[0] in hp.Clodo(Order)",
    "equal sets": "hash(hp.iso(*orders)) == hash(hp.iso(*orders)), hp.iso(*orders) == hp.iso(*orders)",
    "classifier of a set": "len(hp.iso(5, 6, er=hp.Type)), len(hp.idset([5, 6], er=hp.Size))",
    "rows after the last of a set": "str(hp.iso(5).more), hp.iso(5).more.count, str(hp.iso(5).stat.more)",
    "rows after the last of a difference": "str((hp.iso(5, 'a').stat - hp.iso(5).stat).more), hp.iso(5).stat - hp.iso(6).stat",
    "dumped tables": "dumped(hp.iso(5, 'a').stat, hp.iso(5).stat)",
    "dumped difference": "dumped(hp.iso(5, 'a').stat - hp.iso(5).stat)",
    "modules of the root": "hp.Root.i0_modules is sys.modules, type(Root().guppy.hpy()) is type(hp)",
    "numbers as bit sets": "guppy.sets.immbitset(7), guppy.sets.immbitset([0, 1]) & 1, guppy.sets.immbit(3) | 5",
    "numbers by id": "hp.iso(*range(40)).byid, hp.iso(*range(40)).byid.more, hp.iso(10.0, 9.0, -2.0).byid",
    "rows of a table by id": "hp.iso(*range(40)).byid[15:18], str(hp.iso('a', 'bb', 'c').byid[0])",
    "single values by id": "hp.iso(None).byid, hp.iso(True, False).byid, hp.iso(tail, fails).byid, hp.iso(len, abs).byid",
    "code by id": "hp.iso(tail.__code__, fails.__code__).byid, hp.iso(tail.__code__).brief",
    "rows keep their classifier": "hp.iso(5, 6, 'a').bysize[0], hp.iso(orders[3]).byvia[0], hp.iso(*orders).bytype[0]",
    "kinds of a classifier": "str(hp.iso(5, 6, 'a').bysize.kind), str(hp.iso(orders[3]).byvia.kind), str(hp.iso(5).byunity.kind)",
    "kinds of a classifier as selection": "hp.iso(5, 6, 'a') & hp.iso('b').bysize.kind, hp.iso(*orders) & hp.iso(orders[3]).byvia.kind",
    "contained kinds": "hp.Type(bool) <= hp.Type(int), hp.Type(str) <= hp.Anything, hp.Anything <= hp.Type(str), hp.Type(int) < hp.Type(int), hp.Type(int) < hp.Type(int) | hp.Type(str), hp.Type(int) >= hp.Type(bool)",
    "classifiers": "setattr(hp, 'reprefix', 'hp.'), hp.Type, hp.Clodo, hp.Size, hp.Via, hp.Type & hp.Size, [hp.Nothing, hp.Anything], str(hp.Nothing)",
    "paths to an object that nothing holds": "hp.iso(object()).sp.numpaths",
    "functions in a pattern": "hp.iso(tail).rp",
    "kinds of one classifier combined": "texts(hp.Type(int) & hp.Type(str), hp.Type(int) - hp.Type(str), hp.Type(str) ^ hp.Type(int), hp.Type(int) & hp.Type(int), hp.Type(int) - hp.Type(int))",
    "selection by combined kinds": "[(hp.iso(5, 'a', []) & kind).count for kind in (hp.Type(int) ^ hp.Type(str), hp.Type(int) & hp.Type(str))]",
    "rows by identity set": "hp.iso(5, 6, 'a').byidset, hp.iso(5, 'a').by(hp.Idset), hp.iso(5, 'a').byidset[0]",
    "values of no classifier": "[fails(each) for each in (lambda: hp.Type(5), lambda: hp.Size('x'), lambda: hp.Id([]))]",
    "unknown classifiers": "[fails(lambda: hp.iso(5).by(each)) for each in (int, 'nope', hp.Type(int))], fails(lambda: hp.iso(5)['x'])",
    "unused sets": "unused_sets()",
    "disjoint": "hp.iso(5).disjoint(hp.iso(6)), hp.iso(5).disjoint(hp.iso(5))",
}

FUNCTIONS = """
import re

def tail(path):
    return re.sub(r".*__dict__", "", str(path))

def without_addresses(text):
    # Addresses decide which objects a row shows as examples.
    return re.sub(r"(: )0x[0-9a-f]+.*", r"\\1", str(text))

def texts(*kinds):
    return [str(kind) for kind in kinds]

def dumped(*stats):
    import io
    file = io.StringIO()
    for stat in stats:
        stat.dump(file)
    file.seek(0)
    text = re.sub("timemade: .*", "", file.getvalue())
    return text, [str(hp.load(file)) for _ in stats]

def fails(function):
    try:
        function()
    except Exception as error:
        return type(error).__name__

def unused_sets():
    # Both sets contain orders[3]. The second is first used after the first.
    one, other = hp.iso(orders[3]), hp.iso(*orders, orders[4].items)
    return one.referrers.count, one.referrers, other.referrers, one.byvia, without_addresses(one.rp), hp.iso(*orders).byrcs

def changed_bits():
    bits = guppy.sets.mutbitset([1, 2])
    bits |= guppy.sets.immbitset([9])
    bits.discard(1)
    return list(bits), bool(bits.tas(4)), 4 in bits

def popped_bits(numbers):
    def pop(*index):
        bits = guppy.sets.mutbitset(numbers)
        return fails(lambda: bits.pop(*index)) or guppy.sets.mutbitset(numbers).pop(*index), bits
    return [pop(*index) for index in ((), (0,), (-1,), (1,), (-2,))], fails(guppy.sets.mutbitset([]).pop)

def mutable_operators():
    one, other = guppy.sets.mutbitset([1, 2]), guppy.sets.immbitset([2])
    return [~one, one | other, one & other, one - other, one ^ other, 4 | one, one.mutcopy(), {~one: 1}[~one]]

for name, expression in EXPRESSIONS.items():
    try:
        print("==", name, "==", eval(expression))
    except Exception as error:
        print("==", name, "==", type(error).__name__, error)
"""


def output(folder: Path, *, compat: bool) -> dict[str, str]:
    """Run all expressions under guppy, or under Heaptide's name for it."""
    program = folder / "program.py"
    program.write_text(f"{HEAD}\nEXPRESSIONS = {SAME_RESULTS!r}\n{FUNCTIONS}")
    environment = {**os.environ, **({"HEAPTIDE_COMPAT": "guppy"} if compat else {})}
    done = subprocess.run([sys.executable, program], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    parts = re.split(r"^== (.*?) == ", done.stdout, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, str]]:
    """The results of all expressions, of guppy and of Heaptide."""
    folder = tmp_path_factory.mktemp("guppy")
    return output(folder, compat=False), output(folder, compat=True)


@pytest.mark.parametrize("name", SAME_RESULTS)
def test_expression_has_the_same_result_as_with_guppy(both: tuple[dict[str, str], dict[str, str]], name: str) -> None:
    by_guppy, by_heaptide = both
    assert by_heaptide[name] == by_guppy[name]


def test_rows_below_a_row_are_its_attributes(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        HEAD + "rp = hp.iso(orders[3]).rp\nprint(rp.a.a.count == rp.aa.count, rp.a.theone is cache)\n"
    )
    environment = {**os.environ, "HEAPTIDE_COMPAT": "guppy"}
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == "True True\n", done.stderr


def test_kept_tables_do_not_appear_in_later_heaps(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        HEAD
        + "hp.heap().stat - hp.heap().stat\nbefore = hp.heap().stat\nafter = hp.heap().stat\n"
        + "print((after - before).count)\n"
    )
    environment = {**os.environ, "HEAPTIDE_COMPAT": "guppy"}
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert abs(int(done.stdout)) <= 5, done.stdout + done.stderr
