"""guppy's heapy on Heaptide: ``HEAPTIDE_COMPAT=guppy`` lets ``from guppy import hpy`` find it.

``Root().guppy.heapy.Use`` has the same operations as the object that ``hpy()`` returns. :mod:`guppy.sets` has guppy's
sets of numbers and of objects.
"""

from __future__ import annotations

from heaptide.inspection.heapy import Heapy

from . import heapy as heapy
from . import sets as sets
from .root import Root

__all__ = ["Root", "hpy"]

# The version of guppy whose operations these are.
__version__ = "3.1.7"


def hpy(ht: object = None) -> Heapy:
    """Return the object with heapy's operations. `ht` is ignored: Heaptide hides its own objects in another way."""
    return Heapy()
