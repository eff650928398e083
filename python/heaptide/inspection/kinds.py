"""heapy's relations and kinds: ``h.by(hp.Via)`` classifies a set, ``h & hp.Type(Order)`` selects from it.

Both can be combined: ``hp.Type & hp.Size`` classifies by type and size, ``hp.Type(int) & hp.Size(28)`` selects by both.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, cast

from heaptide import _native
from heaptide.objects.references import is_a, names_of_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from heaptide._native import HeapSet, HeapView

# heapy's name of each classifier → its name in `_native`.
RELATIONS = {
    "Clodo": "kind",
    "Type": "type",
    "Size": "size",
    "Rcs": "referrers",
    "Via": "via",
    "Id": "id",
    "Idset": "id",
    "Module": "module",
    "Unity": "unity",
    "Prod": "producer",
}

# Classifier → how heapy prints its kinds, if it prints more than the value.
_TEXTS = {"unity": "<{}>", "size": "<size = {}>", "via": "<via {}>", "referrers": "<referred by: {}>", "id": "<id {}>"}
_COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


class Family:
    """heapy's family of a kind or a set: its name and its classifier."""

    __slots__ = ("er", "name")

    def __init__(self, name: str, er: Relation | None = None) -> None:
        self.name = name
        self.er = er

    def __repr__(self) -> str:
        return f"<heapy's family {self.name}>"


