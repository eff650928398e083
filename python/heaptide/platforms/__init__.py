"""Platforms that run Python programs: one module each, with everything Heaptide knows about that platform.

To add a platform, add one module or package here whose ``PLATFORM`` is a :class:`Platform`; Heaptide lists this folder.
To keep the start of a program cheap, :func:`in_use` imports a module only if the name of an environment variable begins
with the module's name in capitals. It imports all of them if such a name begins with ``MEMRAY``, the profiler that some
platforms configure.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from heaptide.reports import Sink
    from heaptide.settings import Settings


class Platform:
    """The facts about one platform that settings, components and commands need.

    variables        setting → the platform's environment variable for it
    documented       further environment variables of the platform → their meaning
    config_file      returns the path of the platform's configuration file, or an empty text
    config_section   the section of that file with the settings below
    config_names     setting → its name in that section
    components       component → pattern of its command lines; empty if the platform itself starts the component
    home             folder for captures if the platform selects components but sets no home
    labels           returns labels of a process, from the words of the program's command line and whether the process
                     is a child of the program's first process
    task_methods     method that runs a task object → the one parameter that takes all arguments
    profile_task     modifies a task object to be profiled: takes the object and a decorator for its function, returns
                     the object; None if it is no task of the platform
    adapt            called at the start of a program if the settings enable the profiler, to adapt the platform
    report_sink      returns the sink that shows reports in the task that runs here, or None
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
        labels: Callable[[list[str], bool], dict[str, str]] | None = None,
        task_methods: Mapping[str, str] | None = None,
        profile_task: Callable[[object, Callable[..., Any]], object | None] | None = None,
        report_sink: Callable[[], Sink | None] | None = None,
        adapt: Callable[[Settings], None] | None = None,
    ) -> None:
        self.variables = variables or {}
        self.documented = documented or {}
        self.config_file = config_file
        self.config_section = config_section
        self.config_names = config_names or {}
        self.components = components or {}
        self.home = home
        self.labels = labels
        self.task_methods = task_methods or {}
        self.profile_task = profile_task
        self.report_sink = report_sink
        self.adapt = adapt


def names() -> list[str]:
    """Return the names of all platform modules."""
    files = [name for folder in __path__ for name in os.listdir(folder) if not name.startswith("_")]
    return sorted(name.removesuffix(".py") for name in files if name.endswith(".py") or "." not in name)


def in_use(environment: Mapping[str, str]) -> list[Platform]:
    """Return the platforms that the environment mentions."""
    variables = "\0".join(["", *environment])
    is_any = "\0MEMRAY" in variables
    return [_load(name) for name in names() if is_any or f"\0{name.upper()}" in variables]


def labels_of(words: list[str], is_child: bool) -> dict[str, str]:
    """Return the labels of a process from the platform that its command line names, such as `celery worker`."""
    program = words[1] if words[:1] == ["-m"] and len(words) > 1 else "".join(words[:1])
    parts = "".join(letter if letter.isalnum() else " " for letter in program).split()
    labels: dict[str, str] = {}
    for name in names():
        if name in parts:
            platform = _load(name)
            if platform.labels is not None:
                labels.update(platform.labels(words, is_child))
    return labels


def all_platforms() -> list[Platform]:
    """Return every platform. Imports all their modules; :func:`in_use` does not."""
    return [_load(name) for name in names()]


def profile_task(task: object, decorate: Callable[..., Any]) -> object | None:
    """Modify a platform's task object so that it is profiled, and return it; None if no platform knows the object."""
    for platform in all_platforms():
        profiled = platform.profile_task(task, decorate) if platform.profile_task is not None else None
        if profiled is not None:
            return profiled
    return None


def _load(name: str) -> Platform:
    from importlib import import_module

    platform: Platform = import_module(f"heaptide.platforms.{name}").PLATFORM
    return platform
