"""Calls a function when the program imports a module, so that Heaptide can adapt a platform without editing its files.

Python finds and executes the module as usual. The function then receives the module before the importing code does. If
the function fails, the import succeeds anyway, and one line on standard error reports the reason.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder

from heaptide.containment import report_failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Hook = Callable[[ModuleType], None]


def after_import(hooks: Mapping[str, Hook]) -> None:
    """Call each function once, when the module that is its key in `hooks` is first imported."""
    sys.meta_path.insert(0, _Finder(dict(hooks)))


class _Finder:
    def __init__(self, hooks: dict[str, Hook]) -> None:
        self._hooks = hooks

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's own spec, with a loader that calls the function after the module has run."""
        if name not in self._hooks:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        loader: Any = _Loader(spec.loader, self._hooks.pop(name))
        spec.loader = loader
        return spec


class _Loader:
    """Executes a module with the module's own loader, then calls the hook."""

    def __init__(self, loader: Any, hook: Hook) -> None:
        self._loader = loader
        self._hook = hook

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, then call the hook."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        try:
            self._hook(module)
        except Exception as error:
            report_failure(error)