class Kind(str):
    """All objects of one kind, in any set. As a string it is the name of the kind.

    ``&``, ``|``, ``-``, ``^`` and ``~`` combine kinds with each other and with sets.
    """

    __slots__ = ("_by", "_label", "_members", "_type")
    _by: str
    _label: str
    _type: type | None
    _members: Callable[[HeapView], HeapSet] | None

    def __new__(
        cls,
        by: str,
        label: str,
        of_type: type | None = None,
        members: Callable[[HeapView], HeapSet] | None = None,
    ) -> Kind:
        """Create the kind for a classifier and a value, or for the objects that `members` selects."""
        value = hex(int(label)) if by == "id" and label.isdecimal() else label
        text = _TEXTS.get(by, "{}").format(value) if members is None else label
        kind = super().__new__(cls, text)
        kind._by, kind._label, kind._type, kind._members = by, label, of_type, members
        return kind

    def members(self, view: HeapView) -> HeapSet:
        """Return the objects of this kind in one view of the heap."""
        if self._members is not None:
            return self._members(view)
        if self._by == "id":
            return view.at([int(self._label)])
        if self._by == "unity":
            return view.all()
        if self._by in ("kind", "type"):
            return view.of_kind(self._label)
        return _rows_of(view, self._by, lambda name: name == self._label)

    @property
    def fam(self) -> Family:
        """The family of the kind."""
        return Family({"unity": "Anything"}.get(self._by, self._by), Relation.of(self._by))

    @property
    def er(self) -> Relation:
        """The classifier that makes this kind."""
        return Relation.of(self._by)

    @property
    def brief(self) -> str:
        """The name of the kind."""
        return str(self)

    @property
    def dictof(self) -> Kind:
        """The attribute dicts of objects of this kind."""
        return Kind("kind", f"dict of {self._label}")

    @property
    def refdby(self) -> Kind:
        """The objects whose referrers are all of this kind."""
        return Kind("referrers", self._label)

    @property
    def biper(self) -> Relation:
        """A classifier with two rows: the objects of this kind, and all others."""
        return findex(self)

    def alt(self, cmp: str) -> Kind:
        """Return all kinds for which the comparison with this one holds: ``hp.Size(100).alt(">=")``."""
        if cmp not in _COMPARISONS:
            raise ValueError(f"alt takes one of {', '.join(_COMPARISONS)}, not {cmp!r}")
        compare = _COMPARISONS[cmp]
        if cmp in ("==", "!="):
            return self if cmp == "==" else ~self
        if self._by == "size":
            bound = int(self._label)
            return Kind(
                "size", f"<size {cmp} {bound}>", members=lambda view: _rows_of(view, "size", _is_size(compare, bound))
            )
        if self._type is None:
            raise ValueError(f"{self} has no order: only sizes and types can be compared")
        return self._related_types(cmp)

    def _related_types(self, cmp: str) -> Kind:
        this = cast("type", self._type)
        below = _subtypes(this) if cmp.startswith("<") else list(type.mro(this)[1:])
        kinds = [Kind("kind", type_name(each)) for each in [*([this] if cmp.endswith("=") else []), *below]]
        words = {"<": "strict subtype", "<=": "subtype", ">": "strict supertype", ">=": "supertype"}
        return Kind("kind", f"<{words[cmp]} of {self._label}>", members=lambda view: _union(view, kinds))

    def _merged(self, other: object, sign: str, merge: Callable[[HeapSet, HeapSet], HeapSet]) -> Any:
        if not is_a(other, (Kind, type)):
            return NotImplemented
        second = cast("Kind", other) if is_a(other, Kind) else Kind("kind", type_name(other), cast("type", other))
        if self._excludes_other_labels() and second._excludes_other_labels() and self._by == second._by:
            return self._merged_with_label(second, sign)
        text = f"({self} {sign} {second})"
        return Kind("kind", text, members=lambda view: merge(self.members(view), second.members(view)))

    def _excludes_other_labels(self) -> bool:
        return self._members is None and self._by != "unity"

    def _merged_with_label(self, other: Kind, sign: str) -> Kind:
        """Combine two rows of one table: they are the same or have no object in common."""
        if self._label == other._label:
            return self if sign in "&|" else _NOTHING
        if sign == "&":
            return _NOTHING
        if sign == "-":
            return self
        text = f"({' | '.join(sorted((str(self), str(other))))})"
        return Kind("kind", text, members=lambda view: self.members(view) | other.members(view))

    def __and__(self, other: object) -> Any:
        return self._merged(other, "&", operator.and_)

    def __or__(self, other: object) -> Any:
        return self._merged(other, "|", operator.or_)

    def __sub__(self, other: object) -> Any:
        return self._merged(other, "-", operator.sub)

    def __xor__(self, other: object) -> Any:
        return self._merged(other, "^", operator.xor)

    def __invert__(self) -> Kind:
        return Kind("kind", f"~{self}", members=lambda view: view.all() - self.members(view))

    def __contains__(self, each: Any) -> bool:
        """Return whether an object is of this kind; for a string, also whether the name contains it."""
        if is_a(each, str) and str.__contains__(self, each):
            return True
        from heaptide.inspection.heapy import of_objects

        found = of_objects((each,))
        return (found & self).count == 1

    # Kinds compare as sets. They are strings, so without these methods they would compare alphabetically.
    def __le__(self, other: object) -> Any:
        if not is_a(other, Kind):
            return NotImplemented
        second = cast("Kind", other)
        if str(self) == str(second) or second._by == "unity":
            return True
        if self._members is None and second._members is None and self._by == second._by:
            return False
        from heaptide.inspection.heapy import of_objects

        view = of_objects(())._set.view()
        return self.members(view).is_subset(second.members(view))

    def __ge__(self, other: object) -> Any:
        return other <= self if is_a(other, Kind) else NotImplemented

    def __lt__(self, other: object) -> Any:
        return self <= other and str(self) != str(other) if is_a(other, Kind) else NotImplemented

    def __gt__(self, other: object) -> Any:
        return other < self if is_a(other, Kind) else NotImplemented

    def __repr__(self) -> str:
        return f"hp.{self._label}" if self._by == "unity" else str(self)


_NOTHING = Kind("kind", "<Nothing>", members=lambda view: view.empty())


def _members_of_row(relation: Relation, name: str) -> Callable[[HeapView], HeapSet]:
    return lambda view: dict(relation.divide(view.all())).get(name, view.empty())


def kind_of_rows(heap_set: HeapSet, by: str | Relation) -> Kind:
    """Return the kind of a set by a classifier: that of its only row, or the union of its rows."""
    if by == "id":
        kinds = [Kind("id", str(address)) for address in sorted(heap_set.addresses(len(heap_set)))]
    elif isinstance(by, str):
        kinds = [Kind(by, name.strip()) for _, _, name in heap_set.partition(by).rows()]
    else:
        kinds = [Kind("kind", name, members=_members_of_row(by, name)) for name, _ in by.divide(heap_set)]
    if by == "unity":
        kinds = [Kind("unity", "Anything")]
    if len(kinds) == 1:
        return kinds[0]
    text = f"({' | '.join(sorted(map(str, kinds)))})" if kinds else "<Nothing>"
    return Kind("kind", text, members=lambda view: _union(view, kinds))


