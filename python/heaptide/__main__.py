"""``python -m heaptide`` and the ``heaptide`` command: the same program."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. The native module runs most commands; for the others it returns a plan to run here."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        from heaptide import _native
    except ImportError as error:
        from heaptide.messages import print_message

        print_message(f"could not be loaded: {error}")
        return 1

    if words[:1] == ["attach"]:
        import signal

        # Ctrl-C must stop the recording cleanly, so it must not raise KeyboardInterrupt.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    outcome = _native.main(words)
    if isinstance(outcome, int):
        return outcome
    if isinstance(outcome, _native.Watched):
        import signal
        import subprocess

        # Ctrl-C is for the program, which must inherit the default action of SIGINT, as from a shell.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        return outcome.run([sys.executable, *flags, "-m", "heaptide"])
    plan: Any = outcome
    if plan["command"] == "lines":
        from heaptide.commands.lines import run as run_lines

        return run_lines(plan)
    if plan["command"] == "serve":
        from heaptide.commands import serve

        return serve.serve(plan)
    if plan["command"] == "doctor":
        from heaptide.commands.doctor import examine

        return examine()
    if plan["command"] == "worker":
        from heaptide.commands import worker

        return worker.work(plan)
    from heaptide.commands.run import run

    return run(plan)


if __name__ == "__main__":
    sys.exit(main())
