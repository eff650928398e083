"""Lets programs under `heaptide record` wait until the recording has sampled their size, instead of sleeping."""

import os
import re
import time

# Seconds, longer than any machine needs. If they pass, the test fails because the sample is missing in the file.
LIMIT = 300


def text():
    """Return the current content of the timeline, whose path is that of the function file without its suffix."""
    with open(os.environ["HEAPTIDE_TIMELINE_FUNCTIONS"][: -len(".functions")]) as file:
        return file.read()


def wait_for(is_seen):
    """Wait until the timeline fulfils a condition, or the limit is reached."""
    end = time.monotonic() + LIMIT
    while not is_seen(text()) and time.monotonic() < end:
        time.sleep(0.01)


def wait_for_size(mib, is_child=False):
    """Wait until the timeline has a sample of at least this size of this process, or of the program it belongs to."""

    def is_seen(text):
        pid = os.getpid()
        if text.startswith("CMDLINE"):
            pattern = rf"^CHLD {pid} (\S+)" if is_child else r"^MEM (\S+)"
            return any(float(size) >= mib for size in re.findall(pattern, text, re.M))
        number = re.search(rf"^new \S+ (\d+) {pid} ", text, re.M)
        sizes = re.findall(rf" {number[1]}=(\d+)", text) if number else []
        return any(int(size) >= mib * 1024 for size in sizes)

    wait_for(is_seen)


def wait_for_two_samples():
    """Wait for two more writes: the samples of the second were taken after this call."""
    for _ in range(2):
        before = len(text())
        wait_for(lambda text: len(text) > before)
