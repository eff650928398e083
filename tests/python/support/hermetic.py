"""The world in which the tests and all programs under test run: the same, whoever started them.

A shell, a service manager or a CI gives its children an environment, ignored signals, limits and a home with settings
in it. Each of these changes what a program prints or how it ends, so none of them is passed on.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import tempfile

# Where programs are, who we are and where files may go.
_KEPT = {"PATH", "USER", "LOGNAME", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONDONTWRITEBYTECODE"}
# By these, people tell the tests themselves what to use.
_OF_THE_TESTS = "HEAPTIDE_TEST_"
_OF_RUST = ("RUSTUP_HOME", "CARGO_HOME")
_PR_SET_THP_DISABLE = 41


def become_hermetic() -> None:
    """Change this process; its children inherit that."""
    # Rust's tools lie below the home that is left here.
    tools = {name: os.environ.get(name) or os.path.expanduser(f"~/.{name[:-5].lower()}") for name in _OF_RUST}
    for name in list(os.environ):
        if name not in _KEPT and not name.startswith(_OF_THE_TESTS):
            del os.environ[name]
    # The readline that pytest loads sets these where `os.environ` does not see it, and children would inherit them.
    for name in ("COLUMNS", "LINES"):
        os.unsetenv(name)
    # Removed when the process ends, with whatever a program put there.
    global _home
    _home = tempfile.TemporaryDirectory(prefix="heaptide-home-")
    os.environ.update(HOME=_home.name, LANG="C.UTF-8", TERM="dumb", **tools)
    os.umask(0o022)

    # A shell that starts the tests in the background ignores SIGINT, `nohup` SIGHUP, and some runners SIGCHLD.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # these two Python itself ignores
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)

    # No core file beside what a test looks for, and stacks and open files as on most machines.
    for kind, wanted in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_STACK, 8 << 20), (resource.RLIMIT_NOFILE, 4096)):
        _, hard = resource.getrlimit(kind)
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (soft, hard))

    # Resident sizes grow by pages of 4 KiB and not, where the kernel likes it, by two MiB at once.
    ctypes.CDLL(None).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
