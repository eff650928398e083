"""Tests that a program under `heaptide run` ends as under plain Python: same exit code or signal, same output."""

from __future__ import annotations

import signal
import sys
import zipfile
from pathlib import Path
from textwrap import dedent

import pytest
from support.run_twice import run_twice, write

EXITS = {
    "falling off the end": ("x = 1", 0),
    "exit without a code": ("import sys; sys.exit()", 0),
    "exit with None": ("import sys; sys.exit(None)", 0),
    "exit with 3": ("import sys; sys.exit(3)", 3),
    "exit with 256": ("import sys; sys.exit(256)", 0),
    "exit with -1": ("import sys; sys.exit(-1)", 255),
    "exit with True": ("import sys; sys.exit(True)", 1),
    "exit with a text": ("import sys; print('printed'); sys.exit('it did not work: ü')", 1),
    "exit with an object": ("import sys; sys.exit((1, 'two'))", 1),
    "exit from a nested call": ("def f(n): f(n - 1) if n else exit(4)\nf(20)", 4),
    "exit within an exception handler": ("try: 1 / 0\nexcept ZeroDivisionError: raise SystemExit(5)", 5),
    "exit of a subclass": ("class Stop(SystemExit): pass\nraise Stop(6)", 6),
    "os._exit": ("import os; print('lost?', flush=True); os._exit(7)", 7),
    "uncaught exception": ("1 / 0", 1),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", -signal.SIGINT),
    "KeyboardInterrupt with a text": ("def f(): raise KeyboardInterrupt('now')\nf()", -signal.SIGINT),
    "SIGINT": ("import os, signal; os.kill(os.getpid(), signal.SIGINT); input()", -signal.SIGINT),
    "SIGINT in asyncio": (
        "import asyncio, os, signal\nasync def f(): os.kill(os.getpid(), signal.SIGINT); await asyncio.sleep(60)\n"
        "try: asyncio.run(f())\nexcept KeyboardInterrupt: print('caught'); raise SystemExit(9)",
        9,
    ),
    "SIGTERM": ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "SIGTERM with a handler": (
        "import os, signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(8))\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nsignal.pause()",
        8,
    ),
    "abort": ("import os; os.abort()", -signal.SIGABRT),
    "a segmentation fault": ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
    "SIGKILL": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
}


@pytest.mark.parametrize("how", EXITS)
def test_exit_code_is_that_of_the_program(tmp_path: Path, how: str) -> None:
    code, expected = EXITS[how]
    assert run_twice(tmp_path, "-c", code).returncode == expected


RAISERS = {
    "in a function": "def f(): g()\ndef g():\n    return [1 / n for n in (1, 0)]\nf()",
    "with a cause": "try: {}['x']\nexcept KeyError as error: raise RuntimeError('no x') from error",
    "while another was handled": "try: {}['x']\nexcept KeyError: int('x')",
    "with a note": "e = ValueError('ü')\nif hasattr(e, 'add_note'): e.add_note('see there')\nraise e",
    "from a callback": "sorted([1, 2], key=lambda n: n / 0)",
    "from an imported module": "import neighbour; neighbour.fail()",
    "while importing": "import broken",
    "with a broken text": "class E(Exception):\n  def __str__(self): raise ValueError\nraise E",
    "of a deep recursion": "def f(): f()\nf()",
    "from a generator": "def g():\n    yield 1\n    raise LookupError\nlist(g())",
    "from a coroutine": "import asyncio\nasync def f(): raise OSError(2, 'gone', 'file')\nasyncio.run(f())",
    "as a group": (
        "raise ExceptionGroup('two', [ValueError(1), TypeError(2)])" if sys.version_info >= (3, 11) else "raise OSError"
    ),
    "from exec": "exec(compile('x = 1\\nraise ValueError', 'made up.py', 'exec'))",
    "a syntax error in eval": "eval('1 +')",
    "from a class body": "class A:\n    class B:\n        x = undefined_name",
}


