"""Who refers to whom among the objects of this process, also through objects that the collector does not track.

``gc.get_objects`` leaves out strings, numbers, and tuples and dicts that hold nothing else. Here they are found through
what refers to them. Frames of running functions count as referrers: since 3.11 the collector does not know them.
"""

from __future__ import annotations

import gc
import os
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_BATCH = 10_000


def all_objects(ignored: Iterable[object] = ()) -> list[Any]:
    """Every object that can be found: those that the collector tracks, and what they and running functions refer to.

    What is ignored is left out, and so is what only that refers to.
    """
    tracked = gc.get_objects()
    frames = running_frames()
    left_out = {id(tracked), id(frames), id(sys._getframe()), *map(id, frames), *map(id, ignored)}
    found = _without(left_out, tracked)
    left_out.update((id(found), id(left_out)))
    waiting = [*found.values(), *frames]
    del tracked, frames
    while waiting:
        fresh: dict[int, Any] = {}
        left_out.update((id(waiting), id(fresh)))
        for start in range(0, len(waiting), _BATCH):
            reached = referents(*waiting[start : start + _BATCH])
            fresh.update(zip(map(id, reached), reached, strict=True))
        reached = []
        waiting = _new_ones(fresh, found, left_out)
        found.update(zip(map(id, waiting), waiting, strict=True))
    return list(found.values())


def referents(*objects: Any) -> list[Any]:
    """What objects refer to, as ``gc.get_referents`` says it; a module is asked for its names alone.

    The module of asyncio (3.12) shows the collector objects that nobody refers to, which it keeps to use them again. A
    reference to one of those, once given back, frees it a second time, and the collector then never ends.
    """
    modules = [each for each in objects if isinstance(each, types.ModuleType)]
    if not modules:
        return gc.get_referents(*objects)
    found = gc.get_referents(*(each for each in objects if not isinstance(each, types.ModuleType)))
    found.extend(types.ModuleType.__getattribute__(module, "__dict__") for module in modules)
    return found


# Functions of their own: until 3.11 a comprehension keeps what it asks in cells, which would be among the objects.
def _without(left_out: set[int], objects: list[Any]) -> dict[int, Any]:
    return {id(each): each for each in objects if id(each) not in left_out and not is_own_frame(each)}


def _new_ones(fresh: dict[int, Any], found: dict[int, Any], left_out: set[int]) -> list[Any]:
    return [each for number, each in fresh.items() if number not in found and number not in left_out]


def running_frames() -> list[types.FrameType]:
    """The frames of all threads, innermost first, without our own."""
    frames = []
    innermost: types.FrameType | None
    for innermost in sys._current_frames().values():
        while innermost is not None:
            if not is_own_frame(innermost):
                frames.append(innermost)
            innermost = innermost.f_back
    # No variable refers to this very frame any more: that would be garbage, with everything our callers hold.
    return frames


def is_own_frame(each: object) -> bool:
    """Tell whether the object is a frame of this package."""
    return isinstance(each, types.FrameType) and each.f_code.co_filename.startswith(_OWN_FOLDER)


class Referrers:
    """Looks for referrers, several objects at a time. Objects of ours are never found."""

    def __init__(self, ignored: Iterable[object] = ()) -> None:
        self._ignored = {id(each) for each in ignored}
        self._ignored.update((id(self.__dict__), id(self._ignored)))
        # What the collector does not track and may still refer to something.
        self._untracked = [
            each
            for each in all_objects(ignored)
            if not gc.is_tracked(each) and isinstance(each, (tuple, dict)) and len(each) > 0
        ]
        self._ignored.add(id(self._untracked))
        self._frames = running_frames()
        self._ignored.add(id(self._frames))

    def of(self, objects: list[Any]) -> dict[int, list[Any]]:
        """Of each object, by its `id`, what refers to it."""
        wanted = set(map(id, objects))
        found: dict[int, list[Any]] = {id(each): [] for each in objects}
        own = {id(objects), id(wanted), id(found), id(found.values()), *map(id, found.values())} | self._ignored
        seen: set[int] = set()
        candidates = gc.get_referrers(*objects)
        own.update((id(candidates), id(own), id(seen)))
        for group in (candidates, self._untracked, self._frames):
            for each in group:
                if id(each) in own or id(each) in seen or is_own_frame(each):
                    continue
                seen.add(id(each))
                # Each referrer once for each object it refers to.
                for referent in {id(referent) for referent in referents(each)} & wanted:
                    found[referent].append(each)
        del candidates, group
        return found


