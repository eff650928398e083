"""Determines the program that this process belongs to, and the folder for the sockets of its processes.

Workers that a server forks, or that :mod:`multiprocessing` starts, belong to the program of their parent. Programs that
only have the same parent, such as a shell, are separate.
"""

from __future__ import annotations

import os

from heaptide.recording import runs
from heaptide.recording.program import program_name, recorded_command, started_with

# PF_FORKNOEXEC in the flags of /proc/PID/stat, which every user may read.
_FORKED_WITHOUT_EXEC = 0x40
_STARTED_BY_MULTIPROCESSING = (b"multiprocessing.spawn", b"multiprocessing.forkserver")

# A process ID, and the result of root() in that process. A forked child must search again.
_root: tuple[int, tuple[int, str]] | None = None


def runtime_folder() -> str:
    """Return the folder for the sockets of this user's programs, where `heaptide ctl` finds them."""
    chosen = os.environ.get("HEAPTIDE_RUNTIME_DIR")
    return chosen or os.path.join("/tmp", f"heaptide-{os.geteuid()}", "run")


def private_folders() -> list[str]:
    """Return the folders that must be private to this user, outermost first; none if the user chose the folder."""
    if os.environ.get("HEAPTIDE_RUNTIME_DIR"):
        return []
    return [os.path.dirname(runtime_folder()), runtime_folder()]


def group_folder() -> str:
    """Return the folder for the sockets of this program's processes."""
    return os.path.join(runtime_folder(), runs.socket_folder_name(runs.name()))


class ProcessGroup:
    """Name and key that all processes of a program share, also after the program is restarted."""

    def __init__(self, name: str, key: str, command: list[str]) -> None:
        # The script or module of the first process, which started the others.
        self.name = name
        # Distinguishes programs that have the same name but run in different folders or with different arguments.
        self.key = key
        # The command line of the first process.
        self.command = command

    @classmethod
    def of_this_process(cls) -> ProcessGroup:
        """Return the group of this process, identified by the first process's command and working directory."""
        pid = root()[0]
        command = started_with()
        folder = ""
        try:
            folder = os.readlink(f"/proc/{pid}/cwd")
            if any(word.decode() in " ".join(command) for word in _STARTED_BY_MULTIPROCESSING):
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                    command = file.read().split("\0")[:-1]
        except OSError:
            pass  # the first process has just exited
        command = recorded_command(command)
        # The name of the user or of a launcher identifies the program even if its processes run different scripts.
        words = runs.name() if runs.is_named() else "\0".join([folder, *command])
        return cls(program_name(command), f"{runs.checksum(words.encode(errors='replace')):08x}", command)


def root() -> tuple[int, str]:
    """Return the ID of the program's first process, and its start time, because process IDs are reused.

    The result is cached, so that a worker still belongs to its program after the first process has ended.
    """
    global _root
    if _root is None or _root[0] != os.getpid():
        _root = (os.getpid(), _find_root())
    return _root[1]


def _find_root() -> tuple[int, str]:
    pid = os.getpid()
    fields = _fields(pid)
    while fields is not None:
        parent = int(fields[1])
        of_parent = _fields(parent) if parent > 1 else None
        if of_parent is None or not _is_worker(pid, fields, parent, of_parent):
            return pid, fields[19]
        pid, fields = parent, of_parent
    return os.getpid(), ""


def _fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the name, which may contain blanks and parentheses."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def _is_worker(pid: int, fields: list[str], parent: int, of_parent: list[str]) -> bool:
    try:
        if os.readlink(f"/proc/{pid}/exe") != os.readlink(f"/proc/{parent}/exe"):
            return False
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read()
    except PermissionError:
        # The worker has dropped its privileges. Its flags still show that it never called exec.
        return bool(int(fields[6]) & _FORKED_WITHOUT_EXEC) and fields[3] == of_parent[3]
    except OSError:
        return False
    # A forked process has the same addresses as its parent, because the kernel randomises them only on exec.
    code_and_stack = slice(23, 26)
    is_fork = fields[code_and_stack] == of_parent[code_and_stack] and fields[25] not in ("0", "1")
    return is_fork or any(word in command for word in _STARTED_BY_MULTIPROCESSING)
