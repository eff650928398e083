"""Allocates at many different stacks with many sizes, so that its capture grows, and prints a checksum at the end.

usage: varied_allocations.py N_ROUNDS [CODE], where CODE is run after half of the rounds
"""

import sys
import threading

N_ROUNDS = int(sys.argv[1])
CODE = sys.argv[2] if len(sys.argv) > 2 else ""
checksum = 0


def work(seed):
    """Allocate blocks of irregular sizes and keep them for a while: their records are hardly compressible."""
    held = {}
    for n in range(400):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        held[seed % 97] = bytes(600 + seed % 30011)
    return sum(map(len, held.values()))


def thread_work(seed):
    global checksum
    checksum += work(seed)


for turn in range(N_ROUNDS):
    if turn == N_ROUNDS // 2:
        exec(CODE)
    names = {}
    exec(f"def made_{turn}(seed):\n" + "\n" * (turn % 50) + "    return work(seed)", {"work": work}, names)
    checksum += names[f"made_{turn}"](turn)
    if turn % 10 == 0:
        thread = threading.Thread(target=thread_work, args=(turn,))
        thread.start()
        thread.join()
print("checksum", checksum)
sys.exit(5)
