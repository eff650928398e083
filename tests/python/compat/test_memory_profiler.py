"""Tests that programs written for memory_profiler run unchanged on Heaptide, and that both report the same lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

pytest.importorskip("memory_profiler", reason="memory_profiler has no wheel for this interpreter")

# Sizes and times differ from run to run; everything else must be equal.
NUMBERS = re.compile(r"-?\d+\.\d+")

PROGRAMS = {
    "code map": """
        from memory_profiler import CodeMap, LineProfiler, show_results
        prof = LineProfiler(backend="psutil")
        def work(n):
            block = bytearray(n << 20)
            return len(block)
        prof(work)(3)
        print(isinstance(prof.code_map, dict), len(prof.code_map) >= 1, work.__code__ in prof.code_map)
        lines = prof.code_map[work.__code__]
        print(sorted(lines), [type(each) for each in lines[min(lines)]], lines[min(lines)][2])
        print(len(list(prof.code_map.values())) >= 1, list(prof.code_map.keys())[0] is work.__code__)
        show_results(prof, precision=2)
    """,
    "assigned code map": """
        from memory_profiler import CodeMap, LineProfiler, show_results
        class Own(CodeMap):
            def add(self, code, toplevel_code=None):
                if code not in self:
                    self._toplevel.append((code.co_filename, code))
                    self[code] = {}
            def items(self):
                for filename, code in self._toplevel:
                    yield filename, iter(sorted(self[code].items()))
        prof = LineProfiler()
        prof.code_map = Own(include_children=False, backend="psutil")
        def work():
            block = bytearray(3 << 20)
            return len(block)
        prof(work)(), prof(work)()
        for filename, lines in prof.code_map.items():
            print(filename.endswith("program.py"), [(line, len(seen), seen[2]) for line, seen in lines])
        show_results(prof)
    """,
    "own trace": """
        from memory_profiler import CodeMap, LineProfiler
        seen = []
        class Own(CodeMap):
            def trace(self, code, lineno, prev_lineno):
                seen.append((code.co_name, lineno))
                super().trace(code, lineno, prev_lineno)
        prof = LineProfiler()
        prof.code_map = Own(include_children=False, backend="psutil")
        def work():
            one = 1
            return one
        prof(work)()
        print(seen, sorted(prof.code_map[work.__code__]))
    """,
    "counted enabling": """
        from memory_profiler import LineProfiler, show_results
        prof = LineProfiler()
        def work():
            return 1
        prof.add_function(work)
        work()
        prof.enable_by_count(); prof.enable_by_count()
        work()
        prof.disable_by_count()
        print(prof.enable_count)
        work()
        prof.disable_by_count()
        work()
        with prof:
            work()
        prof.runctx("work()", globals(), locals())
        print(prof.enable_count, max(seen[2] for seen in prof.code_map[work.__code__].values()))
        show_results(prof)
    """,
    "time stamps": """
        from memory_profiler import TimeStamper
        stamper = TimeStamper("psutil")
        @stamper
        def outer():
            inner()
        @stamper
        def inner():
            with stamper.timestamp("block"):
                pass
        outer(); outer()
        stamper.show_results()
        print(len(stamper.functions), stamper.current_stack_level)
    """,
    "usage of a process": """
        import subprocess, sys, io
        from memory_profiler import memory_usage
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3); raise SystemExit(3)"])
        print(len(memory_usage(child, interval=0.05)) > 1, child.returncode)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)"])
        stream = io.StringIO()
        print(memory_usage(child, interval=0.05, stream=stream, multiprocess=True), child.returncode)
        print(set(line.split()[0] for line in stream.getvalue().splitlines()))
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)"])
        print(type(memory_usage(child, interval=0.05, max_usage=True)).__name__, child.wait())
        print(len(memory_usage(-1, interval=0.01, timeout=0.05)), len(memory_usage()))
    """,
    "readings": """
        import os
        import memory_profiler
        from memory_profiler import _get_child_memory, _get_memory, choose_backend
        print(type(_get_memory(-1, "psutil")).__name__, len(_get_memory(os.getpid(), "psutil_uss", timestamps=True)))
        print(list(_get_child_memory(os.getpid())), choose_backend(), choose_backend("psutil_pss"))
        try:
            _get_memory(-1, "tracemalloc")
        except RuntimeError as error:
            print(error)
        try:
            choose_backend("nothing")
        except KeyError as error:
            print(error)
        print(memory_profiler.__version__, memory_profiler.has_tracemalloc)
    """,
    "unknown backends": """
        from memory_profiler import memory_usage, profile
        def function():
            return 1
        for call in (
            lambda: memory_usage(-1, backend="nothing"),
            lambda: memory_usage((function,), 0.1, None, False, False, False, False, False, None, "nothing"),
            lambda: profile(function, backend="nothing")(),
        ):
            try:
                call()
            except KeyError as error:
                print(error)
        print(profile(function, backend=None)())
    """,
    "targets that cannot be measured": """
        from memory_profiler import memory_usage
        for target in ("job", (5,), (5, (1,)), (), (len, (), {}, 1)):
            try:
                memory_usage(target, timeout=0.1)
            except (TypeError, ValueError) as error:
                print(type(error).__name__)
    """,
    "timer process": """
        import os
        from multiprocessing import Pipe
        from memory_profiler import MemTimer
        if __name__ == "__main__":
            child, parent = Pipe()
            timer = MemTimer(os.getpid(), 0.01, child, "psutil", timestamps=True)
            timer.start()
            print(parent.recv())
            parent.send(0)
            samples, number = parent.recv(), parent.recv()
            timer.join()
            print(len(samples) == number, len(samples[0]), timer.exitcode)
    """,
    "log file": """
        import logging, sys
        from memory_profiler import LogFile, profile
        logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s %(levelname)s %(message)s")
        stream = LogFile("own", reportIncrementFlag=False)
        print(stream.logger.name)
        stream.write("one line", logging.WARNING)
        stream.flush()
    """,
}

SCRIPT = """
import sys
@profile
def work():
    block = bytearray(8 << 20)
    return len(block)

