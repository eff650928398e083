"""Keeps exceptions of Heaptide out of the program.

The interpreter and the program call some functions of Heaptide inside the program's own calls: when a thread starts,
before and after a fork, in a decorated function, at exit. An exception that left such a function would change the
program: a thread would never start, or a traceback would appear. Each such function is decorated with
:func:`contained`, or calls :func:`report_failure` if the decorator would change what the function measures.

Functions that the interpreter calls at a fork or at exit are decorated with :func:`untraced`: otherwise a trace
function that the program has set would see these calls, and could raise an exception in them.
"""

from __future__ import annotations

from heaptide.messages import print_message_once, reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")


def contained(function: Callable[P, R]) -> Callable[P, R | None]:
    """Decorate a function that runs inside the program's own calls: if it fails, it prints one line and returns None.

    KeyboardInterrupt and SystemExit pass, because they belong to the program. The decorated function adds no import to
    the call: a program may have emptied ``sys.modules``, or blocked imports, when it exits.
    """

    def call(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            report_failure(error)
            return None

    return call


def untraced(function: Callable[P, R]) -> Callable[P, R | None]:
    """Decorate as :func:`contained` does, and hide the call from the program's trace and profile functions."""
    from heaptide import _native  # here, because some users of this module must not load it

    return _native.untraced(contained(function))


def report_failure(error: Exception) -> None:
    """Print one line about a failure of Heaptide, once per process. Never raises."""
    try:
        print_message_once(f"{reason(error)}; the program continues")
    except Exception:  # for example, `str(error)` raises
        pass
