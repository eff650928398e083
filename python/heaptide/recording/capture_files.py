"""Names of capture files: fills in patterns, renames earlier captures, removes old ones.

The latest capture always has the documented name. Earlier captures of that name, and those of their children, are
renamed to include the time of their last write: ``scheduler_memory.bin`` becomes
``scheduler_memory.20261115T233000.bin``. A process can continue to write to a renamed capture.

`re` is not imported: it would make the start of every recorded program twice as slow.
"""

from __future__ import annotations

import os
import time

from heaptide.messages import print_message_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaptide.settings import Settings

FIELDS = ("component", "pid", "host", "time")
PROGRAM_PATTERN = "heaptide-{component}.{pid}.tide"
COMPONENT_PATTERN = "{component}_memory.bin"
# A file name has at most 255 bytes, including time stamps, numbers and endings.
MAX_NAME_BYTES = 128


def stamp(seconds: float | None = None) -> str:
    """Return a time for file names: local time, to the second."""
    return time.strftime("%Y%m%dT%H%M%S", time.localtime(seconds))


def safe(name: str) -> str:
    """Return a similar name that is valid as one component of a path."""
    plain = "".join(letter if letter.isalnum() or letter in "_.+-" else "_" for letter in name)
    return plain.encode()[:MAX_NAME_BYTES].decode(errors="ignore").lstrip(".") or "_"


def expand(settings: Settings, component: str, *, is_component: bool) -> str:
    """Return the absolute path for the capture of this process, and create its folder."""
    default = COMPONENT_PATTERN if is_component else PROGRAM_PATTERN
    pattern = settings.out or default
    unknown = [text for is_field, text in _parts(pattern) if is_field and text not in FIELDS]
    if unknown:
        print_message_once(
            f"unknown field {{{unknown[0]}}} in HEAPTIDE_OUT, so {default} is used; fields are {{{'} {'.join(FIELDS)}}}"
        )
        pattern = default
    name = "".join(_field(text, component) if is_field else text for is_field, text in _parts(pattern))
    path = os.path.abspath(os.path.join(home(settings), name))
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise OSError(error.errno, f"the folder {folder} cannot be created ({error.strerror})") from None
    return path


def _parts(pattern: str) -> Iterator[tuple[bool, str]]:
    """Yield the names of the fields in braces, marked with True, and the text between them."""
    first, *rest = pattern.split("{")
    yield False, first
    for part in rest:
        field, brace, text = part.partition("}")
        if brace:
            yield True, field
            yield False, text
        else:
            yield False, "{" + part


def _field(name: str, component: str) -> str:
    if name == "component":
        return safe(component)
    if name == "pid":
        return str(os.getpid())
    return safe(os.uname().nodename) if name == "host" else stamp()


def home(settings: Settings) -> str:
    """Return the folder from which relative names of captures start."""
    if settings.home:
        return os.path.expanduser(str(settings.home))
    platform = settings.platforms.get("trace_components")
    return os.path.expanduser(platform.home) if platform is not None else ""


def make_room(path: str, keep: int) -> None:
    """Rename an earlier capture of this name, and keep only the latest `keep` renamed ones."""
    if os.path.lexists(path) and not os.path.isfile(path):
        return  # do not rename a device or a folder; opening it will raise an error
    family = [path, *children_of(path)]
    if os.path.exists(path):
        if keep > 0:
            renamed = _renamed(path)
            for member in family if renamed else ():
                _move(member, renamed + member[len(path) :])
        else:
            for member in family:
                _remove(member)
    else:
        # The main capture was removed. Its children's captures must not become part of the next session.
        for member in family[1:]:
            _remove(member)
    for old in earlier(path)[max(keep, 0) :]:
        for member in (old, *children_of(old)):
            _remove(member)


def earlier(path: str) -> list[str]:
    """Return earlier captures of this name, the latest first."""
    folder = os.path.dirname(path)
    stem, ending = os.path.splitext(os.path.basename(path))
    found = []
    for name in _names(folder):
        if name.startswith(f"{stem}.") and name.endswith(ending):
            moment, dash, number = name[len(stem) + 1 : len(name) - len(ending)].partition("-")
            if _is_stamp(moment) and (number.isdecimal() or not dash):
                found.append((moment, int(number or 0), name))
    return [os.path.join(folder, name) for _, _, name in sorted(found, reverse=True)]


def _is_stamp(text: str) -> bool:
    return len(text) == 15 and text[8] == "T" and (text[:8] + text[9:]).isdecimal()


def children_of(path: str) -> list[str]:
    """Return the captures of processes that joined the recording: the same name followed by process IDs."""
    prefix = os.path.basename(path) + "."
    folder = os.path.dirname(path)
    found = [name for name in _names(folder) if name.startswith(prefix) and _is_process(name[len(prefix) :])]
    return [os.path.join(folder, name) for name in sorted(found)]


def child_of(path: str) -> str:
    """Return an unused name for the capture of this process, which joins the session of the capture `path`.

    A process that executes another program has several captures; the second and later ones have a number.
    """
    return unused_path(f"{path}.{os.getpid()}")


def unused_path(stem: str, ending: str = "") -> str:
    """Return the stem with the ending. If that file exists, add a number to the stem."""
    path, number = stem + ending, 1
    while os.path.lexists(path):
        number += 1
        path = f"{stem}-{number}{ending}"
    return path


def _is_process(ending: str) -> bool:
    """Return whether the ending of a name consists of process IDs, each optionally followed by `-` and a number."""
    for part in ending.split("."):
        pid, dash, number = part.partition("-")
        if not pid.isdecimal() or (dash and not number.isdecimal()):
            return False
    return True


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")
    except OSError:
        return []


def _renamed(path: str) -> str:
    """Return an unused name with the time of the last write, or nothing if another process has renamed the file."""
    stem, ending = os.path.splitext(path)
    try:
        written = os.stat(path).st_mtime
    except FileNotFoundError:
        return ""
    return unused_path(f"{stem}.{stamp(written)}", ending)


def _move(old: str, new: str) -> None:
    try:
        os.rename(old, new)
    except FileNotFoundError:  # another process that uses the same name has renamed it
        pass


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
