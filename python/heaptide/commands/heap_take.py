"""``heaptide heap take script.py``: runs a program as Python would, and takes a heap snapshot at its exit.

The snapshot is taken after the program's last exit handler and before the interpreter is torn down, so it contains
what the program never released.
"""

from __future__ import annotations

import atexit
import json
import os
import sys

from heaptide import _native
from heaptide.commands.run import run_program
from heaptide.containment import untraced
from heaptide.inspection.snapshots import heap_snapshot
from heaptide.messages import print_message, reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from heaptide.commands.run import Target

    class HeapPlan(Target):
        """The arguments of the command."""

        output: str | None
        force: bool
        values: bool
        redact: list[str]


def take(plan: HeapPlan) -> int:
    """Run the program and write its heap. Returns the exit code, or exits as the program does."""
    output = plan["output"] and os.path.abspath(plan["output"])

    def begin() -> int:
        # Registered before the program's exit handlers, so that it runs after them.
        atexit.register(_finish, plan, output, os.getpid())
        return 0

    return run_program(plan, begin)


@untraced
def _finish(plan: HeapPlan, output: str | None, pid: int) -> None:
    if os.getpid() != pid:
        return
    try:
        taken = heap_snapshot(output, values=plan["values"], redact=plan["redact"], overwrite=plan["force"])
    except Exception as error:
        print_message(f"the heap was not written: {reason(error)}")
        return
    print_message(
        f"{taken.objects:,} objects of {taken.types:,} types, {_native.size_text(taken.bytes)}, in {taken.path}"
    )
    print_message(f"inspect them with: heaptide heap types {taken.path}")


if __name__ == "__main__":
    options, output, target, *arguments = sys.argv[1:]
    plan: HeapPlan = json.loads(options)
    plan.update({"output": output or None, "target": target, "arguments": arguments})
    sys.exit(take(plan))
