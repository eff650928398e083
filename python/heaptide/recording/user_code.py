"""Finds the folders of user code and of libraries, for the header of a capture.

With them, a report on any machine can distinguish frames of user code. User code is the main script's folder, the main
module's package, editable installs, and the packages that `HEAPTIDE_MY_CODE` names. For an installed command it is the
folder in which the command was started, and the folders of the Python files that its arguments name. `describe`
raises no exception. Of the standard library, this module imports only `os` and `sys`, so that the program finds the
same modules in `sys.modules` as under plain Python.
"""

from __future__ import annotations

import os
import sys

from heaptide.recording import program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class CodeFolders(TypedDict):
        """The folders, as `_native.start` takes them."""

        library_paths: list[str]
        user_paths: list[str]
        user_packages: list[str]


VARIABLE = "HEAPTIDE_MY_CODE"
PACKAGE_FOLDERS = ("site-packages", "dist-packages")

# A cache of the editable installs in each folder, because decorated functions start a recording with every call.
_editable: dict[str, list[str]] = {}


def describe(command: list[str] | None) -> CodeFolders:
    """Return the folders of this process. `command` is the program's command line, if it has not started yet."""
    try:
        return _describe(command)
    except Exception:  # the program may have put any object into its main module or the import path
        return {"library_paths": [], "user_paths": [], "user_packages": []}


def _describe(command: list[str] | None) -> CodeFolders:
    sites = [path for path in sys.path if isinstance(path, str) and os.path.basename(path) in PACKAGE_FOLDERS]
    prefixes = [sys.prefix, sys.base_prefix, sys.exec_prefix]
    folders, packages = _of_main(command)
    scripts = {os.path.join(prefix, "bin") for prefix in prefixes}
    if any(folder in scripts for folder in folders):
        # An installed command, such as a job runner.
        words = program.arguments() if command is None else command
        scripts_named = [word for word in words[1:] if word.endswith(".py") and os.path.isfile(word)]
        folders = [_current_folder(), *(folder for script in scripts_named for folder in _folders_of(script))]
    for site in sites:
        folders += _editable_installs(site)
    named = "" if sys.flags.ignore_environment else os.environ.get(VARIABLE, "")
    for name in filter(None, (word.strip() for word in named.split(","))):
        (folders if os.sep in name else packages).append(name)
    return {
        "library_paths": _texts([*prefixes, *sites]),
        "user_paths": _texts(folders),
        "user_packages": _texts(packages),
    }


def _of_main(command: list[str] | None) -> tuple[list[str], list[str]]:
    """Return the folders and the packages of the main module."""
    main = sys.modules.get("__main__")
    if command is not None:
        words = program.after_options(["python", *command])
        if words and words[0] not in ("-m", "-c", "-"):
            return _folders_of(words[0]), []
        is_module = words[:1] == ["-m"] and len(words) > 1
        return [_current_folder()], [words[1].partition(".")[0]] if is_module else []
    name = getattr(getattr(main, "__spec__", None), "name", None)
    packages = [name.partition(".")[0]] if isinstance(name, str) and name != "__main__" else []
    file = getattr(main, "__file__", None)
    # `python -m` imports from the current folder.
    return _folders_of(file) if isinstance(file, str) and not packages else [_current_folder()], packages


def _folders_of(script: str) -> list[str]:
    """Return the folder of a script, with and without resolved links; for a folder or an archive, its own path."""
    try:
        path = os.path.abspath(script)
        is_folder = os.path.isdir(path) or path.endswith((".zip", ".pyz"))
        paths = [path, os.path.realpath(path)]
        return paths if is_folder else [os.path.dirname(path) for path in paths]
    except (OSError, ValueError):
        return []


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # the folder was deleted
        return ""


def _editable_installs(site: str) -> list[str]:
    """Return the project folders of editable installs in `site`."""
    if site not in _editable:
        found: list[str] = []
        try:
            with os.scandir(site) as entries:
                for entry in entries:
                    if entry.name.endswith(".dist-info"):
                        found += _project(_text_of(os.path.join(entry.path, "direct_url.json")))
                    elif entry.name.endswith(".egg-link"):
                        found += _text_of(entry.path).split("\n")[:1]
        except OSError:
            pass
        _editable[site] = found
    return _editable[site]


def _project(text: str) -> list[str]:
    """Return the folder in a direct_url.json, if the install is editable. `json` must not be imported here."""
    compact = "".join(text.split())
    if '"editable":true' not in compact:
        return []
    url = compact.partition('"url":"file://')[2].partition('"')[0]
    first, *rest = url.split("%")
    try:
        path = first.encode() + b"".join(bytes.fromhex(part[:2]) + part[2:].encode() for part in rest)
    except ValueError:
        return []
    return [os.fsdecode(path)] if path else []


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return ""


def _texts(texts: list[str]) -> list[str]:
    """Return each text once, with characters that cannot be encoded replaced."""
    known = (text.encode("utf-8", "replace").decode() for text in texts if isinstance(text, str) and text)
    return list(dict.fromkeys(known))
