"""Forks repeatedly while four threads allocate; every child runs Python and exits in one of three ways."""

import os
import sys
import threading
import time
import warnings

warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn about forks with threads.
N_FORKS = int(sys.argv[1])
sys.setswitchinterval(1e-5)
is_running = True  # Not an Event: its lock may be held when a child is forked.


def allocate():
    held = []
    # The pauses keep the capture small; still, a thread is allocating during most forks.
    while is_running:
        time.sleep(0.001)
        held = [bytes(3000 + len(held)) for _ in range(30)]


def child(turn):
    held = [bytes(5000) for _ in range(50)]
    thread = threading.Thread(target=lambda: held.append(bytes(70000)))
    thread.start()
    thread.join()
    if turn % 3 == 0:
        os._exit(7)
    if turn % 3 == 1:
        os.execv("/bin/sh", ["sh", "-c", "exit 7"])
    # The third exit runs handlers, joins threads and finalizes the interpreter.
    sys.exit(7)


threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
codes = []
for turn in range(N_FORKS):
    pid = os.fork()
    if pid == 0:
        child(turn)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
is_running = False
for thread in threads:
    thread.join()
marked = [bytes(1_234_567) for _ in range(11)]
print(codes.count(7), len(codes))
