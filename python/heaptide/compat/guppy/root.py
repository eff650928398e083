"""guppy's entry point: ``Root().guppy.heapy.Use``."""

from __future__ import annotations

import importlib
from typing import Any

from heaptide.inspection.heapy import Heapy, hpy


class _Heapy:
    """``Root().guppy.heapy``."""

    def __init__(self) -> None:
        self.Use = Heapy()

    def __repr__(self) -> str:
        return "<guppy.heapy on Heaptide: Use>"


class _Guppy:
    """``Root().guppy``."""

    def __init__(self) -> None:
        from . import sets

        self.heapy = _Heapy()
        self.sets = sets
        self.Root = Root
        self.hpy = hpy

    def __repr__(self) -> str:
        return "<guppy on Heaptide: heapy, sets, Root>"


class Root:
    """guppy's root object: ``Root().guppy.heapy.Use`` has heapy's operations; other attributes are imported modules."""

    def __init__(self) -> None:
        self.guppy = _Guppy()

    def __getattr__(self, name: str) -> Any:
        """Return a module, as guppy's root does: ``Root().sys``."""
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return importlib.import_module(name)
        except ImportError:
            raise AttributeError(f"there is no module {name}") from None
