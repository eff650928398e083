"""``heaptide doctor``: checks whether Heaptide works on this machine, and suggests a fix for each problem."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile

import heaptide
from heaptide import _native, settings
from heaptide.commands import other_python
from heaptide.messages import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    # Whether the check passed, and a sentence. None marks a note that does not prevent recordings.
    Answer = tuple[bool | None, str]

_SIGNS = {True: "ok", None: "note", False: "FAIL"}
_CAP_SYS_PTRACE = 1 << 19


def examine() -> int:
    """Print one line for each check. Returns 1 if something does not work, else 0."""
    checks: dict[str, Callable[[], Answer]] = {
        "interpreter": _interpreter,
        "version": _version,
        "recording": _recording,
        "this folder": _folder,
        "settings": _settings,
        "attach": _attach,
        "memory limit": _limit,
    }
    works = True
    for name, check in checks.items():
        is_fine, sentence = check()
        works = works and is_fine is not False
        print(f"{_SIGNS[is_fine]:<6}{name:<14}{printable(sentence)}")
    return 0 if works else 1


def _interpreter() -> Answer:
    version = ".".join(map(str, sys.version_info[:3]))
    name = sys.implementation.name
    sentence = f"{name} {version} in {sys.executable}"
    if name != "cpython":
        return False, f"{sentence}: only CPython can be recorded"
    if other_python.is_tool():
        return None, (
            f"{sentence}, the environment of a tool: heaptide run uses the active virtual environment, "
            "or the interpreter named with --python"
        )
    return True, sentence


def _version() -> Answer:
    """Compare the package with the command that the shell finds."""
    package = f"heaptide {heaptide.__version__} in {os.path.dirname(heaptide.__file__)}"
    command = shutil.which("heaptide")
    if command is None:
        return None, f"{package}; there is no command heaptide on PATH: use {sys.executable} -m heaptide"
    done = subprocess.run([command, "--version"], capture_output=True, text=True)
    found = done.stdout.strip()
    if found != f"heaptide {heaptide.__version__}":
        return False, f"{package}, but {command} is {found or 'broken'}: install one version in both"
    return True, f"{package}; command {command}"


def _recording() -> Answer:
    """Record a small program. Misspelt settings have a separate line, and do not prevent a recording."""
    misspelt = {name for name, _ in settings.misspelt_variables(os.environ)}
    environment = {name: value for name, value in os.environ.items() if name not in misspelt}
    with tempfile.TemporaryDirectory() as folder:
        capture = os.path.join(folder, "test.tide")
        program = [sys.executable, "-m", "heaptide", "run", "-q", "-o", capture, "-c", "bytes(1_000_000)"]
        try:
            done = subprocess.run(program, capture_output=True, text=True, timeout=60, env=environment)
        except subprocess.TimeoutExpired:
            return False, "a test program did not end within a minute"
        if done.returncode or done.stderr or not os.path.exists(capture):
            reason = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
            return False, f"a test program cannot be recorded: {reason.removeprefix('heaptide: ')}"
    return True, "a test program was recorded"


def _folder() -> Answer:
    try:
        with tempfile.TemporaryFile(dir="."):
            return True, f"captures can be written in {os.getcwd()}"
    except OSError as error:
        return False, f"captures cannot be written here ({error.strerror}): change to another folder, or use -o"


def _settings() -> Answer:
    misspelt = settings.misspelt_variables(os.environ)
    if misspelt:
        return False, "; ".join(f"{name} has no effect: did you mean {meant}?" for name, meant in misspelt)
    names = sorted(name for name in os.environ if name.startswith("HEAPTIDE"))
    return True, f"set: {', '.join(names)}" if names else "no variable of Heaptide is set"


def _attach() -> Answer:
    """Return whether ``heaptide attach`` works for other processes of this user."""
    capabilities = _field("/proc/self/status", "CapEff:")
    has_capability = bool(int(capabilities or "0", 16) & _CAP_SYS_PTRACE)
    scope = int(_text("/proc/sys/kernel/yama/ptrace_scope") or 0)
    if scope == 3:
        return None, "kernel.yama.ptrace_scope is 3, so heaptide cannot attach to any process: use heaptide run"
    if scope and not has_capability:
        return None, (
            f"kernel.yama.ptrace_scope is {scope}, so only root can attach to running processes: "
            "use sudo, or sysctl kernel.yama.ptrace_scope=0"
        )
    return True, "heaptide can attach to running processes" + ("" if has_capability else " of this user")


def _limit() -> Answer:
    limit = None
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes", *_own_groups()):
        text = _text(path)
        if text.isdecimal() and int(text) < 1 << 60:
            limit = min(limit or int(text), int(text))
    if limit is None:
        return True, "the control group has none"
    return None, f"the control group allows {_native.size_text(limit)}"


def _own_groups() -> list[str]:
    """Return the files with the limits of this process's control group and of those above it (version 2)."""
    group = _field("/proc/self/cgroup", "0::")
    parts = [part for part in group.split("/") if part]
    return ["/".join(["/sys/fs/cgroup", *parts[:n], "memory.max"]) for n in range(1, len(parts) + 1)]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def _field(path: str, name: str) -> str:
    """Return the rest of the first line that begins with `name`."""
    lines = (line for line in _text(path).splitlines() if line.startswith(name))
    return next(lines, name)[len(name) :].strip()
