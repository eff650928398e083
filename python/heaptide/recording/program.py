"""Name, words and folder of the program that an interpreter runs, read from its command line."""

from __future__ import annotations

import os
import sys

# The command line of `heaptide run`, after `set_original_arguments` has replaced `sys.orig_argv`.
_started_with: list[str] | None = None

# The options of `heaptide run` that take the next word as their value.
_RUN_OPTIONS_WITH_VALUE = ("--output", "--interval", "--live-port", "--report", "--python", "--color")
_RUN_LETTERS_WITH_VALUE = "op"


def started_with() -> list[str]:
    """Return the command line of this interpreter; under ``heaptide run``, the one that starts with heaptide."""
    return list(sys.orig_argv if _started_with is None else _started_with)


def set_original_arguments(words: list[str]) -> None:
    """Set ``sys.orig_argv`` as plain Python does, for programs that use it to restart themselves."""
    global _started_with
    options = interpreter_options()
    _started_with = started_with()
    sys.orig_argv = [*_started_with[:1], *options, *words]


def recorded_command(command: list[str]) -> list[str]:
    """Return the command line of the program that a `heaptide run` command runs; any other command as it is."""
    words = after_options(command)
    if words[:2] == ["-m", "heaptide"]:
        words = words[1:]
    if len(words) < 2 or os.path.basename(words[0]) != "heaptide" or words[1] != "run":
        return command
    words = words[2:]
    while words and words[0] not in ("-", "--") and words[0].startswith("-"):
        word = words.pop(0)
        if word in _RUN_OPTIONS_WITH_VALUE:
            words = words[1:]
        elif not word.startswith("--"):
            # Letters may share a word, and a value may follow its letter directly: `-qf`, `-oFILE`, `-mMODULE`.
            at = next((at for at, letter in enumerate(word) if letter in _RUN_LETTERS_WITH_VALUE + "mc"), 0)
            if at and word[at] in "mc":
                return [*command[:1], f"-{word[at]}", *([word[at + 1 :]] if word[at + 1 :] else []), *words]
            if at and not word[at + 1 :]:
                words = words[1:]
    return [*command[:1], *(words[1:] if words[:1] == ["--"] else words)]


def program_name(command: list[str] | None = None) -> str:
    """Return the name of a program, by default of this process: its script, its module, or the origin of its code."""
    words = command_words(command)
    if not words:
        return "python"
    if words[0] == "-m":
        return words[1] if len(words) > 1 else "module"
    if words[0] == "-c":
        return "spawn" if "--multiprocessing-fork" in words else "string"
    return "stdin" if words[0] == "-" else words[0]


def arguments() -> list[str]:
    """Return ``sys.argv`` as text, even if the program has put other objects there."""
    return [word if isinstance(word, str) else f"<{type(word).__name__}>" for word in getattr(sys, "argv", None) or ()]


def main_folder() -> str:
    """Return the folder that Python will put first on its import path; empty if the folder was deleted."""
    words = after_options()
    try:
        if not words or words[0] in ("-m", "-c", "-"):
            return os.getcwd()
        return os.path.dirname(os.path.realpath(words[0]))
    except OSError:
        return ""


def command_words(command: list[str] | None = None) -> list[str]:
    """Return a command line without the interpreter, its options and the script's folder: `airflow scheduler -n 3`."""
    words = after_options(command)
    if words and words[0] not in ("-m", "-c", "-"):
        words[0] = os.path.basename(words[0])
    return words


def after_options(command: list[str] | None = None) -> list[str]:
    """Return the words after the interpreter's options. `-m` or `-c`, if present, is the first word."""
    return _split(list(started_with() if command is None else command)[1:])[1]


def interpreter_options() -> list[str]:
    """Return the options that this interpreter was started with, such as `-u` and `-O`."""
    return _split(started_with()[1:])[0]


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the interpreter's options, and the words after them."""
    options: list[str] = []
    while words:
        word = words[0]
        if word == "-" or not word.startswith("-"):
            break
        n_words = 1
        if word.startswith("--"):
            n_words = 2 if word == "--check-hash-based-pycs" else 1
        else:
            for at, letter in enumerate(word[1:], 1):
                rest = word[at + 1 :]
                if letter in "mc":
                    if at > 1:
                        options.append(word[:at])
                    return options, [f"-{letter}", *([rest] if rest else []), *words[1:]]
                if letter in "WX":
                    n_words = 1 if rest else 2
                    break
        options += words[:n_words]
        words = words[n_words:]
    return options, words
