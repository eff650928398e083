"""Finds environment variables whose names resemble a variable of Heaptide: `HEAPTIDE_OBJECT` for `HEAPTIDE_OBJECTS`.

Other unknown names that begin with `HEAPTIDE` are accepted: the user may have defined them for another purpose.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

PREFIX = "HEAPTIDE"
# Names longer than this, without the prefix, may differ in two letters; others in one.
_LONG = 8


def misspelt(names: Iterable[str], known: Collection[str]) -> list[tuple[str, str]]:
    """Return each misspelt name, with the known name that was probably meant."""
    found = []
    for name in names:
        if not name.startswith(PREFIX) or name in known:
            continue
        ranked = sorted((distance(name.upper(), other), other) for other in known if other.startswith(PREFIX))
        n_differing, meant = ranked[0] if ranked else (1 << 30, "")
        if n_differing <= (2 if len(meant) - len(PREFIX) > _LONG else 1):
            found.append((name, meant))
    return found


def distance(one: str, other: str) -> int:
    """Return the edit distance: letters to insert, remove, replace or swap with their neighbour."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        before, last, row = row, before, [at]
        for column, wanted in enumerate(other, 1):
            cost = min(before[column] + 1, row[-1] + 1, before[column - 1] + (letter != wanted))
            if at > 1 and column > 1 and letter == other[column - 2] and one[at - 2] == wanted:
                cost = min(cost, last[column - 2] + 1)
            row.append(cost)
    return row[-1]
