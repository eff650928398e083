"""Prerequisites of documentation pages: the reader's programs and files, by page, as shell commands.

They run before the first block of the page, in its folder. `$EXAMPLES` is the folder of the example programs. The process
that a setup starts last in the background is process 4711 of the page.
"""

from __future__ import annotations

_JOB = 'cp "$EXAMPLES/memory-leak/job.py" .\n'
_EXAMPLE = 'mkdir examples && cp -r "$EXAMPLES/memory-leak" examples\n'
_REGRESSION = 'cp "$EXAMPLES/regression/job.py" .\n'
_OBJECTS = 'cp "$EXAMPLES/object-heap/job.py" .\n'

# A service whose memory grows until it is ended. It creates the file `started` when it runs.
_WORKER = """
cat > worker.py <<'END'
import time
from pathlib import Path

kept = [bytearray(100_000)]
Path("started").touch()
while True:
    kept.append(bytearray(100_000))
    time.sleep(0.05)
END
"""
_STARTED = "wait_until '[ -e started ]'\n"

# A worker whose jobs are marked; it ends after its last job.
_MARKED_JOBS = """
cat > worker.py <<'END'
import heaptide

kept = []


@heaptide.job("import")
def import_month():
    kept.append(bytearray(300_000))
    return len([None] * 500_000)


@heaptide.job("send_mail")
def send_mail():
    return len(bytearray(60_000))


for _ in range(12):
    import_month()
    send_mail()
END
"""

# A worker's task that leaks the documents it sends.
_MAIL_TASK = """
mkdir tasks && touch tasks/__init__.py
cat > tasks/mail.py <<'END'
class Document:
    def __init__(self):
        self.text = bytearray(100_000)


sent = []


def send():
    sent.append(Document())
END
"""

# Snapshots of one process: before a load, under it, and after it.
_SNAPSHOTS = """
cat > load.py <<'END'
import heaptide


class Order:
    def __init__(self, number):
        self.lines = [f"line {number}.{line}" for line in range(5)]


cache = {}
heaptide.heap_snapshot("before.heap")
heaptide.heap_snapshot("idle.heap")
cache.update((number, Order(number)) for number in range(2000))
temporary = [Order(number) for number in range(2000)]
heaptide.heap_snapshot("busy.heap")
del temporary
heaptide.heap_snapshot("after.heap")
heaptide.heap_snapshot("idle-again.heap")
END
python load.py
"""

_LINES = """
mkdir package && touch package/__init__.py
cat > job.py <<'END'


def load(n):
    xs = [bytearray(1 << 20) for _ in range(n)]
    return len(xs)


print(load(5) + load(10))
END
cp job.py package/job.py
"""

SETUPS = {
    "README.md": _EXAMPLE,
    "docs/tutorial.md": _WORKER + "python worker.py &\n" + _STARTED,
    "docs/guide/activation.md": _JOB + _WORKER,
    "docs/guide/attach.md": _WORKER + "python worker.py &\n" + _STARTED,
    "docs/guide/control.md": _WORKER
    + "HEAPTIDE_CONTROL=7001 python worker.py &\n"
    + "wait_until 'curl localhost:7001/api/v1/profiler/status'\n",
    "docs/guide/diff.md": _REGRESSION + "for name in main branch; do heaptide run -q -o $name.tide job.py; done\n",
    "docs/guide/filters.md": _REGRESSION + "heaptide run -q job.py\n",
    "docs/guide/heap-analysis.md": _OBJECTS + _SNAPSHOTS,
    "docs/guide/heap.md": _WORKER + "python worker.py &\n" + _STARTED,
    "docs/guide/job-records.md": _MARKED_JOBS
    + "for folder in web-1 web-2; do HEAPTIDE_JOBS=$folder python worker.py; done\n",
    "docs/guide/jobs.md": _MARKED_JOBS,
    "docs/guide/leaks.md": _MAIL_TASK,
    "docs/guide/lines.md": _LINES,
    "docs/guide/live.md": _JOB + _WORKER + "heaptide run -q -o job.tide worker.py &\n" + _STARTED,
    "docs/guide/native.md": _JOB,
    "docs/guide/pages.md": _OBJECTS
    + "python job.py job.heap\n"
    + _REGRESSION
    + "for name in before after; do heaptide run -q -o $name.tide job.py; done\n"
    + "heaptide run -q job.py\n",
    "docs/guide/pressure.md": _JOB,
    "docs/guide/processes.md": _WORKER
    + "mkdir captures\n"
    + "export HEAPTIDE_LABELS='role=celery worker,queue=mail'\n"
    + "heaptide run -q -o captures/a.tide worker.py &\n"
    + _STARTED
    + "kill $!; wait $!; rm started\n"
    + "HEAPTIDE_CONTROL=7001 python worker.py &\n"
    + _STARTED,
    "docs/guide/record.md": _JOB,
    "docs/guide/serve.md": _EXAMPLE,
    "docs/guide/timelines.md": _JOB,
    "docs/guide/platforms/compss.md": _JOB
    + "heaptide record -q -o HOST.dat -- python job.py\n"
    + "cp HOST.dat mprofile_20261115233000.dat\n",
    "docs/coming-from/memory-profiler.md": _JOB,
    "docs/coming-from/memray-captures.md": _JOB
    + "memray run -q -o memray-job.py.4711.bin job.py\n"
    + "heaptide run -q -o job.tide job.py\n",
    "docs/coming-from/memray-code.md": _JOB
    + "mkdir bin && fresh_environment\n"
    + "echo 'def test_work(): assert bytearray(1000)' > test_work.py\n",
}
