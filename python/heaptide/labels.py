"""Labels of this process: role, component, queue, rank, service, version, or any that the user sets.

They come from the platform, from ``HEAPTIDE_LABELS`` and from :func:`label`; each source overrides those before it.
Captures and heap snapshots store the labels known at their start in the header. Captures also store later labels, as
records. Labels describe a whole process; a job describes one unit of its work.
"""

from __future__ import annotations

import os
import sys

# Longer keys and values are cut, and further labels are ignored, because every capture stores all labels.
MAX_BYTES = 200
MAX_LABELS = 32

_set_by_program: dict[str, str] = {}
# How often the program has set labels.
n_changes = 0
# The labels from the platform, with the process ID they are for: a forked child may have another role.
_of_platform: tuple[int, dict[str, str]] | None = None


def label(**labels: object) -> None:
    """Set labels of this process, such as ``heaptide.label(queue="mail")``. None removes such a label."""
    global n_changes
    changed: dict[str, str] = {}
    for key, value in labels.items():
        if value is None:
            if _set_by_program.pop(key, None) is not None:
                changed[key] = ""
        else:
            changed[key] = _set_by_program[key] = _cut(str(value))
    n_changes += 1
    if changed and "heaptide._native" in sys.modules:
        from heaptide import _native  # waits if another thread is importing the module

        known = current()
        _native.set_labels(list(known.items()), [(key, known.get(key, "")) for key in changed])


def current() -> dict[str, str]:
    """Return the labels of this process. Never raises."""
    known = {**_platform_labels(), **_labels_of_settings(), **_set_by_program}
    shown = {_cut(key): _cut(value) for key, value in known.items() if value}
    return _without_secrets(dict(list(shown.items())[:MAX_LABELS]))


def facts() -> list[tuple[str, str]]:
    """Return the run and the labels as the headers of captures and heap snapshots store them."""
    from heaptide import _native
    from heaptide.recording import runs

    labels = list(current().items())
    _native.set_labels(labels, [])
    return [("run", runs.name()), *((f"label.{key}", value) for key, value in labels)]


def parse(text: str) -> dict[str, str]:
    """Return the labels in a text such as ``service=shop,version=1.4``. Raises ValueError if it is invalid."""
    labels = {}
    for word in text.split(","):
        key, equals, value = word.partition("=")
        if word.strip():
            if not equals or not key.strip():
                raise ValueError("labels are key=value, separated by commas")
            labels[key.strip()] = value.strip()
    return labels


def _labels_of_settings() -> dict[str, str]:
    from heaptide import redaction

    chosen = redaction.load_settings()
    return chosen.labels if chosen is not None and chosen.labels else {}


def _platform_labels() -> dict[str, str]:
    global _of_platform
    if _of_platform is None or _of_platform[0] != os.getpid():
        found: dict[str, str] = {}
        try:
            found = _labels_of_this_process()
        except Exception as error:
            from heaptide.messages import print_message_once, reason

            print_message_once(f"{reason(error)}; labels of the platform are missing")
        _of_platform = (os.getpid(), found)
    return _of_platform[1]


def _labels_of_this_process() -> dict[str, str]:
    from heaptide import _native

    found = {}
    # The command line of a process of `multiprocessing` names no program; that of the group's first process does.
    if _may_be_of_a_platform(sys.orig_argv) or any("multiprocessing" in word for word in sys.orig_argv):
        from heaptide import platforms
        from heaptide.recording import process_group, program

        words = program.command_words(process_group.ProcessGroup.of_this_process().command)
        found = platforms.labels_of(words, is_child=process_group.root()[0] != os.getpid())
    rank = _native.rank()
    return found if rank is None else {**found, "rank": str(rank)}


def _may_be_of_a_platform(words: list[str]) -> bool:
    """Return whether a word contains the name of a platform. If not, `platforms` need not be imported."""
    program = " ".join(words).lower()
    files = os.listdir(os.path.join(os.path.dirname(__file__), "platforms"))
    return any(name.partition(".")[0] in program for name in files)


def _without_secrets(labels: dict[str, str]) -> dict[str, str]:
    if not labels:
        return labels
    from heaptide import redaction

    words = [f"{key}={value}" for key, value in labels.items()]
    shown = redaction.command(words)
    return {
        key: value if new == old else "***" for (key, value), old, new in zip(labels.items(), words, shown, strict=True)
    }


def _cut(text: str) -> str:
    plain = " ".join(text.split())
    return plain.encode("utf-8", "replace")[:MAX_BYTES].decode(errors="ignore")
