"""Compresses and hashes in two threads that release the GIL."""

import hashlib
import os
import threading
import zlib

data = os.urandom(1 << 16)


def work():
    for _ in range(1200):
        packed = zlib.compress(data, 1)
        zlib.decompress(packed)
        hashlib.sha256(packed).digest()


threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
