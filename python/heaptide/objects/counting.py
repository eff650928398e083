"""objgraph's functions that count objects and list new ones. The caller supplies a function that finds all objects.

:mod:`heaptide.objects` finds every object, :mod:`heaptide.compat.objgraph` only those that the collector tracks,
like objgraph. Both export the methods of a :class:`Counting` as functions.
"""

from __future__ import annotations

import gc
import operator
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from heaptide import _native
from heaptide.objects.references import short_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import TextIO

    Filter = Callable[[Any], bool]

_COLUMNS = ("old", "current", "new", "deltas")


class Counting:
    """Counts and lists the objects that `find` returns."""

    def __init__(self, find: Callable[[Iterable[object]], list[Any]], long_name: Callable[[type], str]) -> None:
        """Create the functions. `find` receives objects to leave out; objects that only these refer to are omitted."""
        self._find = find
        self._long_name = long_name
        self._peaks: dict[str, int] = {}
        self._current_ids: dict[str, set[int]] = {}
        # A type without new objects has an empty set.
        self._new_ids: defaultdict[str, set[int]] = defaultdict(set)
        self._has_short_names = True

    def count(self, typename: str, objects: Iterable[Any] | None = None) -> int:
        """Return the number of objects of a type; a name with a dot includes the module."""
        name = self._long_name if "." in typename else short_name
        return sum(number for kind, number in self._types(objects, None) if name(kind) == typename)

    def by_type(self, typename: str, objects: Iterable[Any] | None = None) -> list[Any]:
        """Return all objects of a type; a name with a dot includes the module."""
        found = self._all() if objects is None else list(objects)
        name = self._long_name if "." in typename else short_name
        wanted = {kind for kind, _ in _native.count_types(found) if name(kind) == typename}
        return [each for each in found if type(each) in wanted] if wanted else []

    def typestats(
        self, objects: Iterable[Any] | None = None, shortnames: bool = True, filter: Filter | None = None
    ) -> dict[str, int]:
        """Return the number of objects of each type."""
        return self._by_name(self._types(objects, filter), shortnames)

    def most_common_types(
        self,
        limit: int | None = 10,
        objects: Iterable[Any] | None = None,
        shortnames: bool = True,
        filter: Filter | None = None,
    ) -> list[tuple[str, int]]:
        """Return the types with the most objects: names and counts, largest count first."""
        stats = sorted(self.typestats(objects, shortnames, filter).items(), key=operator.itemgetter(1), reverse=True)
        return stats[:limit] if limit else stats

    def show_most_common_types(
        self,
        limit: int | None = 10,
        objects: Iterable[Any] | None = None,
        shortnames: bool = True,
        file: TextIO | None = None,
        filter: Filter | None = None,
    ) -> None:
        """Print the types with the most objects."""
        stats = self.most_common_types(limit, objects, shortnames, filter)
        width = max((len(name) for name, _ in stats), default=0)
        for name, number in stats:
            print(f"{name:<{width}} {number}", file=file)

    def growth(
        self,
        limit: int | None = 10,
        peak_stats: dict[str, int] | None = None,
        shortnames: bool = True,
        filter: Filter | None = None,
    ) -> list[tuple[str, int, int]]:
        """Return the types with more objects than ever before: name, count, increase. The largest increase comes first.

        `peak_stats` is a dict that stores the counts from call to call; by default the whole process shares one.
        """
        peaks = self._peaks if peak_stats is None else peak_stats
        present = self._live(peaks, shortnames, filter)
        grown = {name: number - peaks.get(name, 0) for name, number in present.items() if number > peaks.get(name, 0)}
        for name in grown:
            peaks[name] = present[name]
        rows = sorted(grown.items(), key=operator.itemgetter(1), reverse=True)
        return [(name, present[name], more) for name, more in (rows[:limit] if limit else rows)]

    def show_growth(
        self,
        limit: int | None = 10,
        peak_stats: dict[str, int] | None = None,
        shortnames: bool = True,
        file: TextIO | None = None,
        filter: Filter | None = None,
    ) -> None:
        """Print the types with more objects than ever before. Prints nothing if no type grew."""
        rows = self.growth(limit, peak_stats, shortnames, filter)
        width = max((len(name) for name, _, _ in rows), default=0)
        for name, number, more in rows:
            print(f"{name:<{width}}{number:9d} {more:+9d}", file=file)

    def get_new_ids(
        self,
        skip_update: bool = False,
        limit: int | None = 10,
        sortby: str = "deltas",
        shortnames: bool | None = None,
        file: TextIO | None = None,
    ) -> dict[str, set[int]]:
        """Print how the objects of each type changed since the last call. Returns the addresses of new ones by type.

        With `skip_update`, return what the last call returned. A `limit` of 0 prints nothing, None prints every type.
        `shortnames` is remembered from call to call.
        """
        if skip_update:
            return self._new_ids
        if sortby not in _COLUMNS:
            raise KeyError(f"sortby must be one of {', '.join(_COLUMNS)}, not {sortby}")
        if shortnames is not None:
            self._has_short_names = shortnames
        name = short_name if self._has_short_names else self._long_name
        gc.collect()
        names: dict[type, str] = {}
        present: dict[str, set[int]] = {}
        for each in self._all(names, present):
            kind = type(each)
            if kind not in names:
                names[kind] = name(kind)
            present.setdefault(names[kind], set()).add(id(each))
        before, self._current_ids = self._current_ids, present
        self._new_ids.clear()
        rows = []
        for typename in [*present, *(known for known in before if known not in present)]:
            now, then = present.get(typename, set()), before.get(typename, set())
            if now or then:
                self._new_ids[typename] = now - then
                rows.append((typename, len(then), len(now), len(now - then), len(now) - len(then)))
        rows.sort(key=operator.itemgetter(_COLUMNS.index(sortby) + 1, 0), reverse=True)
        _print_new(rows if limit is None else rows[:limit], file)
        return self._new_ids

    def at(self, addr: int) -> Any | None:
        """Return the object at an address, which is its `id`, or None."""
        return next((each for each in self._all() if id(each) == addr), None)

    def at_addrs(self, address_set: Collection[int]) -> list[Any]:
        """Return the objects at these addresses."""
        wanted = set(address_set)
        return [each for each in self._all() if id(each) in wanted]

    def _types(self, objects: Iterable[Any] | None, filter: Filter | None, *own: object) -> list[tuple[type, int]]:
        """Return each type and the number of its objects, so that callers compare names per type, not per object."""
        found = self._all(*own) if objects is None else list(objects)
        return _native.count_types(found if filter is None else [each for each in found if filter(each)])

    def _live(self, peaks: dict[str, int], shortnames: bool, filter: Filter | None) -> dict[str, int]:
        """Return the number of objects of each type without garbage. Counts below their peak may be inexact."""
        gc.collect()
        return self._by_name(self._types(None, filter, peaks), shortnames)

    def _all(self, *own: object) -> list[Any]:
        """Return all objects except `own` and the objects in which these functions keep state."""
        ids = (self._current_ids, self._new_ids)
        return self._find([self._peaks, *ids, *(each for known in ids for each in known.values()), *own])

    def _by_name(self, types: list[tuple[type, int]], shortnames: bool) -> dict[str, int]:
        name_of = short_name if shortnames else self._long_name
        stats: dict[str, int] = {}
        for kind, number in types:
            name = name_of(kind)
            stats[name] = stats.get(name, 0) + number
        return stats


def _print_new(rows: list[tuple[str, int, int, int, int]], file: TextIO | None) -> None:
    """Print objgraph's table of new objects; nothing if it has no rows."""
    if not rows:
        return
    width = max(len(row[0]) for row in rows)
    rule = "=" * (width + 13 * 4)
    head = f"{'Type':<{width}}{'Old_ids':>13}{'Current_ids':>13}{'New_ids':>13}{'Count_Deltas':>13}"
    print(rule, head, rule, sep="\n", file=file)
    for typename, n_old, n_now, n_new, delta in rows:
        print(f"{typename:<{width}}{n_old:>13d}{n_now:>13d}{n_new:>+13d}{delta:>+13d}", file=file)
    print(rule, file=file)
