"""Records a call and reads its allocations by line. Another process reads the capture."""

from __future__ import annotations

import json
import os
import tempfile
from types import CodeType

from heaptide import _native, command_process
from heaptide.messages import print_message_once, reason
from heaptide.recording.tracker import Tracker

Heap = dict[int, tuple[int, int, int, int]]


class LineRecording:
    """A recording of one call, in a temporary file."""

    def __init__(self, folder: tempfile.TemporaryDirectory[str], tracker: Tracker, path: str) -> None:
        self._folder = folder
        self._tracker = tracker
        self._path = path

    @classmethod
    def begin(cls, name: str) -> LineRecording | None:
        """Start a recording, or print why the columns will be empty."""
        if _native.active() is not None:
            print_message_once(
                f"columns of {name} stay empty because the process is being recorded already: "
                "make the table from that capture with heaptide lines --from"
            )
            return None
        try:
            folder = tempfile.TemporaryDirectory(prefix="heaptide-lines-")
            path = os.path.join(folder.name, "call.tide")
            tracker = Tracker(path, objects=True)
            tracker.start()
        except Exception as error:
            print_message_once(f"columns of {name} stay empty because it could not be recorded: {reason(error)}")
            return None
        return cls(folder, tracker, path)

    def end(self) -> None:
        """Stop the recording."""
        self._tracker.stop()

    def lines(self, code: CodeType) -> Heap:
        """Return for each line: bytes and number of allocations, bytes alive at the peak and at the end."""
        return recorded_lines(self._path, code)

    def remove(self) -> None:
        """Remove the capture."""
        self._folder.cleanup()


def recorded_lines(path: str, code: CodeType) -> Heap:
    """Return the lines of a function in a capture."""
    done = command_process.run("lines", "--json", "--function", code.co_name, "--from", path)
    if done.returncode != 0 or not done.stdout:
        # A function that allocated nothing is not in the capture.
        return {}
    last = max(line for _, _, line in code.co_lines() if line is not None)
    return {
        row["line"]: (row["allocated_bytes"], row["allocations"], row["peak_bytes"], row["alive_bytes"])
        for table in json.loads(done.stdout)["functions"]
        if table["file"] == code.co_filename
        for row in table["lines"]
        if code.co_firstlineno <= row["line"] <= last and row["allocations"]
    }