with profile:
    work()
profile.enable_by_count()
work()
profile.disable_by_count()
print(sys.argv[1:], __name__, profile.enable_count)
"""


def python(folder: Path, *words: str, compat: bool, **options: str) -> subprocess.CompletedProcess[str]:
    """Run Python, with memory_profiler's or Heaptide's module of that name."""
    environment = {**os.environ, "COLUMNS": "100", **({"HEAPTIDE_COMPAT": "memory_profiler"} if compat else {})}
    stdin = options.get("stdin", "")
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, input=stdin
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_prints_the_same_as_with_memory_profiler(tmp_path: Path, name: str) -> None:
    lines = PROGRAMS[name].splitlines()[1:]
    (tmp_path / "program.py").write_text("\n".join(line[8:] for line in lines) + "\n")
    real, replacement = (python(tmp_path, "program.py", compat=compat) for compat in (False, True))
    assert real.returncode == 0, real.stderr
    assert replacement.returncode == 0, replacement.stderr
    assert normalised(replacement.stdout) == normalised(real.stdout)


def normalised(text: str) -> str:
    """Return a report without its sizes and times, and without the blanks that align them."""
    return re.sub(" +", " ", NUMBERS.sub("N", text))


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        [],
        ["job.py", "a", "-b"],
        ["--precision", "1", "job.py"],
        ["job", "argument"],
        ["--timestamp", "stamped.py"],
        ["--timestamp", "--include-children", "-o", "stamps.dat", "stamped.py"],
        ["-o", "table.txt", "job.py"],
        ["missing.py"],
        ["--backend", "psutil_uss", "job.py"],
    ],
)
def test_command_prints_the_same_as_the_one_of_memory_profiler(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    (tmp_path / "stamped.py").write_text(
        "@profile\ndef f():\n    with profile.timestamp('block'):\n        pass\nf()\nf()\n"
    )
    results = []
    for compat in (False, True):
        for file in tmp_path.glob("*.dat"):
            file.unlink()
        for file in tmp_path.glob("*.txt"):
            file.unlink()
        done = python(tmp_path, "-m", "memory_profiler", *words, compat=compat, stdin="continue\n")
        text = done.stdout
        written = [file.read_text() for file in (*tmp_path.glob("*.dat"), *tmp_path.glob("table.txt"))]
        # Heaptide prints the absolute path of a script.
        texts = [normalised(each.replace(f"{tmp_path}{os.sep}", "")) for each in (text, *written)]
        results.append((done.returncode, texts))
    assert results[1] == results[0]


@pytest.mark.parametrize(
    ("redirection", "program", "cause"),
    [
        ("> /dev/full", "pass", "No space left on device"),
        (">&-", "pass", "it is closed"),
        ("", "import sys; sys.stdout.close()", "I/O operation on closed file."),
    ],
)
def test_unwritable_standard_output_is_named_in_the_message(
    tmp_path: Path, redirection: str, program: str, cause: str
) -> None:
    (tmp_path / "job.py").write_text(f"@profile\ndef work():\n    pass\nwork()\n{program}\n")
    words = ("-c", f'exec "$0" -m memory_profiler job.py {redirection}', sys.executable)
    environment = {**os.environ, "HEAPTIDE_COMPAT": "memory_profiler"}
    done = subprocess.run(["sh", *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
    (message,) = (line for line in done.stderr.splitlines() if line.startswith("heaptide: "))
    assert message == (
        f"heaptide: the report could not be written to standard output ({cause}): name a file with -o"
    ), done.stderr


def test_generators_and_coroutines_are_measured_while_they_run(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import asyncio\nfrom memory_profiler import LineProfiler\nprof = LineProfiler()\n"
        "@prof\ndef rows():\n    yield 1\n    yield 2\n"
        "@prof\nasync def work():\n    await asyncio.sleep(0)\n    return 3\n"
        "print(list(rows()), asyncio.run(work()), work.__name__)\n"
        "print([[seen and seen[2] for _, seen in lines] for _, lines in prof.code_map.items()])\n"
    )
    done = python(tmp_path, "program.py", compat=True)
    assert done.stdout == "[1, 2] 3 work\n[[1, None, 1, 1], [1, None, 1, 1]]\n", done.stdout + done.stderr


def test_include_children_adds_their_memory_to_the_time_stamps_of_a_function(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import subprocess, sys\n@profile\ndef f():\n"
        "    global child\n"
        "    child = subprocess.Popen([sys.executable, '-c', \"b = bytearray(64 << 20); print(1, flush=True); input()\"],"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "    child.stdout.readline()\n"
        "f()\nchild.communicate(b'\\n')\n"
    )
    words = ("-m", "memory_profiler", "--timestamp", "--include-children", "job.py")
    _, _, before, _, after, *_ = python(tmp_path, *words, compat=True).stdout.split()
    assert float(after) - float(before) > 64


def test_pdb_starts_when_the_process_is_larger_than_the_limit(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "@profile\ndef f():\n    a = 1\n    b = bytearray(64 << 20)\n    c = 3\n    return c\nprint(f())\n"
    )
    words = ("-m", "memory_profiler", "--pdb-mmem", "70", "job.py")
    done = python(tmp_path, *words, compat=True, stdin="p a\nw\ncontinue\n")
    assert "exceeded the maximum of 70.00 MiB" in done.stdout
    assert "(Pdb) 1\n" in done.stdout and "job.py" in done.stdout
    assert done.stdout.rstrip().endswith("3"), done.stdout + done.stderr


def test_mprun_returns_a_line_profiler(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    (tmp_path / "shell.py").write_text(
        "import memory_profiler\nfrom IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\nrun = shell.run_line_magic\nrun('load_ext', 'memory_profiler')\n"
        "shell.run_cell('def work():\\n    kept = bytearray(8 << 20)\\n    return len(kept)\\n')\n"
        "found = run('mprun', '-r -f work work()')\n"
        "(code,) = found.code_map\nlines = found.code_map[code]\n"
        "print(isinstance(found, memory_profiler.LineProfiler), code.co_name, sorted(lines), round(lines[2][0]))\n"
    )
    done = python(tmp_path, "shell.py", compat=True)
    assert done.stdout.splitlines()[-1] == "True work [1, 2, 3] 8", done.stdout + done.stderr
