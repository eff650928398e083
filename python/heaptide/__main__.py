"""``python -m heaptide`` and the ``heaptide`` command: the same program."""

from __future__ import annotations

import sys
from typing import cast


def main() -> int:
    """Do what the command line says. Reports are made by the native part; only programs to run come back to Python."""
    from heaptide import _native

    outcome = _native.main(sys.argv[1:])
    if isinstance(outcome, int):
        return outcome
    if outcome["command"] == "lines":
        from heaptide.line_program import LinesPlan, watch

        return watch(cast("LinesPlan", outcome))
    from heaptide.run import Plan, run

    return run(cast("Plan", outcome))


if __name__ == "__main__":
    sys.exit(main())
