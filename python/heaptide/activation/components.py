"""Components: named parts of a service that are recorded while they run, if the configuration selects them.

::

    @heaptide.component("scheduler")
    def run_scheduler(): ...

A component that is not selected only reads the configuration; the native module is not loaded. If recording fails, the
component still runs, and one line on standard error names what failed.
"""

from __future__ import annotations

from heaptide.messages import print_message, print_message_once, reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, TypeVar

    from heaptide.recording.from_settings import SettingsRecording
    from heaptide.settings import Settings

    Function = TypeVar("Function", bound=Callable[..., Any])

_declared: set[str] = set()


class component:
    """Records the decorated function, or a ``with`` block, as a named component if the configuration selects it.

    Select components with the setting ``trace_components``. The capture is ``<component>_memory.bin`` in the folder of
    the setting ``home``; the name of an earlier capture gets the time of its last write. Decorates plain and async
    functions. The configuration is read each time the component starts.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError('a component needs a name: heaptide.component("scheduler")')
        self.name = name
        self._begun: list[SettingsRecording | None] = []
        _declared.add(name)

    def __enter__(self) -> component:
        self._begun.append(_begin(self.name))
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _end(self._begun.pop())

    def __call__(self, function: Function) -> Function:
        import functools
        import inspect

        name = self.name
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run(*args: Any, **kwargs: Any) -> Any:
                with component(name):
                    return await function(*args, **kwargs)

        else:

            @functools.wraps(function)
            def run(*args: Any, **kwargs: Any) -> Any:
                with component(name):
                    return function(*args, **kwargs)

        return run  # type: ignore[return-value]


def selected(chosen: Settings) -> list[str]:
    """Return the components to record. An unknown name is reported once and ignored."""
    names = []
    for name in chosen.trace_components:
        if name in _declared or name in chosen.patterns:
            names.append(name)
            continue
        from heaptide import platforms

        of_platforms = {component for platform in platforms.all_platforms() for component in platform.components}
        if name in of_platforms:
            names.append(name)
        else:
            known = sorted({*of_platforms, *chosen.patterns, *_declared})
            print_message_once(
                f"unknown component {name!r} in trace_components: use {', '.join(known)}, "
                "or declare it in the section [components]"
            )
    return names


def matched(chosen: Settings) -> str:
    """Return the selected component whose pattern matches the command line of this process, or an empty string."""
    from fnmatch import fnmatchcase

    from heaptide.recording.program import command_words

    line = " ".join(command_words())
    for name in selected(chosen):
        pattern = chosen.patterns.get(name, "")
        if pattern and (fnmatchcase(line, pattern) or fnmatchcase(line, pattern + " *")):
            return name
    return ""


def _begin(name: str) -> SettingsRecording | None:
    try:
        from heaptide import settings

        chosen = settings.load()
        if name not in selected(chosen):
            return None
        from heaptide.recording import from_settings

        running = from_settings.current()
        if running is not None and running.component == name:
            return None  # started with the process, or by an enclosing component of the same name
        begun = from_settings.begin(chosen, name, is_component=True)
        if not chosen.quiet:
            print_message(f"component {name}: recording into {begun.path}")
        return begun
    except Exception as error:
        print_message(f"component {name}: {reason(error)}; it runs without being recorded")
        return None


def _end(begun: SettingsRecording | None) -> None:
    if begun is None:
        return
    try:
        from heaptide.recording import from_settings

        # The setting max_size may have started another capture of the same component meanwhile.
        running = from_settings.current()
        if running is not None and running.is_component and running.component == begun.component:
            from_settings.end()
    except Exception as error:
        print_message(f"component {begun.component}: {reason(error)}")