def _is_size(compare: Callable[[Any, Any], bool], bound: int) -> Callable[[str], bool]:
    return lambda name: name.isdecimal() and compare(int(name), bound)


def _rows_of(view: HeapView, by: str, is_wanted: Callable[[str], bool]) -> HeapSet:
    """Return the objects of all rows whose names satisfy a condition."""
    partition = view.all().partition(by)
    found = view.empty()
    for row, (_, _, name) in enumerate(partition.rows()):
        if is_wanted(name.strip()):
            found = found | partition.members(row)
    return found


def _union(view: HeapView, kinds: Iterable[Kind]) -> HeapSet:
    found = view.empty()
    for kind in kinds:
        found = found | kind.members(view)
    return found


def _subtypes(kind: type) -> list[type]:
    found: list[type] = []
    subclasses: list[type] = type.__subclasses__(kind)
    for each in subclasses:
        found += [each, *_subtypes(each)]
    return list(dict.fromkeys(found))


class Relation:
    """A classifier of objects. Calling it with a value, such as a type, returns a :class:`Kind`."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    @staticmethod
    def of(by: str | Relation) -> Relation:
        """Return the relation for a classifier's name in `_native`."""
        if isinstance(by, Relation):
            return by
        return Relation(next((name for name, known in RELATIONS.items() if known == by), "Clodo"))

    @property
    def by(self) -> str | Relation:
        """The name of the classifier in `_native`, or this relation if there is none."""
        return RELATIONS[self._name]

    @property
    def refdby(self) -> Relation:
        """A classifier by the kinds of referrers."""
        return _ReferrerTypes() if self._name == "Type" else Relation("Rcs")

    @property
    def dictof(self) -> Relation:
        """A classifier of dicts by their owners."""
        return Relation("Clodo")

    @property
    def fam(self) -> Family:
        """The family of the relation's kinds."""
        return Family(self._name, self)

    def divide(self, heap_set: HeapSet) -> list[tuple[str, HeapSet]]:
        """Classify a set. Returns the name and the members of each row."""
        partition = heap_set.partition(cast("str", self.by))
        return [(name.strip(), partition.members(row)) for row, (_, _, name) in enumerate(partition.rows())]

    @property
    def heading(self) -> str:
        """The title of the column of names."""
        empty: list[tuple[int, int, str]] = []
        return _native.heap_rows_table(cast("str", self.by), empty).splitlines()[1].rpartition("% ")[2]

    def __and__(self, other: object) -> Any:
        if not isinstance(other, Relation):
            return NotImplemented
        return _Both(self, other)

    def __call__(self, *args: object, dictof: object = None, name: str | None = None) -> Any:
        """Return the kind for a type, size, module name, reference or address; with `dictof`, for dicts of a type."""
        if dictof is not None:
            label = "dict (no owner)" if dictof == () else f"dict of {type_name(dictof)}"
            return Kind("kind", label)
        by = cast("str", self.by)
        if name is not None:
            return Kind(by, name)
        if self._name == "Unity":
            return Kind("unity", "Anything")
        if self._name == "Prod" and not args:
            return Kind("producer", "unknown")
        if not args:
            raise TypeError(f"{self._name} needs an argument: the value to select by")
        if self._name == "Idset":
            from heaptide.inspection.heapy import of_objects

            return of_objects(args)
        if self._name == "Via":
            return Kind("via", ", ".join(sorted(repr(reference) for reference in args)))
        if self._name == "Prod" and len(args) == 2:
            return Kind("producer", f"{args[0]}:{args[1]}")
        if self._name == "Rcs":
            return Kind("referrers", ", ".join(sorted(map(type_name, args))))
        self._check(args[0])
        return Kind(by, type_name(args[0]), cast("type", args[0]) if is_a(args[0], type) else None)

    def _check(self, value: object) -> None:
        """Raise guppy's exceptions for values that no object can have."""
        if self._name in ("Type", "Clodo") and not is_a(value, (type, str)):
            raise TypeError(f"{self._name} needs a type or the name of one, not {value!r}")
        if self._name == "Size":
            int(cast("Any", value))
        if self._name == "Id":
            operator.index(cast("Any", value))

    def __getattr__(self, name: str) -> Kind:
        """Return the kind of a built-in type by its capitalised name: ``hp.Type.Int``."""
        import builtins
        import types

        if self._name in ("Type", "Clodo") and name[:1].isupper():
            special = {"NoneType": type(None), "Type": type, "Module": types.ModuleType}
            found = special.get(name) or getattr(builtins, name.lower(), None) or getattr(types, f"{name}Type", None)
            if isinstance(found, type):
                return cast("Kind", self(found))
        raise AttributeError(f"the relation {self._name} has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"hp.{self._name}"


def classifier_name(er: str | Relation) -> str | Relation:
    """Return the name in `_native` of a classifier, or the classifier if it has none there."""
    if isinstance(er, Relation):
        return er.by
    # `isinstance` would also accept a kind, because its class is a subclass of `str`.
    if type(er) is not str:
        raise TypeError(f"by takes a classifier or its name, not {er!r}")
    name = RELATIONS.get(er, er)
    if name not in RELATIONS.values():
        raise ValueError(f"cannot group objects by {er}: choose one of {', '.join(RELATIONS)}")
    return name


class _ReferrerTypes(Relation):
    """Classifies by the types of referrers. The relation ``Rcs``, by kinds, divides dicts by owner; this does not."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("Type.refdby")

    @property
    def by(self) -> Relation:
        return self

    @property
    def heading(self) -> str:
        return "Referrers by Type"

    def divide(self, heap_set: HeapSet) -> list[tuple[str, HeapSet]]:
        rows: dict[str, HeapSet] = {}
        for name, members in Relation("Rcs").divide(heap_set):
            types = {"dict" if kind.startswith("dict ") else kind for kind in name.split(", ")}
            text = ", ".join(sorted(types))
            rows[text] = rows[text] | members if text in rows else members
        return list(rows.items())


class _Both(Relation):
    """Classifies by two relations at once."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: Relation, second: Relation) -> None:
        super().__init__(f"({first._name} & {second._name})")
        self._first = first
        self._second = second

    def __repr__(self) -> str:
        return f"({self._first!r} & {self._second!r})"

    @property
    def by(self) -> Relation:
        return self

    @property
    def heading(self) -> str:
        return f"{self._first.heading} & {self._second.heading}"

    def divide(self, heap_set: HeapSet) -> list[tuple[str, HeapSet]]:
        return [
            (f"{one} & {other}", members)
            for one, part in self._first.divide(heap_set)
            for other, members in self._second.divide(part)
        ]

    def __call__(self, *args: object, dictof: object = None, name: str | None = None) -> Any:
        """Return the kind of objects that have the first value in one relation and the second in the other."""
        if len(args) != 2:
            raise TypeError(f"{self._name} needs two arguments: one for each relation")
        return self._first(args[0]) & self._second(args[1])


class _Findex(Relation):
    """Classifies by the first of several kinds that an object has."""

    __slots__ = ("_kinds",)

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        super().__init__(f"findex({', '.join(map(str, kinds))})")
        self._kinds = kinds

    @property
    def by(self) -> Relation:
        return self

    @property
    def heading(self) -> str:
        return "First Matching Kind / Index"

    def divide(self, heap_set: HeapSet) -> list[tuple[str, HeapSet]]:
        rows, rest = [], heap_set
        for index, kind in enumerate(self._kinds):
            members = rest & kind.members(heap_set.view())
            rest = rest - members
            rows.append((f"{kind} / {index}", members))
        return [(name, members) for name, members in [*rows, ("<None>", rest)] if len(members)]


def findex(*kinds: object) -> Relation:
    """Return a classifier by the first of these kinds or types that an object has."""
    return _Findex(
        tuple(
            cast("Kind", kind) if is_a(kind, Kind) else Kind("kind", type_name(kind), cast("type", kind))
            for kind in kinds
        )
    )


def type_name(type_or_name: object) -> str:
    """Return the name of a type as in tables, and any other value as text."""
    if is_a(type_or_name, Kind):
        return cast("Kind", type_or_name)._label
    if not is_a(type_or_name, type):
        return str(type_or_name)
    module, name = names_of_type(cast("type", type_or_name))
    return name if module == "builtins" else f"{module}.{name}"
