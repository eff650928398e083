"""Blocks in `read` nearly all the time. For each line of input, allocates a block and prints the length of the line.

Imports `threading` only at the end. If attaching imported it from another thread, that thread would become the main one.
"""

import os
import sys

held = []
os.write(1, b"ready\n")
rest = b""
while True:
    got = os.read(0, 4096)
    if not got:
        break
    rest += got
    *lines, rest = rest.split(b"\n")
    for line in lines:
        held.append(bytearray(100_000))
        os.write(1, b"%d\n" % len(line))
os.write(1, b"threading imported: %s\n" % str("threading" in sys.modules).encode())
import threading  # noqa: E402

print("main thread:", threading.main_thread() is threading.current_thread(), flush=True)
