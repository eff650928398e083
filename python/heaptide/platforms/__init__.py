"""Platforms that run Python programs: one module each, with everything Heaptide knows about that platform.

Adding a platform means adding one module here whose ``PLATFORM`` is a :class:`Platform`. Modules are found by listing
this folder. To keep the start of a program cheap, a module is imported only if the environment has a variable that
begins with the module's name in capitals, or with ``MEMRAY``, the profiler that some platforms configure.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Platform:
    """What settings, components and commands need to know about one platform.

    variables        setting → the platform's environment variable for it
    documented       further environment variables of the platform → their meaning
    config_file      returns the path of the platform's configuration file, or nothing
    config_section   the section of that file with the settings below
    config_names     setting → its name in that section
    components       component → pattern of its command lines; empty if the platform itself starts the component
    home             folder for captures if the platform selects components but sets no home
    task_methods     method that runs a task object → the one parameter that takes all arguments
    """

    def __init__(
        self,
        *,
        variables: Mapping[str, str] | None = None,
        documented: Mapping[str, str] | None = None,
        config_file: Callable[[Mapping[str, str]], str] | None = None,
        config_section: str = "",
        config_names: Mapping[str, str] | None = None,
        components: Mapping[str, str] | None = None,
        home: str = "",
        task_methods: Mapping[str, str] | None = None,
    ) -> None:
        self.variables = variables or {}
        self.documented = documented or {}
        self.config_file = config_file
        self.config_section = config_section
        self.config_names = config_names or {}
        self.components = components or {}
        self.home = home
        self.task_methods = task_methods or {}


def names() -> list[str]:
    """Return the names of all platform modules."""
    files = [name for folder in __path__ for name in os.listdir(folder)]
    return sorted(name[:-3] for name in files if name.endswith(".py") and not name.startswith("_"))


def in_use(environment: Mapping[str, str]) -> list[Platform]:
    """Return the platforms that the environment mentions."""
    variables = "\0".join(["", *environment])
    is_any = "\0MEMRAY" in variables
    return [_load(name) for name in names() if is_any or f"\0{name.upper()}" in variables]


def all_platforms() -> list[Platform]:
    """Return every platform. Imports all modules, which :func:`in_use` avoids."""
    return [_load(name) for name in names()]


def _load(name: str) -> Platform:
    from importlib import import_module

    platform: Platform = import_module(f"heaptide.platforms.{name}").PLATFORM
    return platform
