"""Finds references between objects of this process, also through objects that the collector does not track.

``gc.get_objects`` omits strings, numbers, and tuples and dicts that contain only these. This module finds them through
their referrers. It adds the frames of running functions, which the collector does not track since Python 3.11.

No code of the program runs. Even ``isinstance`` is avoided, because it reads ``__class__``: a proxy may compute that
attribute, with side effects or an exception. This module uses nothing that an object or its type can override.
"""

from __future__ import annotations

import gc
import os
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_BATCH = 10_000
# The flag of code whose variables are not in a dict: `inspect.CO_OPTIMIZED`, without the import.
_OPTIMIZED = 1

# A metaclass cannot override these.
_name_of = type.__dict__["__name__"].__get__
_qualname_of = type.__dict__["__qualname__"].__get__
_module_of = type.__dict__["__module__"].__get__
_mro_of = type.__dict__["__mro__"].__get__
_attributes_of = type.__dict__["__dict__"].__get__


def is_a(each: object, classes: type | tuple[type, ...]) -> bool:
    """Return whether an object is an instance of one of the types, without running the object's code."""
    return issubclass(type(each), classes)


def short_name(cls: type) -> str:
    """Return the name of a type."""
    return str(_name_of(cls))


def long_name(cls: type) -> str:
    """Return the name of a type with its module."""
    return ".".join(names_of_type(cls))


def names_of_type(cls: type) -> tuple[str, str]:
    """Return the names of a type's module and of the type."""
    try:
        module = _module_of(cls)
    except AttributeError:  # deleted
        module = None
    return module if type(module) is str else "?", str(_qualname_of(cls))


def has_finalizer(cls: type) -> bool:
    """Return whether objects of the type have a ``__del__``."""
    return any("__del__" in _attributes_of(base) for base in _mro_of(cls))


def names_of_module(module: types.ModuleType) -> dict[str, Any]:
    """Return a module's namespace without triggering the import of a lazy module."""
    found: dict[str, Any] = types.ModuleType.__getattribute__(module, "__dict__")
    return found


def is_proper_module(obj: Any) -> bool:
    """Return whether an object is a module that ``sys.modules`` has under its name."""
    if not is_a(obj, types.ModuleType):
        return False
    name = names_of_module(obj).get("__name__")
    return type(name) is str and sys.modules.get(name) is obj


def all_objects(ignored: Iterable[object] = ()) -> list[Any]:
    """Return all tracked objects, and the objects reachable from these and from running functions.

    Ignored objects are left out, and so are untracked objects that only ignored ones refer to.
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
        waiting = _not_found_before(fresh, found, left_out)
        found.update(zip(map(id, waiting), waiting, strict=True))
    return list(found.values())


def referents(*objects: Any) -> list[Any]:
    """Return the referents of objects, as ``gc.get_referents`` does; of a module only its namespace.

    Python 3.12 needs this exception for modules: asyncio's native module reports objects of its free list, which have
    a reference count of zero. A new reference to one would free it again, and the collector would loop for ever.
    """
    modules = [each for each in objects if is_a(each, types.ModuleType)]
    if not modules:
        return gc.get_referents(*objects)
    found = gc.get_referents(*(each for each in objects if not is_a(each, types.ModuleType)))
    found.extend(map(names_of_module, modules))
    return found


# Separate functions: up to Python 3.11, a comprehension keeps outer variables in cells, and the search would find them.
def _without(left_out: set[int], objects: list[Any]) -> dict[int, Any]:
    return {id(each): each for each in objects if id(each) not in left_out and not is_own_frame(each)}


def _not_found_before(fresh: dict[int, Any], found: dict[int, Any], left_out: set[int]) -> list[Any]:
    return [each for number, each in fresh.items() if number not in found and number not in left_out]


def running_frames() -> list[types.FrameType]:
    """Return the frames of all threads, innermost first, without Heaptide's own."""
    frames = []
    innermost: types.FrameType | None
    for innermost in sys._current_frames().values():
        while innermost is not None:
            if not is_own_frame(innermost):
                frames.append(innermost)
            innermost = innermost.f_back
    # No variable may refer to this frame: the cycle would keep alive all objects that the callers refer to.
    return frames


