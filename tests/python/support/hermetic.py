"""Makes the tests and all programs under test run in the same environment, however the tests were started.

A shell, a service manager or a CI passes on an environment, ignored signals, limits and a home folder with settings.
Each of these can change what a program prints or how it ends, so the tests reset all of them.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import tempfile

_KEPT = {"PATH", "USER", "LOGNAME", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONDONTWRITEBYTECODE"}
# Variables with this prefix configure the tests themselves.
_TEST_PREFIX = "HEAPTIDE_TEST_"
_RUST_HOMES = ("RUSTUP_HOME", "CARGO_HOME")
_PR_SET_THP_DISABLE = 41


def become_hermetic() -> None:
    """Reset environment, signals and limits of this process; its children inherit them."""
    # Rust's tools are installed in the home folder that is replaced below.
    tools = {name: os.environ.get(name) or os.path.expanduser(f"~/.{name[:-5].lower()}") for name in _RUST_HOMES}
    for name in list(os.environ):
        if name not in _KEPT and not name.startswith(_TEST_PREFIX):
            del os.environ[name]
    # The readline that pytest loads sets these without `os.environ` noticing, and children would inherit them.
    for name in ("COLUMNS", "LINES"):
        os.unsetenv(name)
    # Removed with its content when the process ends.
    global _home
    _home = tempfile.TemporaryDirectory(prefix="heaptide-home-")
    os.environ.update(HOME=_home.name, LANG="C.UTF-8", TERM="dumb", **tools)
    os.umask(0o022)

    # A shell that starts the tests in the background ignores SIGINT, `nohup` SIGHUP, and some runners SIGCHLD.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python itself ignores these two
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)

    # A core file would appear among the files a test lists; the other two limits are those of most machines.
    for limit, wanted in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_STACK, 8 << 20), (resource.RLIMIT_NOFILE, 4096)):
        _, hard = resource.getrlimit(limit)
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(limit, (soft, hard))

    # Without huge pages, resident sizes grow by 4 KiB instead of 2 MiB at a time.
    ctypes.CDLL(None).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
