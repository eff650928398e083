"""guppy's sets of numbers. A set may also be the complement of a finite one: ``~immbitset([1])``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def _bits_of(number: int) -> set[int]:
    return {bit for bit in range(number.bit_length()) if number >> bit & 1}


def _as_set(other: BitSet | int) -> BitSet:
    return other if isinstance(other, BitSet) else BitSet(other)


class BitSet:
    """A set of numbers: the given ones, or all others if it is a complement."""

    __slots__ = ("_bits", "_is_complement")
    _bits: set[int]
    _is_complement: bool

    def __init__(self, bits: Iterable[int] | BitSet | int = (), is_complement: bool = False) -> None:
        if isinstance(bits, BitSet):
            self._bits = set(bits._bits)
            self._is_complement = bits._is_complement
        elif isinstance(bits, int):
            # A number is the set of its bits.
            self._is_complement = is_complement != (bits < 0)
            self._bits = _bits_of(~bits if bits < 0 else bits)
        else:
            self._is_complement = is_complement
            self._bits = set(bits)

    def _new(self, bits: set[int], is_complement: bool) -> ImmBitSet:
        # As in guppy, also the operators of a mutable set return an immutable one.
        return ImmBitSet(bits, is_complement)

    def __and__(self, other: BitSet | int) -> Any:
        other = _as_set(other)
        if self._is_complement and other._is_complement:
            return self._new(self._bits | other._bits, True)
        if self._is_complement:
            return self._new(other._bits - self._bits, False)
        if other._is_complement:
            return self._new(self._bits - other._bits, False)
        return self._new(self._bits & other._bits, False)

    def __invert__(self) -> Any:
        return self._new(self._bits, not self._is_complement)

    def __or__(self, other: BitSet | int) -> Any:
        return ~(~self & ~_as_set(other))

    def __sub__(self, other: BitSet | int) -> Any:
        return self & ~_as_set(other)

    def __xor__(self, other: BitSet | int) -> Any:
        return (self - other) | (_as_set(other) - self)

    __rand__ = __and__
    __ror__ = __or__
    __rxor__ = __xor__

    def __contains__(self, bit: int) -> bool:
        return (bit in self._bits) != self._is_complement

    def __iter__(self) -> Iterator[int]:
        if self._is_complement:
            raise TypeError("the complement of a finite set has no end")
        return iter(sorted(self._bits))

    def __len__(self) -> int:
        if self._is_complement:
            raise TypeError("the complement of a finite set has no length")
        return len(self._bits)

    def __bool__(self) -> bool:
        return self._is_complement or bool(self._bits)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BitSet) and self._bits == other._bits and self._is_complement == other._is_complement

    __hash__ = None  # type: ignore[assignment]

    def __le__(self, other: BitSet) -> bool:
        return not self - other

    def __lt__(self, other: BitSet) -> bool:
        return self <= other and self != other

    def __ge__(self, other: BitSet) -> bool:
        return other <= self

    def __gt__(self, other: BitSet) -> bool:
        return other < self

    def mutcopy(self) -> MutBitSet:
        """Return a copy that can be changed."""
        return MutBitSet(self)

    def __int__(self) -> int:
        number = sum(1 << bit for bit in self._bits)
        return ~number if self._is_complement else number

    def __repr__(self) -> str:
        text = f"{type(self).__name__}({sorted(self._bits)})"
        return f"(~{text})" if self._is_complement else text


class ImmBitSet(BitSet):
    """An immutable set of numbers."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash((frozenset(self._bits), self._is_complement))


class MutBitSet(BitSet):
    """A set of numbers that can be changed."""

    __slots__ = ()

    def add(self, bit: int) -> None:
        """Add a number."""
        (self._bits.discard if self._is_complement else self._bits.add)(bit)

    def remove(self, bit: int) -> None:
        """Remove a number that is in the set."""
        if bit not in self:
            raise ValueError(f"{bit} is not in the set")
        self.discard(bit)

    def discard(self, bit: int) -> None:
        """Remove a number if it is in the set."""
        (self._bits.add if self._is_complement else self._bits.discard)(bit)

    def append(self, bit: int) -> None:
        """Add a number that is not in the set."""
        if bit in self:
            raise ValueError(f"{bit} is in the set already")
        self.add(bit)

    def pop(self, index: int = -1) -> int:
        """Remove and return the largest number, or the smallest if `index` is 0.

        As in guppy, a complement has neither of them: ValueError.
        """
        if self._is_complement:
            raise ValueError("pop() needs a finite set, and this one is the complement of a finite set")
        if not self._bits:
            raise ValueError("pop() from an empty set")
        if index not in (0, -1):
            raise IndexError(f"pop() takes the index 0 or -1, not {index}")
        bit = (min if index == 0 else max)(self._bits)
        self._bits.remove(bit)
        return bit

    def tas(self, bit: int) -> bool:
        """Add a number, and return whether it was in the set."""
        was_member = bit in self
        self.add(bit)
        return was_member

    def tac(self, bit: int) -> bool:
        """Remove a number, and return whether it was in the set."""
        was_member = bit in self
        self.discard(bit)
        return was_member

    def clear(self) -> None:
        """Remove all numbers."""
        self._bits, self._is_complement = set(), False

    def __repr__(self) -> str:
        return f"MutBitSet(~ImmBitSet({sorted(self._bits)}))" if self._is_complement else super().__repr__()

    def _replace(self, other: BitSet) -> MutBitSet:
        self._bits, self._is_complement = set(other._bits), other._is_complement
        return self

    def __ior__(self, other: BitSet | int) -> MutBitSet:
        return self._replace(self | other)

    def __iand__(self, other: BitSet | int) -> MutBitSet:
        return self._replace(self & other)

    def __isub__(self, other: BitSet | int) -> MutBitSet:
        return self._replace(self - other)

    def __ixor__(self, other: BitSet | int) -> MutBitSet:
        return self._replace(self ^ other)


immbitset = ImmBitSet
mutbitset = MutBitSet


def immbit(bit: int) -> Any:
    """Return the set of one number."""
    return ImmBitSet([bit])


def immbitrange(start: int, stop: int | None = None, step: int = 1) -> Any:
    """Return the set of the numbers of a range."""
    return ImmBitSet(range(start) if stop is None else range(start, stop, step))