@pytest.mark.parametrize("what", RAISERS)
def test_traceback_is_identical(tmp_path: Path, what: str) -> None:
    write(tmp_path / "job.py", RAISERS[what])
    write(tmp_path / "neighbour.py", "def fail():\n    raise ValueError('here')\n")
    write(tmp_path / "broken.py", "x = (1,\n")
    done = run_twice(tmp_path, "job.py")
    assert done.returncode == 1 and b"Traceback" in done.stderr


def test_traceback_is_identical_for_modules_folders_archives_code_and_standard_input(tmp_path: Path) -> None:
    text = "def f():\n    1 / 0\nf()\n"
    write(tmp_path / "job.py", text)
    write(tmp_path / "folder" / "__main__.py", text)
    with zipfile.ZipFile(tmp_path / "job.pyz", "w") as archive:
        archive.writestr("__main__.py", text)
    for arguments in (("-m", "job"), ("-c", text), ("folder",), ("job.pyz",), ("-",)):
        done = run_twice(tmp_path, *arguments, stdin=text.encode())
        assert done.returncode == 1 and b"ZeroDivisionError" in done.stderr


NO_PROGRAMS = {
    "a missing file": (("missing.py", "x"), 2),
    "a missing file in a missing folder": (("no/such/../missing.py",), 2),
    "a missing module": (("-m", "missing"), 1),
    "a module of a missing package": (("-m", "missing.module"), 1),
    "a package without a main module": (("-m", "package"), 1),
    "a folder without a main module": (("package",), 1),
    "a module that is no package": (("-m", "job.inner"), 1),
    "a package that fails": (("-m", "failing.job"), 1),
    "a syntax error": (("wrong.py",), 1),
    "a wrong indentation": (("indent.py",), 1),
    "an unknown encoding": (("encoding.py",), 1),
    "bytes that are not the encoding": (("latin.py",), 1),
    "a syntax error in a module": (("-m", "wrong"), 1),
    "a syntax error in code": (("-c", "x = = 1"), 1),
    "a syntax error on standard input": (("-",), 1),
    "an invalid compiled script": (("bad.pyc",), 1),
}


@pytest.mark.parametrize("what", NO_PROGRAMS)
def test_program_that_cannot_start_fails_with_pythons_message(tmp_path: Path, what: str) -> None:
    arguments, expected = NO_PROGRAMS[what]
    write(tmp_path / "job.py", "print('ran')")
    write(tmp_path / "package" / "__init__.py", "")
    write(tmp_path / "failing" / "__init__.py", "1 / 0")
    write(tmp_path / "failing" / "job.py", "")
    write(tmp_path / "wrong.py", "x = 1\nfor y in\n  z: é")
    write(tmp_path / "indent.py", "if x:\ny = 1\n")
    (tmp_path / "encoding.py").write_bytes(b"# coding: nonsense\nx = 1\n")
    (tmp_path / "latin.py").write_bytes(b"x = '\xfc'\n")
    (tmp_path / "bad.pyc").write_bytes(b"no magic number here")
    done = run_twice(tmp_path, *arguments, stdin=b"x = (\n", records=False)
    assert done.returncode == expected


def test_sources_in_any_encoding_and_line_ending_run(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"# coding: latin-1\nprint(ascii('\xfc'))\n")
    (tmp_path / "mark.py").write_bytes(b"\xef\xbb\xbfprint(ascii('\xc3\xbc'))\n")
    (tmp_path / "lines.py").write_bytes(b"def f():\r\n    return '''a\r\nb'''\r\nprint(repr(f()))\r\n1 / 0")
    (tmp_path / "empty.py").write_bytes(b"")
    for name in ("latin.py", "mark.py", "lines.py", "empty.py"):
        run_twice(tmp_path, name)


