"""heapy's shortest paths: from roots, or from other objects, to the objects of a set."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any, SupportsIndex

from heaptide.inspection.renderings import brief

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaptide._native import HeapSet
    from heaptide.inspection.sets import IdentitySet

N_PATHS = 10
# At most this many paths are read to find the objects at each step.
_MAX_READ = 100_000
# At most this many paths are sorted.
_MAX_SORTED = 1000

# References to avoid: from any object of the first set to any of the second.
Edges = list[tuple["HeapSet", "HeapSet"]]


class Path(str):
    """One path, as a Python expression. `src` and `tgt` are the sets of its first and its last object."""

    __slots__ = ("_addresses", "_of", "number", "steps")
    number: int
    steps: list[str]
    _of: HeapSet
    _addresses: list[int]

    def __new__(cls, of: HeapSet, number: int, addresses: list[int], steps: list[str]) -> Path:
        """Create a path through the objects at these addresses."""
        path = super().__new__(cls, "".join(steps))
        path.number, path.steps, path._of, path._addresses = number, steps, of, addresses
        return path

    @property
    def src(self) -> IdentitySet:
        """The set of the first object."""
        return self.objects[0]

    @property
    def tgt(self) -> IdentitySet:
        """The set of the last object."""
        return self.objects[-1]

    @property
    def objects(self) -> list[IdentitySet]:
        """The set of each object, from the first to the last."""
        from heaptide.inspection.sets import IdentitySet

        view = self._of.view()
        return [IdentitySet(view.at([address])) for address in self._addresses]


class Paths:
    """Shortest paths to a set. Prints ten of them; `more` has the next ten, `all` all of them.

    numpaths   number of paths
    maxpaths   number of paths to print; can be assigned
    """

    __slots__ = ("_avoid", "_first", "_n_paths", "_read", "_set", "_sources", "_without", "maxpaths")

    def __init__(
        self,
        heap_set: HeapSet,
        avoid: HeapSet | None = None,
        sources: HeapSet | None = None,
        without: Edges | None = None,
        first: int = 0,
        maxpaths: int = N_PATHS,
    ) -> None:
        self._set = heap_set
        self._avoid = avoid
        self._sources = sources
        self._without: Edges = without or []
        self._first = first
        self.maxpaths = maxpaths
        self._n_paths, self._read = self._find(first + maxpaths)

    def _find(self, limit: int) -> tuple[int, list[Path]]:
        n_paths, found = self._set.paths(limit, avoid=self._avoid, sources=self._sources, without=self._without)
        if len(found) < n_paths <= _MAX_SORTED:
            return self._find(n_paths)
        if self._sources is not None:
            found = [(addresses, [self._name_of(addresses[0]), *steps[1:]]) for addresses, steps in found]
        if len(found) == n_paths:
            # Keep the order of the roots, best first.
            is_from_roots = self._sources is None
            roots = {steps[0]: number * is_from_roots for number, (_, steps) in reversed(list(enumerate(found)))}
            found.sort(key=lambda path: (roots[path[1][0]], _natural("".join(path[1]))))
        return n_paths, [Path(self._set, index, *each) for index, each in enumerate(found)]

    def _name_of(self, source: int) -> str:
        """Return heapy's name of the object at which a path begins: `Src` if there is only one such object."""
        assert self._sources is not None
        return "Src" if len(self._sources) == 1 else brief(self._set.view().at([source]))

    def _first_paths(self, number: int) -> list[Path]:
        if len(self._read) < min(number, self._n_paths):
            self._read = self._find(min(max(number, 2 * len(self._read)), self._n_paths))[1]
        return self._read

    @property
    def numpaths(self) -> int:
        """Number of paths."""
        return self._n_paths

    def __len__(self) -> int:
        return self._n_paths

    def __getitem__(self, index: SupportsIndex) -> Path:
        number = index.__index__()
        if number < 0:
            number += self._n_paths
        if not 0 <= number < self._n_paths:
            raise IndexError(f"there is no path {number}: there are {self._n_paths}")
        return self._first_paths(number + 1)[number]

    def __iter__(self) -> Iterator[Path]:
        return self.iter()

    def iter(self, start: int = 0, stop: int | None = None) -> Iterator[Path]:
        """Yield the paths from one number to another."""
        end = self._n_paths if stop is None else min(stop, self._n_paths)
        for number in range(start, end):
            yield self[number]

    def aslist(self) -> list[Path]:
        """Return all paths."""
        return list(self._first_paths(self._n_paths))

    @property
    def sets(self) -> tuple[IdentitySet, ...]:
        """The objects at each step of the paths, from the first step to the last."""
        from heaptide.inspection.sets import IdentitySet

        return tuple(IdentitySet(each) for each in self._steps())

    def _steps(self) -> list[HeapSet]:
        paths = self._first_paths(min(self._n_paths, _MAX_READ))
        columns = zip(*(path._addresses for path in paths), strict=False)
        view = self._set.view()
        return [view.at(list(set(addresses))) for addresses in columns]

    @property
    def Src(self) -> IdentitySet:
        """The objects at which the paths begin."""
        return self.sets[0]

    @property
    def Dst(self) -> IdentitySet:
        """The objects at which the paths end: the nearest objects of the set."""
        return self.sets[-1]

    def edges_at(self, *levels: int) -> Edges:
        """Return the references at these steps: 0 is the first, -1 the last."""
        steps = self._steps()
        pairs = list(itertools.pairwise(steps))
        return [pairs[level] for level in levels]

    def avoided(self, *levels: int) -> Paths:
        """Return the shortest paths that do not use the references at these steps."""
        without = [*self._without, *self.edges_at(*levels)]
        return Paths(self._set, self._avoid, self._sources, without, maxpaths=self.maxpaths)

    copy_but_avoid_edges_at_levels = avoided

    @property
    def more(self) -> Paths:
        """The paths after those that were printed."""
        return self._from(self._first + self.maxpaths, self.maxpaths)

    @property
    def all(self) -> Paths:
        """All paths."""
        return self._from(0, self._n_paths)

    @property
    def top(self) -> Paths:
        """The paths from the first one on."""
        return self._from(0, self.maxpaths)

    def _from(self, first: int, maxpaths: int) -> Paths:
        return Paths(self._set, self._avoid, self._sources, self._without, first, maxpaths)

    def __repr__(self) -> str:
        end = min(self._first + self.maxpaths, self._n_paths)
        lines = [f"{number:2d}: {self[number]}" for number in range(self._first, end)]
        if self._n_paths > end:
            lines.append(f"<... {self._n_paths - end} more paths ...>")
        return "\n".join(lines) or ("<No more paths>" if self._n_paths else "<No paths>")


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a sort key that compares numbers in the text by value."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


def as_edges(heap_set: HeapSet, edges: Any) -> Edges:
    """Translate the result of :meth:`Paths.edges_at` into the view to which a set belongs."""
    view = heap_set.view()
    return [(view.at(first.addresses()), view.at(second.addresses())) for first, second in edges or ()]
