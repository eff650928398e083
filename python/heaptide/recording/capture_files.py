"""Names of captures: patterns filled in, earlier captures moved aside, old ones removed.

The latest capture is always at the documented name. The one that was there before goes to the same name with the time
of its last write in front of the ending, together with the captures of its children: ``scheduler_memory.bin`` becomes
``scheduler_memory.20261115T233000.bin``. A process that still records into it goes on undisturbed.
"""

from __future__ import annotations

import os
import re
import time

from heaptide.messages import say_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaptide.settings import Settings

FIELDS = ("component", "pid", "host", "time")
PROGRAM_PATTERN = "heaptide-{component}.{pid}.tide"
COMPONENT_PATTERN = "{component}_memory.bin"
# Of the 255 that a file name may have; time stamps, numbers and endings need some, too.
MAX_NAME_BYTES = 128
_FIELD = re.compile(r"\{([^{}]*)\}")
_STAMP = r"\d{8}T\d{6}(?:-\d+)?"


def stamp(seconds: float | None = None) -> str:
    """A time as it stands in file names: local, to the second."""
    return time.strftime("%Y%m%dT%H%M%S", time.localtime(seconds))


def safe(name: str) -> str:
    """A name that is one part of a path, whatever it was before."""
    short = re.sub(r"[^\w.+-]", "_", name).encode()[:MAX_NAME_BYTES].decode(errors="ignore")
    return short.lstrip(".") or "_"


def expand(settings: Settings, component: str, *, is_component: bool) -> str:
    """Where the capture of this process goes, as an absolute path; its folder exists afterwards."""
    default = COMPONENT_PATTERN if is_component else PROGRAM_PATTERN
    pattern = settings.out or default
    unknown = [field for field in _FIELD.findall(pattern) if field not in FIELDS]
    if unknown:
        say_once(f"HEAPTIDE_OUT knows no {{{unknown[0]}}}, only {{{'} {'.join(FIELDS)}}}; {default} is used instead")
        pattern = default
    path = os.path.abspath(os.path.join(home(settings), _FIELD.sub(lambda found: _field(found[1], component), pattern)))
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise OSError(error.errno, f"the folder {folder} cannot be made ({error.strerror})") from None
    return path


def _field(name: str, component: str) -> str:
    if name == "component":
        return safe(component)
    if name == "pid":
        return str(os.getpid())
    return safe(os.uname().nodename) if name == "host" else stamp()


def home(settings: Settings) -> str:
    """The folder for captures whose name has none."""
    if settings.home:
        return os.path.expanduser(str(settings.home))
    platform = settings.platforms.get("trace_components")
    return os.path.expanduser(platform.home) if platform is not None else ""


def make_room(path: str, keep: int) -> None:
    """Move an earlier capture of this name aside, and remove those that are too many."""
    if os.path.lexists(path) and not os.path.isfile(path):
        return  # a device or a folder is not ours to move; opening it will say what is wrong
    family = [path, *children_of(path)]
    if os.path.exists(path):
        if keep > 0:
            aside = _aside(path)
            for member in family:
                _move(member, aside + member[len(path) :])
        else:
            for member in family:
                _remove(member)
    else:
        # Children of a session whose own capture somebody took away: they must not join the next one.
        for member in family[1:]:
            _remove(member)
    for old in earlier(path)[max(keep, 0) :]:
        for member in (old, *children_of(old)):
            _remove(member)


def earlier(path: str) -> list[str]:
    """Earlier captures of this name, the latest first."""
    stem, ending = os.path.splitext(path)
    shape = re.compile(re.escape(os.path.basename(stem)) + "\\." + f"({_STAMP})" + re.escape(ending))

    def age(name: str) -> tuple[str, int]:
        moment, _, number = shape.fullmatch(name)[1].partition("-")  # type: ignore[index]
        return moment, int(number or 0)

    folder = os.path.dirname(path)
    found = sorted((name for name in _names(folder) if shape.fullmatch(name)), key=age, reverse=True)
    return [os.path.join(folder, name) for name in found]


def children_of(path: str) -> list[str]:
    """Captures of the processes that joined: the same name with a pid behind it."""
    shape = re.compile(re.escape(os.path.basename(path)) + r"\.\d+")
    folder = os.path.dirname(path)
    return [os.path.join(folder, name) for name in sorted(_names(folder)) if shape.fullmatch(name)]


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")
    except OSError:
        return []


def _aside(path: str) -> str:
    """A free name with the time of the last write."""
    stem, ending = os.path.splitext(path)
    moment = stamp(os.stat(path).st_mtime)
    for candidate in _numbered(f"{stem}.{moment}"):
        if not os.path.lexists(candidate + ending):
            return candidate + ending
    raise AssertionError("numbers do not end")


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    number = 1
    while True:
        number += 1
        yield f"{stem}-{number}"


def _move(old: str, new: str) -> None:
    try:
        os.rename(old, new)
    except FileNotFoundError:  # another process that uses the same name was faster
        pass


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
