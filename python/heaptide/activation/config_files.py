"""Finds the configuration files and returns their settings as text.

Heaptide reads the file that ``HEAPTIDE_CONFIG`` names. Without that variable it searches the current folder, then
``HEAPTIDE_HOME``, for ``heaptide.toml``, ``heaptide.cfg`` and a ``pyproject.toml`` with a table ``[tool.heaptide…]``.
It also reads one section of each platform's own file. An unreadable file is reported in one line and ignored.
"""

from __future__ import annotations

import os

from heaptide import platforms
from heaptide.messages import print_message_once, reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from heaptide.platforms import Platform

NAMES = ("heaptide.toml", "heaptide.cfg", "pyproject.toml")


class Configuration:
    """The content of the files, all values as text."""

    def __init__(self) -> None:
        self.path = ""
        self.profiling: dict[str, str] = {}
        # Component → pattern of its command lines.
        self.components: dict[str, str] = {}
        # Platforms with a configuration file, its path, and its section about profiling.
        self.platforms: list[tuple[Platform, str, dict[str, str]]] = []

    def unknown(self, known: set[str]) -> Iterator[tuple[str, str]]:
        """Yield the unknown settings in Heaptide's file, each with its section."""
        return (("profiling", name) for name in self.profiling if name not in known)


def find(environment: Mapping[str, str]) -> Configuration:
    """Find the files and read them. Never raises."""
    configuration = Configuration()
    named = environment.get("HEAPTIDE_CONFIG")
    if named is not None:
        if named and named != "off":
            _read(named, configuration)
    else:
        folders = [folder for folder in ("", environment.get("HEAPTIDE_HOME")) if folder is not None]
        candidates = (os.path.join(folder, name) for folder in folders for name in NAMES)
        any(_read(path, configuration) for path in candidates if os.path.isfile(path))
    for platform in platforms.in_use(environment):
        path = platform.config_file(environment) if platform.config_file else ""
        if path and os.path.isfile(path):
            try:
                values = _texts(_ini(path).get(platform.config_section, {}))
                configuration.platforms.append((platform, path, values))
            except (OSError, ValueError) as error:
                print_message_once(f"{path} cannot be read ({_why(error)}); it is ignored")
    return configuration


def _why(error: OSError | ValueError) -> str:
    """Return the cause without the file name, which the message already contains."""
    return (isinstance(error, OSError) and error.strerror) or reason(error)


def _read(path: str, configuration: Configuration) -> bool:
    """Add the content of Heaptide's sections to the configuration.

    Return False if the file cannot be read, or is a `pyproject.toml` without a table of Heaptide.
    """
    try:
        tables = _ini(path) if path.endswith((".cfg", ".ini")) else _toml(path)
    except (OSError, ValueError) as error:
        print_message_once(f"{path} cannot be read ({_why(error)}); it is ignored")
        return False
    if os.path.basename(path) == "pyproject.toml":
        tool = tables.get("tool")
        tables = tool.get("heaptide") if isinstance(tool, dict) else None  # type: ignore[assignment]
        if not isinstance(tables, dict):
            return False
    configuration.path = path
    for table, target in (("profiling", configuration.profiling), ("components", configuration.components)):
        values = tables.get(table, {})
        target.update(_texts(values) if isinstance(values, dict) else {})
    return True


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return every value as it would be written in an environment variable."""

    def text(value: object) -> str:
        if isinstance(value, (list, tuple)):
            return ", ".join(map(text, value))
        return ("yes" if value else "no") if isinstance(value, bool) else str(value)

    return {name: text(value) for name, value in values.items()}


def _ini(path: str) -> dict[str, dict[str, str]]:
    import configparser

    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = lambda name: name  # type: ignore[assignment, method-assign]
    try:
        with open(path, encoding="utf-8") as file:
            parser.read_file(file)
    except configparser.Error as error:
        raise ValueError(str(error).replace("\n", " ")) from None
    return {section: dict(parser.items(section)) for section in parser.sections()}


def _toml(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    # Importing tomllib takes much longer than this check. `heaptide.pth` makes the same check.
    if os.path.basename(path) == "pyproject.toml" and "[tool.heaptide" not in text:
        return {}
    try:
        from tomllib import loads  # type: ignore[import-not-found, unused-ignore]
    except ImportError:  # before Python 3.11
        from heaptide.activation.toml_for_310 import loads
    tables: dict[str, Any] = loads(text)
    return tables