def is_own_frame(each: object) -> bool:
    """Return whether the object is a frame of this package."""
    return type(each) is types.FrameType and each.f_code.co_filename.startswith(_OWN_FOLDER)


class Referrers:
    """Finds referrers of several objects at a time, without Heaptide's own objects and its earlier results."""

    def __init__(self, ignored: Iterable[object] = ()) -> None:
        self._ignored = {id(each) for each in ignored}
        # Keeps the results alive, so that no new object gets the address of one.
        self._results: list[dict[int, list[Any]]] = []
        self._ignored.update((id(self.__dict__), id(self._ignored), id(self._results)))
        # Untracked objects that may still refer to others.
        self._untracked = [
            each
            for each in all_objects(ignored)
            if not gc.is_tracked(each) and type(each) in (tuple, dict) and len(each) > 0
        ]
        self._ignored.add(id(self._untracked))
        self._frames = running_frames()
        self._ignored.add(id(self._frames))

    def of(self, objects: list[Any]) -> dict[int, list[Any]]:
        """Return the referrers of each object, by its `id`."""
        wanted = set(map(id, objects))
        found: dict[int, list[Any]] = {id(each): [] for each in objects}
        self._results.append(found)
        self._ignored.update((id(found), *map(id, found.values())))
        seen: set[int] = set()
        targets = tuple(objects)  # named, so that it can be excluded: since Python 3.13 it appears as a referrer
        candidates = gc.get_referrers(*targets)
        own = {id(objects), id(targets), id(candidates), id(wanted), id(seen)}
        own.update(_copies_of_variables(candidates, wanted), _copies_of_variables(self._frames, wanted))
        for group in (candidates, self._untracked, self._frames):
            for each in group:
                if id(each) in own or id(each) in self._ignored or id(each) in seen or is_own_frame(each):
                    continue
                seen.add(id(each))
                # A referrer appears once for each object that it refers to.
                for referent in {id(referent) for referent in referents(each)} & wanted:
                    found[referent].append(each)
        del targets, candidates, group
        return found


def _copies_of_variables(objects: list[Any], wanted: set[int]) -> list[int]:
    """Return the IDs of the dicts that `f_locals` creates: copies of a frame's variables.

    They add nothing, because the frame itself refers to the same objects. Since Python 3.13 there are no such dicts.
    """
    if sys.version_info >= (3, 13):
        return []
    frames = [each for each in objects if type(each) is types.FrameType and not is_own_frame(each)]
    copies = []
    for frame in frames:
        if frame.f_code.co_flags & _OPTIMIZED and not wanted.isdisjoint(map(id, referents(frame))):
            copies.append(id(frame.f_locals))
    return copies


def chain_back(start: Any, is_end: Callable[[Any], bool], max_depth: int, referrers: Referrers) -> list[Any]:
    """Return the shortest path to `start` from an object that satisfies `is_end`; only `start` if there is none."""
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
    """Return the shortest path from `start` to an object that satisfies `is_end`; only `start` if there is none."""
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
    """Return objects in an order that does not depend on addresses: by type, then by their text."""
    return sorted(objects, key=lambda each: (names_of_type(type(each)), short_repr(each)))


_CONTAINERS = (list, tuple, dict, set, frozenset)


