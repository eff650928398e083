"""Hides texts that files must not contain: those that match the setting `redact`, and tokens of the control API.

Patterns and tokens apply to the command line in captures and snapshots, to the values in snapshots, to labels, and to
the keys and labels of jobs.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from heaptide.settings import Settings

# Tokens that the program passed to the control API in code.
_tokens: set[str] = set()
# Heaptide's environment variables, and the settings read from them.
_loaded: tuple[list[tuple[str, str]], Settings] | None = None


def hide(token: str | None) -> None:
    """Never store this token."""
    if token:
        _tokens.add(token)


def patterns(more: Iterable[str] = ()) -> list[str]:
    """Return the patterns of the setting, and `more`."""
    chosen = load_settings()
    return [*(chosen.redact if chosen else ()), *more]


def secrets() -> list[str]:
    """Return all tokens of the control API, from the program and from the settings."""
    chosen = load_settings()
    named = (chosen.token, _content(chosen.token_file)) if chosen else ()
    return [*sorted(_tokens), *filter(None, named)]


def command(words: list[str]) -> list[str]:
    """Return a command line with secret values hidden."""
    hidden, tokens = patterns(), secrets()
    if not hidden and not tokens:
        return words
    from heaptide import _native

    # A word with invalid bytes is compared with these replaced. It is kept unchanged unless it must be hidden.
    compared = [word.encode("utf-8", "replace").decode() for word in words]
    shown = _native.redact_command(compared, hidden, tokens)
    return [word if new == old else new for word, old, new in zip(words, compared, shown, strict=True)]


def load_settings() -> Settings | None:
    """Return the settings, or None if there are none. In that case, their modules are not imported.

    Every recorded call needs the settings, so they are cached until the environment changes.
    """
    global _loaded
    environment = [(name, text) for name, text in os.environ.items() if name.startswith("HEAPTIDE")]
    # `heaptide.pth` imports the bootstrap if a variable or a configuration file names Heaptide.
    if not environment and "heaptide.bootstrap" not in sys.modules:
        return None
    if _loaded is None or _loaded[0] != environment:
        from heaptide import settings

        _loaded = (environment, settings.load())
    return _loaded[1]


def _content(path: str) -> str:
    """Return the token in a file; an unreadable file has none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""
