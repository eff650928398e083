"""Computes and prints in eight threads, including the main one, until standard input ends; each checks its results.

Lines are numbered, so that a missing one is noticed. The last line reports whether all results were right.
"""

import hashlib
import os
import select
import sys
import threading

stop = threading.Event()
printing = threading.Lock()
n_lines = 0
wrong = []
EXPECTED = hashlib.sha256(b"".join(str(i).encode() for i in range(100))).hexdigest()


def one_round(number):
    global n_lines
    table = {str(i): [i] * 10 for i in range(100)}
    block = bytearray(3000 + number % 7)
    found = hashlib.sha256(b"".join(key.encode() for key in table)).hexdigest()
    if found != EXPECTED or sum(map(len, table.values())) != 1000 or any(block):
        wrong.append(number)
    if number % 50 == 0:
        with printing:
            print(n_lines, flush=True)
            n_lines += 1


def work():
    number = 0
    while not stop.is_set():
        one_round(number)
        number += 1


threads = [threading.Thread(target=work, name=f"worker-{i}") for i in range(7)]
for thread in threads:
    thread.start()
number = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    one_round(number)
    number += 1
stop.set()
for thread in threads:
    thread.join()
print("wrong" if wrong else "right", n_lines, os.getpid() == threading.main_thread().native_id, flush=True)
