"""heapy's relations and kinds: ``h.by(hp.Via)`` classifies a set, ``h & hp.Type(Order)`` selects from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from heaptide.objects.references import is_a, names_of_type

if TYPE_CHECKING:
    from heaptide._native import HeapSet, HeapView

# heapy's names of classifiers, and those of `_native`.
RELATIONS = {
    "Clodo": "kind",
    "Type": "type",
    "Size": "size",
    "Rcs": "referrers",
    "Via": "via",
    "Id": "id",
    "Module": "module",
    "Unity": "unity",
    "Prod": "producer",
}


class Kind:
    """All objects of one kind, in any set. Combine it with sets by ``&``, ``|`` and ``-``."""

    __slots__ = ("_by", "_label")

    def __init__(self, by: str, label: str) -> None:
        self._by = by
        self._label = label

    def members(self, view: HeapView) -> HeapSet:
        """Return the objects of this kind in one view of the heap."""
        if self._by == "id":
            return view.at([int(self._label)])
        if self._by == "unity":
            return view.all()
        if self._by in ("kind", "type"):
            return view.of_kind(self._label)
        partition = view.all().partition(self._by)
        labels = [name.strip() for _, _, name in partition.rows()]
        return partition.members(labels.index(self._label)) if self._label in labels else view.empty()

    def __repr__(self) -> str:
        return f"<{self._label}>"


class Relation:
    """A classifier of objects. Calling it with a value, such as a type, returns a :class:`Kind`."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def by(self) -> str:
        """The name of the classifier in `_native`."""
        return RELATIONS[self._name]

    def __call__(self, *what: object, dictof: object = None, name: str | None = None) -> Kind:
        """Return the kind for a type, size, module name, reference or address; with `dictof`, for dicts of a type."""
        if dictof is not None:
            label = "dict (no owner)" if dictof == () else f"dict of {type_name(dictof)}"
            return Kind("kind", label)
        if name is not None:
            return Kind(self.by, name)
        if self._name == "Unity":
            return Kind("unity", "Anything")
        if not what:
            raise TypeError(f"{self._name} needs an argument: the value to select by")
        if self._name == "Via":
            return Kind("via", ", ".join(sorted(repr(reference) for reference in what)))
        if self._name == "Prod" and len(what) == 2:
            return Kind("producer", f"{what[0]}:{what[1]}")
        if self._name == "Rcs":
            return Kind("referrers", ", ".join(sorted(map(type_name, what))))
        return Kind(self.by, type_name(what[0]))

    def __repr__(self) -> str:
        return f"<heapy's relation {self._name}: use it as h.by(hp.{self._name}) or h & hp.{self._name}(...)>"


def type_name(what: object) -> str:
    """Return the name of a type as in tables, and any other value as text."""
    if is_a(what, Kind):
        return cast("Kind", what)._label
    if not is_a(what, type):
        return str(what)
    module, name = names_of_type(cast("type", what))
    return name if module == "builtins" else f"{module}.{name}"
