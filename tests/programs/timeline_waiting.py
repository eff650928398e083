"""For programs under `heaptide record`: wait until the recording has seen what they did, instead of sleeping."""

import os
import re
import time

# Longer than any machine takes. The test then fails by what is missing in the file.
PATIENCE = 300


def text():
    """The timeline as it is now. Its name is that of the file for functions, without the ending."""
    with open(os.environ["HEAPTIDE_TIMELINE_FUNCTIONS"][: -len(".functions")]) as file:
        return file.read()


def wait_for(is_seen):
    """Wait until the timeline fulfils a condition."""
    end = time.monotonic() + PATIENCE
    while not is_seen(text()) and time.monotonic() < end:
        time.sleep(0.01)


def wait_for_size(mib, is_child=False):
    """Wait until this process, or the program it belongs to, was seen with this size."""

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
    """Wait for two more writes: what is in the second happened after this was called."""
    for _ in range(2):
        before = len(text())
        wait_for(lambda text: len(text) > before)
