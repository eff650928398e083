"""Records a call and reads its allocations by line. Another process reads the capture."""

from __future__ import annotations

import json
import os
import tempfile
from types import CodeType

from heaptide import _native, command_process
from heaptide.messages import print_message_once, reason
from heaptide.recording.tracker import Tracker

# By line: bytes and number of allocations, bytes alive at the peak and at the end.
LineSums = dict[int, tuple[int, int, int, int]]


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

    def lines(self, code: CodeType) -> LineSums:
        """Return the sums of each line of a function."""
        return recorded_lines(self._path, code)

    def remove(self) -> None:
        """Remove the capture."""
        self._folder.cleanup()


def recorded_lines(path: str, code: CodeType) -> LineSums:
    """Return the sums of each line of a function in a capture, or print why there are none."""
    done = command_process.run("lines", "--json", "--function", code.co_name, "--from", path)
    if done.returncode != 0 or not done.stdout:
        problem = done.stderr.removeprefix("heaptide: ") or f"heaptide lines exited with {done.returncode}"
        # A function that allocated nothing is not in the capture.
        if not problem.startswith(f"no function {code.co_name} allocated memory"):
            print_message_once(f"columns of allocations stay empty because the recording could not be read: {problem}")
        return {}
    last = max(line for _, _, line in code.co_lines() if line is not None)
    return {
        row["line"]: (row["allocated_bytes"], row["allocations"], row["peak_bytes"], row["alive_bytes"])
        for table in json.loads(done.stdout)["functions"]
        if table["file"] == code.co_filename
        for row in table["lines"]
        if code.co_firstlineno <= row["line"] <= last and row["allocations"]
    }
