"""Starts idle children, to measure the sampler. Ends when its standard input is closed."""

import subprocess
import sys

CHILD = "import sys; block = bytearray(4 << 20); print(flush=True); sys.stdin.read()"

n_children = int(sys.argv[1])
children = [
    subprocess.Popen([sys.executable, "-S", "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for _ in range(n_children)
]
for child in children:
    child.stdout.readline()
print("ready", flush=True)
sys.stdin.read()
for child in children:
    child.stdin.close()
for child in children:
    child.wait()
