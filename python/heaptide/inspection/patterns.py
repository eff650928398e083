"""heapy's reference pattern: a tree of the referrers of a set by kind, their referrers, and so on.

Each row has a number and a name. A name has one letter per level of the tree: ``rp.a`` is the first referrer row, and
``rp.ab`` or ``rp.a.b`` is the second row below it. ``rp.a3`` means ``rp.aaa``.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any, SupportsIndex

from heaptide.inspection.renderings import WIDTH, alternatives, in_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from heaptide._native import HeapSet
    from heaptide.inspection.kinds import Relation
    from heaptide.inspection.sets import IdentitySet

N_ROWS = 10
DEPTH = 7
# A pattern with more rows is unreadable.
_MAX_ROWS = 1000
# The column of the first row's flag.
_FLAG_COLUMN = 9
# The pattern does not continue to the referrers of these kinds.
_STOPS = {"module", "type", "dict of module", "dict of type", "types.CodeType", "types.FrameType"}
_OWN = "heaptide.inspection."

Step = tuple[int, ...]


class PatternRow:
    """One row: the objects of one kind that refer to the objects of the parent row."""

    __slots__ = ("flag", "index", "kind", "members", "path")

    def __init__(self, index: int, path: Step, flag: str, kind: str, members: HeapSet) -> None:
        self.index = index
        self.path = path
        self.flag = flag
        self.kind = kind
        self.members = members

    @property
    def set(self) -> IdentitySet:
        """The objects of the row."""
        from heaptide.inspection.sets import IdentitySet

        return IdentitySet(self.members)

    @property
    def name(self) -> str:
        """The name of the row: one letter per level, ``a3`` for three equal letters; ``_`` for the set itself."""
        runs = [(_letters(step), len(list(run))) for step, run in itertools.groupby(self.path)]
        return "".join(letter * n if n < 3 else f"{letter}{n}" for letter, n in runs) or "_"

    def __repr__(self) -> str:
        name = f"{self.index:>2}: {self.name} "
        fill = ("-", " ")[self.index % 2] * (_FLAG_COLUMN + len(self.path) - len(name))
        text = f"{name}{fill} {self.flag} {len(self.members)} {self.kind}: "
        text += in_row(self.members, WIDTH - len(text))
        return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."


def _letters(number: int) -> str:
    last = chr(ord("a") + number % 26)
    return last if number < 26 else _letters(number // 26 - 1) + last


def _steps(name: str) -> Step | None:
    """Parse the name of a row: return the child number at each level, or None if it is not the name of a row."""
    if name == "_":
        return ()
    if not re.fullmatch(r"([a-z]\d*)+", name):
        return None
    found: list[int] = []
    for letter, number in re.findall(r"([a-z])(\d*)", name):
        found += [ord(letter) - ord("a")] * int(number or 1)
    return tuple(found)


class ReferencePattern:
    """Referrers of a set by kind, and their referrers. Prints ten rows; `more` has the next ten."""

    __slots__ = ("_bf", "_children", "_depth", "_er", "_first", "_n_rows", "_rows", "_set", "_stop")

    def __init__(
        self,
        heap_set: HeapSet,
        depth: int,
        children: Callable[[HeapSet], HeapSet],
        er: Relation,
        stop: Callable[[HeapSet, list[str]], bool] | None = None,
        bf: bool = False,
        nocyc: bool = False,
    ) -> None:
        self._set = heap_set
        self._depth = depth
        self._er = er
        self._stop = stop or (lambda members, names: all(name in _STOPS for name in names))
        self._bf = bf
        self._children = (children, nocyc)
        self._first, self._n_rows = 0, N_ROWS
        self._rows: list[PatternRow] | None = None

    @property
    def rows(self) -> list[PatternRow]:
        """All rows."""
        if self._rows is None:
            self._rows = self._generate()
        return self._rows

    def _generate(self) -> list[PatternRow]:
        rows: list[PatternRow] = []
        seen: dict[HeapSet, int] = {}
        hidden = self._set.view().of_kind("heaptide.inspection.heapy._LazyObjects").referents()
        children, nocyc = self._children
        open_rows: list[tuple[Step, HeapSet, tuple[HeapSet, ...]]] = [((), self._set, ())]
        while open_rows and len(rows) < _MAX_ROWS:
            path, members, above = open_rows.pop(0)
            if not len(members):
                break
            names = [name for name, _ in self._er.divide(members)]
            below: list[tuple[str, HeapSet]] = []
            if members in seen:
                flag = f"[^ {seen[members]}]"
            elif path and self._stop(members, [name for _, _, name in members.partition("kind").rows()]):
                flag = "[S]"
            else:
                referrers = children(members)
                for each in (*above, members) if nocyc else ():
                    referrers = referrers - each
                below = [
                    (name, part - hidden) for name, part in self._er.divide(referrers) if not name.startswith(_OWN)
                ]
                below = [(name, part) for name, part in below if len(part)]
                flag = "[R]" if not below else "[+]" if len(path) >= self._depth else "[-]"
            seen.setdefault(members, len(rows))
            rows.append(PatternRow(len(rows), path, flag, alternatives(names), members))
            if flag == "[-]":
                following = [((*path, n), part, (*above, members)) for n, (_, part) in enumerate(below)]
                open_rows = [*open_rows, *following] if self._bf else [*following, *open_rows]
        return rows

    def get_row(self, key: str | SupportsIndex) -> PatternRow:
        """Return a row by its number or its name."""
        if not isinstance(key, str):
            return self.rows[key.__index__()]
        steps = _steps(key)
        for row in self.rows:
            if row.path == steps:
                return row
        raise ValueError(f"Reference pattern has no row named {key!r}")

    get_row_named = get_row
    get_row_indexed = get_row

    def __getitem__(self, index: SupportsIndex) -> IdentitySet:
        return self._of(self.rows[index.__index__()])

    def __getattr__(self, name: str) -> IdentitySet:
        """Return the set of a row by its name: ``rp.ab``."""
        if not name.startswith("__") and _steps(name) is not None:
            try:
                return self._of(self.get_row(name))
            except ValueError:
                pass
        raise AttributeError(f"the reference pattern has no row {name!r}", name=name, obj=self)

    def _of(self, row: PatternRow) -> IdentitySet:
        from heaptide.inspection.sets import IdentitySet

        return IdentitySet(row.members, pattern=(self, row.path))

    def below(self, path: Step, name: str) -> IdentitySet | None:
        """Return the set of a row below another one, or None."""
        steps = _steps(name)
        found = [row for row in self.rows if steps and row.path == path + steps]
        return self._of(found[0]) if found else None

    def __iter__(self) -> Iterator[IdentitySet]:
        return (self._of(row) for row in self.rows)

    def iterlines(self, start: int = 0) -> Iterator[PatternRow]:
        """Yield the rows from a number on."""
        return iter(self.rows[start:])

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def depth(self) -> int:
        """The number of levels of the tree."""
        return self._depth

    @property
    def er(self) -> Relation:
        """The classifier of the referrers."""
        return self._er

    def paths(self, key: str | SupportsIndex, **options: Any) -> Any:
        """Return the shortest paths from the objects of a row to the set."""
        from heaptide.inspection.paths import Paths

        return Paths(self._set, sources=self.get_row(key).members, **options)

    @property
    def more(self) -> ReferencePattern:
        """The rows after these."""
        return self._from(self._first + self._n_rows, self._n_rows)

    @property
    def all(self) -> ReferencePattern:
        """All rows."""
        return self._from(0, _MAX_ROWS)

    @property
    def top(self) -> ReferencePattern:
        """The rows from the first one on."""
        return self._from(0, N_ROWS)

    def _from(self, first: int, n_rows: int) -> ReferencePattern:
        children, nocyc = self._children
        part = ReferencePattern(self._set, self._depth, children, self._er, self._stop, self._bf, nocyc)
        part._rows, part._first, part._n_rows = self.rows, first, n_rows
        return part

    def __repr__(self) -> str:
        name = {"Clodo": "[dict of] class", "Type": "type"}.get(self._er._name, self._er._name)
        last = min(self._first + self._n_rows, len(self.rows))
        heading = [] if self._first else [f"Reference Pattern by <{name}>."]
        rows = map(repr, self.rows[self._first : last])
        rest = ["<Type e.g. '_.more' for more.>"] if last < len(self.rows) else []
        return "\n".join([*heading, *rows, *rest])
