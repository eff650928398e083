"""Parsers of the values of settings: each takes the text that a user wrote and raises ValueError if it is invalid."""

from __future__ import annotations

import sys

YES = ("1", "t", "true", "y", "yes", "on")
NO = ("0", "f", "false", "n", "no", "off", "")
KEEP_ALL = sys.maxsize


def boolean(text: str) -> bool:
    """Return True for a word in `YES`, False for one in `NO`, ignoring case."""
    word = text.strip().lower()
    if word not in YES + NO:
        raise ValueError("it is neither yes nor no")
    return word in YES


def run(text: str) -> bool:
    """Return whether the text is `run` or a yes."""
    return text.strip().lower() == "run" or boolean(text)


def size(text: str) -> int:
    """Return a number of bytes. k, M, G and kiB, MiB, GiB are powers of 1024; kB, MB, GB are powers of 1000."""
    word = text.strip()
    digits = word.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    unit = word[len(digits) :].lower()
    factors = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
    for power, letter in enumerate("kmg", 1):
        factors.update(dict.fromkeys((letter, letter + "i", letter + "ib"), 1024**power))
    try:
        n_bytes = round(float(digits) * factors[unit])
    except (KeyError, ValueError, OverflowError):
        raise ValueError("a size is a number followed by k, M or G, such as 512k or 1MiB") from None
    if not 0 <= n_bytes <= 1 << 50:
        raise ValueError("a size is from 0 to a pebibyte")
    return n_bytes


def room(text: str) -> int:
    """Return a size; `all` is unlimited."""
    return KEEP_ALL if text.strip().lower() == "all" else size(text)


def whole(text: str) -> int:
    """Return a whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("it is not a whole number") from None


def sample(text: str) -> int | bool:
    """Return a size, True for a yes (the default size of the native module), or 0 for a no."""
    word = text.strip().lower()
    if word in YES and word != "1":
        return True
    return 0 if word in NO else size(text)


def milliseconds(text: str) -> int:
    """Return a whole number of milliseconds."""
    number = whole(text)
    if not 1 <= number <= 86_400_000:
        raise ValueError("it is not from 1 to 86400000")
    return number


def count(text: str) -> int:
    """Return a number from 0 on; `all` is unlimited."""
    if text.strip().lower() == "all":
        return KEEP_ALL
    number = whole(text)
    if number < 0:
        raise ValueError("it is less than 0")
    return number


def duration(text: str) -> float:
    """Return seconds. m, h and d are minutes, hours and days; 0 or `all` is off."""
    word = text.strip().lower()
    factors = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    digits = word[:-1] if word[-1:] in factors else word
    try:
        seconds = 0.0 if word == "all" else float(digits) * factors.get(word[-1:], 1)
    except ValueError:
        raise ValueError("a duration is a number followed by s, m, h or d, such as 12h") from None
    if not 0 <= seconds < 1e10:
        raise ValueError("a duration is from 0 to a few centuries")
    return seconds


def threshold(text: str) -> str:
    """Return the text of a threshold: a percentage of the control group's limit or of a size, or a size."""
    word = text.strip()
    share, is_share, rest = word.partition("%")
    if is_share:
        if not 1 <= float(share) <= 100:
            raise ValueError("a percentage is from 1 to 100")
        base = rest.strip().removeprefix("of").strip()
        if base:
            size(base)
    elif word:
        size(word)
    return word


def positive(text: str) -> int:
    """Return a whole number from 1 on."""
    number = whole(text)
    if number < 1:
        raise ValueError("it is less than 1")
    return number


def when_full(text: str) -> str:
    """Return `rotate` or `stop`."""
    word = text.strip().lower()
    if word not in ("rotate", "stop"):
        raise ValueError("it is neither rotate nor stop")
    return word


def words(text: str) -> list[str]:
    """Return the words between commas, without blanks around them. An empty text has no words."""
    return [word.strip() for word in text.split(",")] if text.strip() else []


def labels(text: str) -> dict[str, str]:
    """Return the labels in ``service=shop,version=1.4``."""
    from heaptide.labels import parse

    return parse(text)


def plain(text: str) -> str:
    """Return the text without blanks around it."""
    return text.strip()
