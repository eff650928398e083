"""Short texts of objects, as heapy prints them: values of numbers and texts, names of functions, otherwise addresses.

Only objects of built-in types are converted to text by `repr`: other types could run code of the program.
"""

from __future__ import annotations

import os
import reprlib
import types
from typing import TYPE_CHECKING, Any

from heaptide.inspection.kinds import type_name

# Imported now: if imported later, its objects would count as new since the first inspection.
from heaptide.objects import at_addrs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heaptide._native import HeapSet

WIDTH = 80
# The text of a set shows at most this many objects.
_MAX_SHOWN = 40
_MAX_IN_ROW = 10
_WITH_VALUE = frozenset((bool, int, float, complex, str, bytes, type(None)))
# Types whose kind differs from their name.
_KINDS = {
    type(None): "types.NoneType",
    types.BuiltinFunctionType: "types.BuiltinMethodType",
    types.CodeType: "types.CodeType",
}
_NAMED = frozenset((types.FunctionType, types.BuiltinFunctionType))
_NAMED_KINDS = frozenset(("function", "types.BuiltinMethodType", "types.CodeType"))


def brief(heap_set: HeapSet) -> str:
    """Return a set in one line: the number of its objects, their kinds, and some of them."""
    if not len(heap_set):
        return "<Nothing>"
    divided = heap_set.partition("kind")
    rows = sorted((name, number) for number, (_, _, name) in enumerate(divided.rows()))
    if len(rows) == 1:
        start = f"<{len(heap_set)} {rows[0][0]}: "
        texts = sorted(samples(heap_set, _MAX_SHOWN))
        return f"{start}{fitted(texts, WIDTH - len(start) - 1, len(heap_set))}>"
    parts = " | ".join(brief(divided.members(number)) for _, number in rows[:_MAX_IN_ROW])
    text = f"<{len(heap_set)} {alternatives(name for name, _ in rows)}: {parts}>"
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 4]}...>"


def alternatives(names: Iterable[str]) -> str:
    """Return the name of one kind, or of several in heapy's form: ``(int | str)``."""
    listed = sorted(names)
    return listed[0] if len(listed) == 1 else f"({' | '.join(listed)})"


def in_row(heap_set: HeapSet, width: int) -> str:
    """Return some objects of a set for a row of a reference pattern: by address, or by name if all have names.

    Reading the values of the objects would take too long.
    """
    if {name for *_, name in heap_set.partition("kind").rows()} <= _NAMED_KINDS:
        return fitted(samples(heap_set, _MAX_IN_ROW), width, len(heap_set))
    return fitted([sample for *_, sample in heap_set.describe(_MAX_IN_ROW)], width, len(heap_set))


def fitted(texts: list[str], width: int, number: int) -> str:
    """Join the first text and as many others as fit; dots replace the rest of the `number` objects."""
    shown = ""
    for index, text in enumerate(texts, 1):
        longer = f"{shown}, {text}" if shown else text
        dots = "" if index == number else "..."
        if shown and len(longer) + len(dots) > width:
            return f"{shown}..."
        shown = longer
    return shown if len(texts) == number else f"{shown}..."


def samples(heap_set: HeapSet, limit: int) -> list[str]:
    """Return the texts of some objects of a set."""
    described = heap_set.describe(limit)
    found: dict[int, Any] = {}
    if heap_set.view().pid == os.getpid():
        found = {id(each): each for each in at_addrs([address for address, *_ in described])}
    texts = []
    for address, _, kind, sample in described:
        # The object may have been freed meanwhile, and another object may have its address.
        each = found.get(address)
        text = value_text(each) if address in found and _kind(type(each)) == kind else None
        texts.append(_without_length(kind, sample) if text is None else text)
    return texts


def _kind(of: type) -> str:
    return _KINDS.get(of) or type_name(of)


def value_text(each: Any) -> str | None:
    """Return the value of a number or text, or the name of a function or of code; None for other objects."""
    kind = type(each)
    if kind in _WITH_VALUE:
        return reprlib.repr(each)
    if kind in _NAMED:
        module = each.__module__ if kind is types.FunctionType else None
        return f"{module}.{each.__name__}" if isinstance(module, str) else str(each.__name__)
    if kind is types.CodeType:
        return f"{os.path.basename(each.co_filename)}:{each.co_firstlineno}:{each.co_name}"
    return None


def _without_length(kind: str, sample: str) -> str:
    return sample.partition("*")[0] if kind in ("set", "frozenset") else sample
