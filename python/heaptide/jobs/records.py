"""Job records: one line of JSON when a job begins and one when it ends, with or without a recording.

The setting `jobs` names their folder. A job whose process dies has only a first line, so `heaptide jobs` reports it as
killed. docs/reference/job-records.md describes the lines. The functions here neither raise nor wait for another
process. A failure prints one line, once, and the program continues.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time

from heaptide import _native, labels, redaction
from heaptide.containment import report_failure, untraced
from heaptide.jobs.record_files import RecordFile, Retention
from heaptide.messages import print_message_once
from heaptide.recording import program, runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from heaptide.settings import Settings

VERSION = 1
# The name of jobs beyond the allowed number of distinct names.
OTHER_JOBS = "(other jobs)"
_MAX_TEXT = 512
_MAX_LABELS = 32
_MEASURED = ("allocated_bytes", "peak_bytes", "retained_bytes", "name_bytes", "sites", "types")

_is_resolved = False
_book: Book | None = None
# In a forked child, the records of the parent, until the child has its own.
_parent: Book | None = None
_numbers = itertools.count(1)
_dumps = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def is_wanted() -> bool:
    """Return whether the settings name a folder for job records. They are read once per process."""
    return (_book if _is_resolved else _resolve()) is not None


def begin(job: Any) -> None:
    """Record that a job has begun. Never raises."""
    try:
        book = _book if _is_resolved else _resolve()
        if book is not None:
            book.begin(job)
    except Exception as error:
        report_failure(error)


def end(job: Any) -> None:
    """Record that a job has ended. A second record of the same job adds numbers to the first one. Never raises."""
    try:
        book = _book if _is_resolved else _resolve()
        if book is not None:
            book.end(job)
    except Exception as error:
        report_failure(error)


def new_id() -> str | None:
    """Return an ID for a job that has no number yet, or None if no records are wanted."""
    book = _book if _is_resolved else _resolve()
    return None if book is None else book.new_id()


class Book:
    """The records of this process."""

    def __init__(self, settings: Settings) -> None:
        from heaptide import _native

        facts = dict(_native.process_facts())
        host = _valid(os.uname().nodename)
        self._identity: dict[str, Any] = {
            "run": runs.name(),
            "host": host,
            "boot_id": facts.get("boot_id"),
            "pid_namespace": facts.get("pid_namespace"),
            "pid": os.getpid(),
            "start": facts.get("start"),
            "program": _text(_program()),
        }
        self._n_label_changes = -1
        keep = Retention(settings.jobs_keep, settings.jobs_keep_days, settings.jobs_keep_bytes)
        folder = os.path.abspath(os.path.expanduser(settings.jobs))
        self._file = RecordFile(folder, host, facts.get("start") or "0", keep)
        self._max_names = settings.jobs_names
        self._names: set[str] = set()
        self._patterns, self._secrets = redaction.patterns(), redaction.secrets()
        self._redact = _native.redact_command
        # Jobs whose end is not recorded yet, and jobs that a parent process has begun.
        self._open: set[int | str] = set()
        self._inherited: set[int | str] = set()

    def begin(self, job: Any) -> None:
        """Append the first line of a job."""
        self._open.add(_number(job))
        self._file.append(self._line("begin", job, job.started))

    def end(self, job: Any) -> None:
        """Append the last line of a job, unless the parent of this forked child has begun the job."""
        number, seconds = _number(job), job.seconds
        if number in self._inherited:
            return
        self._open.discard(number)
        self._file.append(self._line("end", job, time.time() if seconds is None else job.started + seconds))

    def new_id(self) -> str:
        """Return an ID that no other job has."""
        own = self._identity
        return f"{own['run']}/{own['host']}/{own['pid']}/{own['start']}/t{next(_numbers)}"

    def take_over(self, parent: Book) -> None:
        """Close the parent's file in this forked child, and ignore the ends of the parent's jobs."""
        self._inherited = parent._inherited | parent._open
        parent._file.close()

    def _line(self, event: str, job: Any, moment: float) -> bytes:
        has_ended, seconds = event == "end", job.seconds
        if self._n_label_changes != labels.n_changes:
            self._n_label_changes = labels.n_changes
            self._identity["process_labels"] = labels.current()
        key, labels_of_job = self._redacted(job)
        measured = getattr(job, "measured", None) or {}
        capture = getattr(job, "capture", None)
        record = {
            "v": VERSION,
            "event": event,
            "id": job.id,
            **self._identity,
            "number": getattr(job, "number", None),
            "name": self._name(job.name),
            "key": key,
            "labels": labels_of_job,
            "thread": getattr(job, "thread", None) or threading.get_native_id(),
            "time": round(moment, 6),
            "seconds": None if seconds is None or not has_ended else round(seconds, 6),
            "outcome": job.outcome if has_ended else "running",
            "error": getattr(job, "error", None),
            "resident_before": getattr(job, "resident_before", None),
            "resident_after": getattr(job, "resident_after", None) if has_ended else None,
            "resident_peak": getattr(job, "resident_peak", None) if has_ended else None,
            **{name: measured.get(name) for name in _MEASURED},
            "capture": None if capture is None else _valid(os.fspath(capture)),
        }
        return (_dumps(record) + "\n").encode()

    def _name(self, name: Any) -> str:
        text = _text(name)
        if text not in self._names:
            if len(self._names) >= self._max_names:
                print_message_once(
                    f"more than {self._max_names} names of jobs; further ones are recorded as {OTHER_JOBS!r}: put what "
                    "differs from run to run in the key, or raise HEAPTIDE_JOBS_NAMES"
                )
                return OTHER_JOBS
            self._names.add(text)
        return text

    def _redacted(self, job: Any) -> tuple[str | None, dict[str, str]]:
        """Return key and labels with secret values hidden."""
        key = None if job.key is None else _text(job.key)
        known = {_text(name): _text(value) for name, value in itertools.islice((job.labels or {}).items(), _MAX_LABELS)}
        if not (self._patterns or self._secrets) or (key is None and not known):
            return key, known
        # Write them like options of a command line, whose values are hidden if the name or the value matches.
        names = [name.replace("=", "_") for name in known]
        words = [f"={key or ''}", *(f"{name}={value}" for name, value in zip(names, known.values(), strict=True))]
        hidden = [word.partition("=")[2] for word in self._redact(words, self._patterns, self._secrets)]
        return None if key is None else hidden[0], dict(zip(known, hidden[1:], strict=True))


def _number(job: Any) -> int | str:
    """Return a number or ID that is the same in a forked child. `job.id` may contain the process ID of the child."""
    number: int | str = job.number or job.id
    return number


def _program() -> str:
    """Return the name of the program; under ``heaptide run`` that of the script, from ``sys.argv``."""
    words = program.command_words()
    if words[:1] == ["heaptide"] or words[:2] == ["-m", "heaptide"]:
        return program.program_name(["python", *program.arguments()])
    return program.program_name()


def _text(value: Any) -> str:
    """Return a value as a text of bounded length, or the name of its type if `str` raises."""
    if not isinstance(value, str):
        try:
            value = str(value)
        except Exception:
            value = f"<{type(value).__name__}>"
    return _valid(value if len(value) <= _MAX_TEXT else value[: _MAX_TEXT - 1] + "…")


def _valid(text: str) -> str:
    """Replace surrogates, such as those of an undecodable path, because readers would reject the whole line."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _resolve() -> Book | None:
    """Read the settings, once. A problem is reported and disables the records of this process."""
    global _book, _is_resolved, _parent
    try:
        chosen = redaction.load_settings()
        _book = Book(chosen) if chosen is not None and chosen.jobs else None
        if _book is not None and _parent is not None:
            _book.take_over(_parent)
    except Exception as error:
        _book = None
        report_failure(error)
    _parent = None
    _is_resolved = True
    _native.note_unwanted_job_records(_book is None)
    return _book


@untraced
def _after_fork() -> None:
    """Make the child create its own file and identity at its first job."""
    global _book, _is_resolved, _parent
    _parent, _book, _is_resolved = _book or _parent, None, False
    _native.note_unwanted_job_records(False)


os.register_at_fork(after_in_child=_after_fork)
