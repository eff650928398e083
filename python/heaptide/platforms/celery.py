"""Celery: the roles of its processes."""

from __future__ import annotations

from heaptide.platforms import Platform

# Pools whose tasks run in the main process.
_IN_MAIN_PROCESS = ("solo", "threads", "eventlet", "gevent")
_COMMANDS = ("worker", "beat", "flower", "events", "multi")


def _labels(words: list[str], is_child: bool) -> dict[str, str]:
    command = next((word for word in words[1:] if word in _COMMANDS), "")
    if not command:
        return {}
    if command != "worker":
        return {"role": f"celery {command}"}
    pool = _option(words, "-P", "--pool")
    labels = {"role": "celery worker" if is_child or pool in _IN_MAIN_PROCESS else "celery main process"}
    queues = _option(words, "-Q", "--queues")
    return {**labels, "queue": queues} if queues else labels


def _option(words: list[str], short: str, long: str) -> str:
    for at, word in enumerate(words):
        if word in (short, long):
            return words[at + 1] if at + 1 < len(words) else ""
        if word.startswith(f"{long}="):
            return word[len(long) + 1 :]
        if word.startswith(short) and not word.startswith("--"):
            return word[len(short) :].lstrip("=")
    return ""


PLATFORM = Platform(labels=_labels)
