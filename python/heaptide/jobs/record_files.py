"""The files of job records: one per process. Each line is appended by one system call, so it survives a kill.

A file is named ``jobs-HOST-PID-START.jsonl`` after the process that writes it. Only its user can read it, and it is
created exclusively, so that another user cannot plant a link. When a file is large, the process continues in another
one. Old files are removed by number, age and size, but never those of a live process of this host.
"""

from __future__ import annotations

import errno
import os
import threading
import time

from heaptide.recording.capture_files import safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX, ENDING = "jobs-", ".jsonl"
# The modification time of this file is the time of the last search for old files.
RETENTION_MARK = "jobs-retention"
_SEARCH_SECONDS = 60
_DAY = 86_400
_MIN_FILE_BYTES, _MAX_FILE_BYTES = 1 << 20, 64 << 20
_CREATE = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Retention:
    """The limits for files to keep: their number, their age in days (0 is any age) and their total bytes."""

    def __init__(self, files: int, days: int, n_bytes: int) -> None:
        self.files = files
        self.days = days
        self.n_bytes = n_bytes

    @property
    def max_file_bytes(self) -> int:
        """The size above which the process starts another file, so that its old records can be removed."""
        return max(_MIN_FILE_BYTES, min(_MAX_FILE_BYTES, self.n_bytes // 16))


class RecordFile:
    """The file of this process. The first line creates it."""

    def __init__(self, folder: str, host: str, start: str, retention: Retention) -> None:
        self._folder = folder
        self._host = safe(host)
        self._stem = f"{PREFIX}{self._host}-{os.getpid()}-{start}"
        self._retention = retention
        # Re-entrant: a signal handler may run a job while its thread opens the file.
        self._lock = threading.RLock()
        self._descriptor = -1
        self._inode = (0, 0)
        self._is_torn = False

    def append(self, line: bytes) -> None:
        """Append one line with one system call, so that lines of threads do not mix."""
        # Another thread may replace the file between the check and the write.
        with self._lock:
            if not self._is_usable():
                self._create()
            # After a line that was cut, for example by a full disk, start a new line.
            content = b"\n" + line if self._is_torn else line
            n_written = os.write(self._descriptor, content)
            self._is_torn = n_written < len(content)
        if n_written < len(content):
            raise OSError(errno.ENOSPC, "a job record could not be written in full")

    def close(self) -> None:
        """Close the file, unless the program has closed it and uses its descriptor for another one."""
        if self._descriptor >= 0 and self._is_own():
            os.close(self._descriptor)
        self._descriptor = -1

    def _is_own(self) -> bool:
        try:
            stat = os.fstat(self._descriptor)
        except OSError:
            return False
        return (stat.st_dev, stat.st_ino) == self._inode

    def _is_usable(self) -> bool:
        """Return whether the file can be used. Daemons close all descriptors; a file may be deleted or too large."""
        if self._descriptor < 0:
            return False
        try:
            stat = os.fstat(self._descriptor)
        except OSError:
            return False
        is_own = (stat.st_dev, stat.st_ino) == self._inode
        return is_own and stat.st_nlink > 0 and stat.st_size < self._retention.max_file_bytes

    def _create(self) -> None:
        self.close()
        os.makedirs(self._folder, 0o700, exist_ok=True)
        number = 1
        while True:
            # A process that executes another program keeps its ID and start time, so its next file has a number.
            name = self._stem + (f"-{number}" if number > 1 else "") + ENDING
            try:
                self._descriptor = os.open(os.path.join(self._folder, name), _CREATE, 0o600)
                break
            except FileExistsError:
                number += 1
        stat = os.fstat(self._descriptor)
        self._inode = (stat.st_dev, stat.st_ino)
        self._is_torn = False
        try:
            self._remove_old()
        except OSError:  # another process removes them
            pass

    def _remove_old(self) -> None:
        """Remove files beyond the limits. Processes that share the folder search it at most once a minute."""
        mark = os.path.join(self._folder, RETENTION_MARK)
        now = time.time()
        try:
            if 0 <= now - os.lstat(mark).st_mtime < _SEARCH_SECONDS:
                return
            os.utime(mark, follow_symlinks=False)
        except FileNotFoundError:
            os.close(os.open(mark, _CREATE, 0o600))
        n_files = n_bytes = 0
        for modified, size, name in sorted(self._own_files(), reverse=True):
            n_files += 1
            n_bytes += size
            is_old = 0 < self._retention.days * _DAY < now - modified
            is_excess = n_files > self._retention.files or n_bytes > self._retention.n_bytes
            if (is_old or is_excess) and not self._is_in_use(name):
                os.unlink(os.path.join(self._folder, name))
                n_files -= 1
                n_bytes -= size

    def _own_files(self) -> Iterator[tuple[float, int, str]]:
        """Yield time, size and name of the record files of this user."""
        user = os.geteuid()
        with os.scandir(self._folder) as entries:
            for entry in entries:
                is_named = entry.name.startswith(PREFIX) and entry.name.endswith(ENDING)
                if is_named and entry.is_file(follow_symlinks=False):
                    stat = entry.stat(follow_symlinks=False)
                    if stat.st_uid == user:
                        yield stat.st_mtime, stat.st_size, entry.name

    def _is_in_use(self, name: str) -> bool:
        """Return whether a process may still write to the file: the process ID in its name is in use on this host.

        Of this process's own files, only the current one is in use.
        """
        of_host = f"{PREFIX}{self._host}-"
        pid = name[len(of_host) :].partition("-")[0] if name.startswith(of_host) else ""
        if not pid.isdecimal():
            return False
        if name == self._stem + ENDING or name.startswith(self._stem + "-"):
            return self._is_current(name)
        try:
            os.kill(int(pid), 0)
        except (ProcessLookupError, OverflowError):
            return False
        except OSError:
            pass
        return True

    def _is_current(self, name: str) -> bool:
        stat = os.lstat(os.path.join(self._folder, name))
        return (stat.st_dev, stat.st_ino) == self._inode
