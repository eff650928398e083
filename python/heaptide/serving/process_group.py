"""Which processes belong to one job, and where their sockets lie.

Workers that a server forked, or that :mod:`multiprocessing` started, are one job with the process they come from.
Programs that merely have the same parent, a shell for example, are not.
"""

from __future__ import annotations

import os
import sys
import zlib

from heaptide.recording.program import program_name

# PF_FORKNOEXEC among the kernel's flags of a process, which everybody may read.
_FORKED_WITHOUT_EXEC = 0x40
_STARTED_BY_MULTIPROCESSING = (b"multiprocessing.spawn", b"multiprocessing.forkserver")


def runtime_folder() -> str:
    """The folder with the sockets of this user's jobs: the same for everybody, so that `heaptide ctl` finds them."""
    chosen = os.environ.get("HEAPTIDE_RUNTIME_DIR")
    return chosen or os.path.join("/tmp", f"heaptide-{os.geteuid()}", "run")


def group_folder() -> str:
    """The folder with the sockets of this job's processes."""
    name = os.environ.get("HEAPTIDE_GROUP") or "-".join(map(str, _root())).rstrip("-")
    return os.path.join(runtime_folder(), "".join(c if c.isalnum() or c in "-_." else "_" for c in name).strip("."))


class ProcessGroup:
    """What all processes of a job agree on, and find again when the job is started anew."""

    def __init__(self, name: str, key: str) -> None:
        # What people call it: the program that its processes come from.
        self.name = name
        # Tells it from other jobs of the same name: other folders, other arguments.
        self.key = key

    @classmethod
    def of_this_process(cls) -> ProcessGroup:
        """By the command that began the job, and the folder in which it did."""
        group = os.environ.get("HEAPTIDE_GROUP")
        if group:
            return cls(program_name(), f"{zlib.crc32(group.encode()):08x}")
        pid = _root()[0]
        command = list(sys.orig_argv)
        folder = ""
        try:
            folder = os.readlink(f"/proc/{pid}/cwd")
            if any(word.decode() in " ".join(command) for word in _STARTED_BY_MULTIPROCESSING):
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                    command = file.read().split("\0")[:-1]
        except OSError:
            pass  # it has just ended
        words = "\0".join([folder, *command])
        return cls(program_name(command), f"{zlib.crc32(words.encode(errors='replace')):08x}")


def _root() -> tuple[int, str]:
    """The process that the workers come from, and when it began: a pid alone is used again."""
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
    """What the kernel says of a process, from its state on; the name before that may hold anything."""
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
        # A worker that gave up its rights: what is left to see is that it runs no program of its own.
        return bool(int(fields[6]) & _FORKED_WITHOUT_EXEC) and fields[3] == of_parent[3]
    except OSError:
        return False
    # A forked process lies where its parent lies: the kernel shuffles addresses only when a program begins.
    code_and_stack = slice(23, 26)
    is_fork = fields[code_and_stack] == of_parent[code_and_stack] and fields[25] not in ("0", "1")
    return is_fork or any(word in command for word in _STARTED_BY_MULTIPROCESSING)