HOOKS = {
    "prints": "import sys\ndef hook(kind, error, trace): print('hook', kind, error, trace.tb_lineno, trace.tb_next)\n"
    "sys.excepthook = hook\n1 / 0",
    "leaves": "import sys\nsys.excepthook = lambda *_: sys.exit(12)\n1 / 0",
    "fails": "import sys\nsys.excepthook = lambda *_: undefined_name\n1 / 0",
    "is gone": "import sys\ndel sys.excepthook\n1 / 0",
    "sees an interrupt": "import sys\nsys.excepthook = lambda *about: print('hook', about[0])\nraise KeyboardInterrupt",
    "of a thread": "import threading\nthreading.excepthook = lambda about: print('hook', about.exc_type)\n"
    "thread = threading.Thread(target=lambda: 1 / 0)\nthread.start(); thread.join()",
    "of a destructor": "import sys\nsys.unraisablehook = lambda about: print('hook', about.exc_value)\n"
    "class X:\n  def __del__(self): 1 / 0\nX()",
}


@pytest.mark.parametrize("what", HOOKS)
def test_exception_hook_of_the_program_is_called(tmp_path: Path, what: str) -> None:
    write(tmp_path / "job.py", HOOKS[what])
    run_twice(tmp_path, "job.py")


def test_exit_handlers_destructors_and_last_exception_keep_their_order(tmp_path: Path) -> None:
    program = """
    import atexit, sys, threading, weakref
    class Thing:
        def __init__(self, name): self.name = name
        def __del__(self): print("deleted", self.name)
    def last():
        print("last", sys.last_type, sys.last_value, sys.last_traceback.tb_lineno, sys.last_traceback.tb_next.tb_lineno)
    class Broken:
        def __repr__(self): return "Broken"
        def __call__(self): raise ValueError("in an exit handler")
    def work(held):
        local = Thing("local")
        weakref.finalize(held, print, "finalized")
        raise RuntimeError("the end")
    atexit.register(print, "registered first")
    atexit.register(Broken())
    atexit.register(last)
    held = Thing("global")
    cycle = Thing("cycle"); cycle.me = cycle
    atexit.register(lambda: print("threads", [thread.name for thread in threading.enumerate()]))
    work(held)
    """
    write(tmp_path / "job.py", program)
    done = run_twice(tmp_path, "job.py")
    assert b"registered first" in done.stdout and b"deleted global" in done.stdout


def test_exit_waits_for_threads_but_not_for_daemon_threads(tmp_path: Path) -> None:
    program = """
    import atexit, sys, threading, time
    gate = threading.Event()
    def lasting():
        gate.wait()
        print("the lasting thread ends", threading.main_thread().is_alive(), flush=True)
    def daemon():
        while True:
            time.sleep(0.001)
            bytes(100000)
    atexit.register(print, "exit handler")
    threading.Thread(target=lasting).start()
    for _ in range(4):
        threading.Thread(target=daemon, daemon=True).start()
    threading._register_atexit(lambda: (print("the main thread waits"), gate.set()))
    print("the main thread ends", flush=True)
    sys.exit(21)
    """
    write(tmp_path / "job.py", program)
    assert run_twice(tmp_path, "job.py").returncode == 21


@pytest.mark.parametrize("allocator", ["malloc", "malloc_debug", "pymalloc_debug", "debug"])
def test_program_runs_normally_with_any_python_allocator(tmp_path: Path, allocator: str) -> None:
    code = "import json; x = [json.dumps({str(n): [n] * 20}) for n in range(2000)]; print(len(x)); raise SystemExit(3)"
    env = {"PYTHONMALLOC": allocator, "PYTHONTRACEMALLOC": "3", "PYTHONHASHSEED": "1"}
    assert run_twice(tmp_path, "-c", code, env=env).returncode == 3


def test_failed_flush_at_exit_is_reported_by_python(tmp_path: Path) -> None:
    code = """
    import os, sys
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)
    print("nobody reads this")
    """
    assert run_twice(tmp_path, "-c", dedent(code), env={"PYTHONUNBUFFERED": ""}).returncode == 120
