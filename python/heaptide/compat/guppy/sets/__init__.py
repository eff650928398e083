"""guppy's sets: of small numbers (bit sets), and of objects by identity (node sets).

Immutable sets can be keys of dicts. All use Python's own sets or dicts, and have guppy's names and operators.
"""

from __future__ import annotations

from .bit_sets import BitSet, ImmBitSet, MutBitSet, immbit, immbitrange, immbitset, mutbitset
from .node_sets import (
    ImmNodeSet,
    MutNodeSet,
    NodeSet,
    immnodeset,
    immnodeset_union,
    mutnodeset,
    mutnodeset_union,
)

__all__ = [
    "BitSet",
    "ImmBitSet",
    "ImmNodeSet",
    "MutBitSet",
    "MutNodeSet",
    "NodeSet",
    "immbit",
    "immbitrange",
    "immbitset",
    "immnodeset",
    "immnodeset_union",
    "mutbitset",
    "mutnodeset",
    "mutnodeset_union",
]