def chain_back(start: Any, is_end: Callable[[Any], bool], max_depth: int, referrers: Referrers) -> list[Any]:
    """The shortest way from an object that is an end to `start`, or `start` alone if there is none."""
    if is_end(start):
        return [start]
    came_from: dict[int, Any] = {id(start): None}
    level = [start]
    for _ in range(max_depth - 1):
        found = referrers.of(level)
        next_level: list[Any] = []
        for each in level:
            for referrer in sorted_by_name(found[id(each)]):
                if id(referrer) in came_from or referrer is level or referrer is next_level or referrer is came_from:
                    continue
                came_from[id(referrer)] = each
                if is_end(referrer):
                    return _follow(referrer, came_from)
                next_level.append(referrer)
        if not next_level:
            break
        level = next_level
    return [start]


def chain_forward(
    start: Any, is_end: Callable[[Any], bool], max_depth: int, ignored: Iterable[object] = ()
) -> list[Any]:
    """The shortest way from `start` to an object that is an end, or `start` alone if there is none."""
    if is_end(start):
        return [start]
    came_from: dict[int, Any] = {id(start): None, **{id(each): None for each in ignored}}
    level = [start]
    for _ in range(max_depth - 1):
        next_level = []
        for each in level:
            for referent in referents(each):
                if id(referent) in came_from:
                    continue
                came_from[id(referent)] = each
                if is_end(referent):
                    return _follow(referent, came_from)[::-1]
                next_level.append(referent)
        level = next_level
    return [start]


def _follow(first: Any, came_from: dict[int, Any]) -> list[Any]:
    chain = [first]
    while True:
        following = came_from[id(chain[-1])]
        if following is None:
            return chain
        chain.append(following)


def sorted_by_name(objects: list[Any]) -> list[Any]:
    """In an order that does not depend on addresses: by type, then by what is shown of them."""
    return sorted(objects, key=lambda each: (type(each).__module__, type(each).__qualname__, short_repr(each)))


def short_repr(each: Any) -> str:
    """What tells an object from others of its type, in about 40 letters, without its address."""
    try:
        if isinstance(each, types.ModuleType):
            return str(each.__name__)
        if isinstance(each, (types.MethodType, types.BuiltinMethodType)) and hasattr(each, "__func__"):
            return f"{each.__func__.__name__} (bound)"
        if isinstance(each, types.FunctionType):
            return f"{each.__module__}.{each.__qualname__}"
        if isinstance(each, types.FrameType):
            return f"{each.f_code.co_filename}:{each.f_lineno} {each.f_code.co_name}"
        if isinstance(each, type):
            return f"{each.__module__}.{each.__qualname__}"
        if isinstance(each, (list, tuple, dict, set, frozenset)):
            return f"{len(each)} item{'' if len(each) == 1 else 's'}"
        if isinstance(each, (str, bytes)):
            return _shortened(repr(each[:60]))
        if isinstance(each, (bytearray, memoryview)):
            return f"{len(each)} bytes"
        if isinstance(each, (int, float, complex)) and type(each).__module__ == "builtins":
            return _shortened(repr(each) if abs(each) < 1 << 256 else "a large number")
    except Exception:
        pass
    return ""


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def edge_label(source: Any, target: Any) -> str:
    """How one object refers to another, as a reader would write it; empty if that is not known."""
    try:
        return _edge_label(source, target)
    except Exception:
        return ""


def _edge_label(source: Any, target: Any) -> str:
    if isinstance(source, types.FrameType):
        for name, value in source.f_locals.items():
            if value is target:
                return str(name)
        named = [("f_globals", source.f_globals), ("f_code", source.f_code), ("f_back", source.f_back)]
    elif isinstance(source, types.MethodType):
        named = [("__self__", source.__self__), ("__func__", source.__func__)]
    elif isinstance(source, types.FunctionType):
        names = ("__defaults__", "__code__", "__globals__", "__dict__", "__closure__", "__kwdefaults__", "__doc__")
        named = [(name, getattr(source, name)) for name in names]
    elif isinstance(source, types.CellType):
        named = [("cell_contents", source.cell_contents)]
    elif isinstance(source, dict):
        for key, value in source.items():
            if value is target:
                return key if isinstance(key, str) and key.isidentifier() else f"[{_shortened(repr_of_key(key))}]"
            if key is target:
                return "key"
        return ""
    elif isinstance(source, (list, tuple)):
        return next((f"[{index}]" for index, each in enumerate(source) if each is target), "")
    else:
        named = []
    own = getattr(source, "__dict__", None)
    named.append(("__dict__", own))
    for name, value in named:
        if value is target:
            return str(name)
    if isinstance(own, dict) and not isinstance(source, (type, types.ModuleType)):
        for name, value in own.items():
            if value is target:
                return str(name)
    if type(source) is target:
        return "__class__"
    for base in type(source).__mro__:
        for name in base.__dict__.get("__slots__", ()):
            if getattr(source, name, None) is target:
                return str(name)
    return ""


def repr_of_key(key: Any) -> str:
    """A key of a dict; of one whose text may be anything, its type."""
    return repr(key) if isinstance(key, (str, bytes, int, float, bool, type(None))) else type(key).__name__
