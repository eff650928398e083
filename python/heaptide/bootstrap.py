"""Runs at the start of every interpreter, before the program: `heaptide.pth` calls :func:`begin`.

Without any Heaptide setting, `heaptide.pth` takes a few microseconds and does not import this module. This module reads
the settings and loads the native module only if a setting requires it. If anything fails, the program still runs, and
one line on standard error names what failed.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from heaptide.recording.session import Session
    from heaptide.settings import Settings

_begun = False
# True until the program starts: `sys.argv` and the import path are not yet those of the program.
is_early = False


def begin() -> None:
    """Apply the environment and the configuration file, once per process. Never raises."""
    global _begun, is_early
    if _begun or sys.flags.isolated or sys.flags.ignore_environment or _is_sub_interpreter():
        return
    _begun = True
    is_early = True
    try:
        _begin()
    except Exception as error:
        from heaptide.messages import print_message, reason

        print_message(f"{reason(error)}; the program runs without being recorded")
    is_early = False


def _is_sub_interpreter() -> bool:
    """Return whether this is a sub-interpreter. The settings have been applied in the main interpreter already.

    No function in all supported versions reports this. Outside the main interpreter, `set_wakeup_fd` raises ValueError
    before it checks the descriptor, so calling it with an invalid descriptor changes nothing.
    """
    import _signal  # type: ignore[import-not-found]

    try:
        _signal.set_wakeup_fd(0x7FFF_FFFF)
    except ValueError:
        return True
    except OSError:  # main interpreter: the descriptor is invalid
        pass
    return False


def _begin() -> None:
    import os

    from heaptide import settings
    from heaptide.recording import program

    inherited = os.environ.get(settings.SESSION, "")
    words = program.command_words()
    if _runs_no_program(words):
        return
    if "HEAPTIDE_TIMELINE_PROFILE" in os.environ:
        from heaptide.lines import builtin

        builtin.install()
    chosen = settings.load()
    if chosen.compat:
        from heaptide.compat import substitution

        substitution.substitute(chosen.compat)
        if words[:1] == ["-m"] and words[1:2] in [[name] for name in substitution.all_names(chosen.compat)]:
            return  # Heaptide's own command under another name
    if chosen.jobs:
        # An absolute path, so that programs started in another working directory write to the same folder.
        name = "HEAPTIDE__PROFILING__JOBS" if "HEAPTIDE__PROFILING__JOBS" in os.environ else "HEAPTIDE_JOBS"
        os.environ[name] = os.path.abspath(os.path.expanduser(chosen.jobs))
    if chosen.profiler:
        _attempt(_adapt_platforms, chosen)
    if inherited == "off":
        return
    joined = _session(inherited) if inherited else None
    if joined is not None and joined.is_continued and not joined.is_open:
        # The recorded process has exec'ed this program, but other programs do not join its session.
        os.environ.pop(settings.SESSION)
        joined = None
    component = ""
    if chosen.patterns:
        from heaptide.activation import components

        component = components.matched(chosen)
    if joined is not None and joined.is_open and chosen.children:
        _record(chosen, joined.path, joined=joined)
    elif component:
        _record(chosen, component, is_component=True)
    elif chosen.run and joined is None:
        _record(chosen, program.program_name())
    if chosen.act_at:
        _attempt(_pressure, chosen)
    if chosen.control:
        _attempt(_control, chosen)
    elif settings.RUN_FOLDER in os.environ:
        _attempt(_join_run, chosen)
    if chosen.signal:
        _attempt(_signal, chosen)
    if chosen.control_file:
        _attempt(_control_file, chosen)


def _session(inherited: str) -> Session | None:
    from heaptide.recording.session import Session

    return Session.read(inherited)


def _runs_no_program(words: list[str]) -> bool:
    """Return whether this is a command of Heaptide, or a helper of the standard library without user code."""
    if words[:1] == ["heaptide"] or (words[:1] == ["-m"] and words[1:2] in (["heaptide"], ["heaptide.__main__"])):
        return True
    return words[:1] == ["-c"] and words[1:] != [] and "multiprocessing.resource_tracker" in words[1]


def _record(chosen: Settings, name: str, *, is_component: bool = False, joined: Session | None = None) -> None:
    import atexit
    import os

    from heaptide.containment import untraced
    from heaptide.messages import print_message
    from heaptide.recording import from_settings

    # Registered before the program's exit handlers, so that it runs after them.
    finish = untraced(from_settings.finish)
    atexit.register(finish, os.getpid(), chosen.quiet or (joined is not None and joined.is_quiet))
    begun = from_settings.begin(chosen, name, is_component=is_component, whole_program=True, joined=joined)
    if is_component and not chosen.quiet:
        print_message(f"component {name}: recording into {begun.path}")


def _attempt(part: Callable[[Settings], None], chosen: Settings) -> None:
    """Call `part`; report its failure and continue, so that the other parts still run."""
    try:
        part(chosen)
    except Exception as error:
        from heaptide.messages import print_message, reason

        print_message(f"{reason(error)}; the program continues")


def _adapt_platforms(chosen: Settings) -> None:
    from heaptide import platforms

    for platform in platforms.all_platforms():
        if platform.adapt is not None:
            platform.adapt(chosen)


def _control(chosen: Settings) -> None:
    import errno
    import importlib
    import os

    from heaptide import settings
    from heaptide.recording import capture_files

    pid = str(os.getpid())
    address = chosen.control.replace("{pid}", pid)
    control = importlib.import_module("heaptide.control")
    try:
        control.start_as_set(address, directory=chosen.sessions or control.sessions_in(capture_files.home(chosen)))
    except OSError as error:
        # A child inherits the address of the process that listens at it, so the address is expected to be in use.
        if error.errno == errno.EADDRINUSE and os.environ.get(settings.CONTROL_HOLDER, pid) != pid:
            return
        raise
    os.environ.setdefault(settings.CONTROL_HOLDER, pid)


def _join_run(chosen: Settings) -> None:
    """Join the wanted recording of this process's run, if there is one.

    The code of the parent process, not a setting, started the control API, so this process has none. If no recording
    is wanted, this costs one system call.
    """
    from heaptide.recording import runs

    if runs.is_wanted():
        import importlib
        import os

        # The folder of the process that wants the recording, even if this process has other settings.
        folder = os.path.dirname(runs.inherited_folder())
        importlib.import_module("heaptide.control").start_as_set(None, directory=folder)


def _pressure(chosen: Settings) -> None:
    from heaptide import pressure

    pressure.watch(chosen.act_at, command=chosen.act_command)


def _signal(chosen: Settings) -> None:
    from heaptide.activation import triggers

    triggers.watch_signal(chosen)


def _control_file(chosen: Settings) -> None:
    from heaptide.activation import triggers

    triggers.watch_file(chosen)