def short_repr(each: Any) -> str:
    """Return a short text that describes an object, without its address."""
    try:
        if is_a(each, types.ModuleType):
            return str(names_of_module(each)["__name__"])
        if is_a(each, (types.MethodType, types.BuiltinMethodType)) and hasattr(each, "__func__"):
            return f"{short_function(each.__func__)} (bound)"
        if is_a(each, types.FunctionType):
            return f"{each.__module__}.{each.__qualname__}"
        if is_a(each, types.FrameType):
            return f"{each.f_code.co_filename}:{each.f_lineno} {each.f_code.co_name}"
        if is_a(each, type):
            return long_name(each)
        for container in _CONTAINERS:
            if is_a(each, container):
                n_items = container.__len__(each)
                return f"{n_items} item{'' if n_items == 1 else 's'}"
        for text in (str, bytes):
            if is_a(each, text):
                return _shortened(repr(text.__getitem__(each, slice(60))))
        if type(each) in (bytearray, memoryview):
            return f"{len(each)} bytes"
        if type(each) in (int, float, complex, bool):
            return _shortened(repr(each) if abs(each) < 1 << 256 else "a large number")
    except Exception:
        pass
    return ""


def short_function(each: Any) -> str:
    """Return the name of a function, or the type of another callable."""
    return str(each.__name__) if is_a(each, types.FunctionType) else short_name(type(each))


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def edge_label(source: Any, target: Any) -> str:
    """Return the attribute, key or index by which one object refers to another; empty if unknown."""
    try:
        return _edge_label(source, target)
    except Exception:
        return ""


def _edge_label(source: Any, target: Any) -> str:
    named: list[tuple[str, Any]] = []
    if is_a(source, types.FrameType):
        for name, value in source.f_locals.items():
            if value is target:
                return str(name)
        named = [("f_globals", source.f_globals), ("f_code", source.f_code), ("f_back", source.f_back)]
    elif is_a(source, types.MethodType):
        named = [("__self__", source.__self__), ("__func__", source.__func__)]
    elif is_a(source, types.FunctionType):
        names = ("__defaults__", "__code__", "__globals__", "__dict__", "__closure__", "__kwdefaults__", "__doc__")
        named = [(name, getattr(source, name)) for name in names]
    elif is_a(source, types.CellType):
        named = [("cell_contents", source.cell_contents)]
    elif is_a(source, dict):
        keys = [key for key, value in dict.items(source) if value is target]
        if keys:
            key = keys[0]
            name = key if type(key) is str and key.isidentifier() else f"[{_shortened(repr_of_key(key))}]"
            return _first_of(name, len(keys))
        if any(key is target for key in dict.keys(source)):
            return "key"
    elif type(source) is types.TracebackType:
        named = [("tb_frame", source.tb_frame), ("tb_next", source.tb_next)]
    elif is_a(source, BaseException):
        attributes = ("__traceback__", "__cause__", "__context__", "args")
        named = [(name, BaseException.__dict__[name].__get__(source)) for name in attributes]
    for sequence in (list, tuple):
        if is_a(source, sequence):
            indices = [index for index, each in enumerate(sequence.__iter__(source)) if each is target]
            if indices:
                return _first_of(f"[{indices[0]}]", len(indices))
    # Checked before the attributes, because reading these creates the `__dict__` of an instance.
    if type(source) is target and not any(value is target for _, value in named):
        return "__class__"
    own = None if is_a(source, type) else _own_dict(source)
    named.append(("__dict__", own))
    for name, value in named:
        if value is target and value is not None:
            return str(name)
    if type(own) is dict and not is_a(source, types.ModuleType):
        for name, value in own.items():
            if value is target:
                return str(name)
    for base in _mro_of(type(source)):
        for name, member in _attributes_of(base).items():
            if type(member) is types.MemberDescriptorType and _value_of(member, source) is target:
                return str(name)
    return ""


def _own_dict(source: Any) -> Any:
    try:
        return object.__getattribute__(source, "__dict__")
    except Exception:
        return None


def _value_of(member: types.MemberDescriptorType, source: Any) -> Any:
    try:
        return member.__get__(source)
    except AttributeError:  # the slot has no value
        return None


def _first_of(name: str, number: int) -> str:
    return name if number == 1 else f"{name} and {number - 1} more"


def repr_of_key(key: Any) -> str:
    """Return the `repr` of a dict's key, or the name of its type if the `repr` would run the program's code."""
    return repr(key) if type(key) in (str, bytes, int, float, bool, type(None)) else short_name(type(key))
