"""Front ends that let code written for other profilers run unchanged on Heaptide."""

from __future__ import annotations

from heaptide import settings


def may_raise() -> bool:
    """Return whether a problem of Heaptide may raise an exception in the program.

    A program that runs with HEAPTIDE_COMPAT does not expect Heaptide's exceptions, so it gets a line on standard error.
    """
    return not settings.load().compat
