"""The process that makes a report for a running job: with low priority and bounded memory.

Started by the job's control as ``python -I -S -c … <import path> <bytes> <words of the heaptide command>``. How it
ended is the last line on standard error, because the job may take away the exit code: programs wait for children in
many ways.
"""

from __future__ import annotations

import os
import sys

_NICE = 10


def main() -> None:
    """Do what the words say, and write down how it ended."""
    from heaptide import _native

    limit, *words = sys.argv[1:]
    _lower(int(limit))
    outcome = _native.main(words)
    code = outcome if isinstance(outcome, int) else 2
    sys.stdout.flush()
    os.write(2, f"\nheaptide-ended: {code}\n".encode())
    os._exit(code)


def _lower(limit: int) -> None:
    import resource

    try:
        os.nice(_NICE)
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        bounds = [bound for bound in (limit, soft, hard) if bound != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_AS, (min(bounds), hard))
    except (OSError, ValueError):  # a sandbox may forbid it; the report is made all the same
        pass
