"""`heaptide run` shows a program the world that plain Python shows it.

Every program here runs twice, without and with us, in the same folder: what it prints about itself must be the same
bytes, and so must its exit code.
"""

from __future__ import annotations

import py_compile
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
from support.run_twice import run_twice, write

MIRROR = '''
    """A program that says what it sees."""
    NAMES = sorted(globals())
    import builtins, sys

    def show(name):
        value = globals().get(name, "(absent)")
        if name == "__loader__":
            value = [getattr(value, "__qualname__", type(value).__qualname__), getattr(value, "name", None)]
        elif name == "__spec__" and value is not None:
            value = [value.name, value.origin, value.parent, value.cached, type(value.loader).__name__]
        elif name == "__builtins__":
            value = value is builtins
        print(name, repr(value))

    print(NAMES)
    for name in ("name", "file", "doc", "package", "spec", "loader", "builtins", "annotations", "cached"):
        show(f"__{name}__")
    print(sys.argv, sys.path, sys.flags, sys.warnoptions, sys._xoptions)
    frame, callers = sys._getframe(), []
    while frame:
        callers.append((frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    print(vars(sys.modules["__main__"]) is globals(), callers)
    print(sys.getprofile(), sys.gettrace(), sys.getrecursionlimit(), sys.getswitchinterval())
    print(__debug__, sys.excepthook is sys.__excepthook__, sys.stdin.encoding, sys.stdout.line_buffering)
    print(repr(sys.stdin.read()))
'''


def test_a_script_sees_what_it_always_sees(tmp_path: Path) -> None:
    write(tmp_path / "job.py", MIRROR)
    done = run_twice(tmp_path, "job.py", "a", "--help", "-q", "", "-o", "ü")
    assert b"['job.py', 'a', '--help', '-q', '', '-o'" in done.stdout and b"'a\\nb\\n'" in done.stdout


def test_a_script_does_not_pay_for_large_modules_that_it_did_not_ask_for(tmp_path: Path) -> None:
    large = ("argparse", "ast", "dataclasses", "enum", "inspect", "json", "pathlib", "re", "subprocess", "typing")
    write(tmp_path / "job.py", f"import sys; print([name for name in {large} if name in sys.modules])")
    run_twice(tmp_path, "job.py")


def test_a_script_in_another_folder_imports_from_there(tmp_path: Path) -> None:
    write(tmp_path / "other" / "job.py", MIRROR + "    import beside; print(beside.__file__)")
    write(tmp_path / "other" / "beside.py", "")
    assert b"other/beside.py" in run_twice(tmp_path, "other/job.py").stdout


def test_a_script_behind_a_link_imports_from_where_the_link_points(tmp_path: Path) -> None:
    script = write(tmp_path / "real" / "job.py", MIRROR)
    (tmp_path / "link.py").symlink_to(script)
    run_twice(tmp_path, "link.py")


def test_a_script_given_by_an_unusual_path_is_named_as_given(tmp_path: Path) -> None:
    write(tmp_path / "sub" / "jöb with blanks", MIRROR)
    run_twice(tmp_path, "./sub/../sub/jöb with blanks", "x")
    run_twice(tmp_path, tmp_path / "sub" / "jöb with blanks", "x")


def test_a_module_sees_what_it_always_sees(tmp_path: Path) -> None:
    write(tmp_path / "package" / "__init__.py", "print('the package is imported')")
    write(tmp_path / "package" / "job.py", MIRROR + "    from . import __name__ as name; print(name)")
    assert b"the package is imported" in run_twice(tmp_path, "-m", "package.job", "a", "-m", "x").stdout


def test_a_package_runs_its_main_module(tmp_path: Path) -> None:
    write(tmp_path / "package" / "__init__.py", "import sys; print(sys.argv)")
    write(tmp_path / "package" / "__main__.py", MIRROR)
    assert b"package.__main__" in run_twice(tmp_path, "-m", "package", "a").stdout


def test_code_sees_what_it_always_sees(tmp_path: Path) -> None:
    run_twice(tmp_path, "-c", textwrap.dedent(MIRROR), "a", "-c")


def test_a_program_on_standard_input_sees_what_it_always_sees(tmp_path: Path) -> None:
    run_twice(tmp_path, "-", "a", "-x", stdin=textwrap.dedent(MIRROR).encode())


def test_a_folder_runs_its_main_module(tmp_path: Path) -> None:
    write(tmp_path / "folder" / "__main__.py", MIRROR + "    import beside")
    write(tmp_path / "folder" / "beside.py", "print('beside')")
    run_twice(tmp_path, "folder", "a")
    run_twice(tmp_path, "folder/", "a")


def test_an_archive_runs_its_main_module(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "job.pyz", "w") as archive:
        archive.writestr("__main__.py", textwrap.dedent(MIRROR) + "import beside")
        archive.writestr("beside.py", "print('beside')")
    run_twice(tmp_path, "job.pyz", "a")


def test_a_compiled_script_sees_what_it_always_sees(tmp_path: Path) -> None:
    source = write(tmp_path / "job.py", MIRROR)
    py_compile.compile(str(source), cfile=str(tmp_path / "job.pyc"))
    source.unlink()
    run_twice(tmp_path, "job.pyc", "a")


@pytest.mark.parametrize(
    "flags",
    [["-O"], ["-OO"], ["-B", "-s"], ["-X", "dev"], ["-X", "utf8"], ["-W", "error", "-X", "faulthandler"], ["-u"]],
)
def test_the_flags_of_the_interpreter_stay(tmp_path: Path, flags: list[str]) -> None:
    write(tmp_path / "job.py", MIRROR)
    run_twice(tmp_path, "job.py", flags=flags)


@pytest.mark.parametrize("target", ["job.py", "-m", "-c", "folder"])
@pytest.mark.parametrize(
    ("flags", "env"),
    [
        (["-I"], {}),
        (["-E"], {"PYTHONPATH": "nowhere"}),
        pytest.param(["-P"], {}, marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="3.11 brought -P")),
        ([], {"PYTHONSAFEPATH": "1", "PYTHONPATH": "elsewhere"}),
    ],
)
def test_the_import_path_follows_the_flags(tmp_path: Path, target: str, flags: list[str], env: dict[str, str]) -> None:
    write(tmp_path / "job.py", MIRROR)
    write(tmp_path / "folder" / "__main__.py", MIRROR)
    write(tmp_path / "elsewhere" / "job.py", MIRROR)
    operands = {"-m": ["job"], "-c": [textwrap.dedent(MIRROR)]}
    run_twice(tmp_path, target, *operands.get(target, []), flags=flags, env=env)


def test_the_command_and_the_module_run_programs_alike(tmp_path: Path) -> None:
    script = write(tmp_path / "job.py", MIRROR)
    command = Path(sys.executable).with_name("heaptide")
    if not command.exists():
        pytest.skip(f"no heaptide command beside {sys.executable}")
    outputs = [
        subprocess.run([*start, *words, script], cwd=tmp_path, capture_output=True, input=b"")
        for start, words in [([sys.executable], []), ([command], ["run", "-q", "-o", tmp_path / "x.tide"])]
    ]
    assert outputs[1].stdout.decode() == outputs[0].stdout.decode()
    assert outputs[1].returncode == outputs[0].returncode == 0


def test_recursion_reaches_as_deep_as_without_us(tmp_path: Path) -> None:
    code = """
    import sys
    def deeper(depth):
        try:
            return deeper(depth + 1)
        except RecursionError:
            return depth
    print(deeper(1))
    """
    run_twice(tmp_path, "-c", textwrap.dedent(code))


def test_what_looks_at_the_stack_sees_the_program_alone(tmp_path: Path) -> None:
    program = """
    import inspect, logging, sys, threading, traceback, warnings
    def look():
        print(len(inspect.stack()), [frame.name for frame in traceback.extract_stack()])
        warnings.warn("from the very bottom", stacklevel=9)
        warnings.warn("from the caller", stacklevel=2)
        logging.basicConfig(format="%(pathname)s %(lineno)d %(funcName)s %(threadName)s")
        logging.warning("here")
        print(sys._current_frames()[threading.get_ident()].f_code.co_name)
        print(threading.enumerate() == [threading.main_thread()], threading.active_count())
    look()
    thread = threading.Thread(target=look, name="second")
    thread.start()
    thread.join()
    """
    write(tmp_path / "job.py", program)
    assert b"2 ['<module>', 'look']" in run_twice(tmp_path, "job.py").stdout


def test_classes_of_the_main_module_can_be_pickled(tmp_path: Path) -> None:
    program = """
    import pickle
    class Thing:
        def __eq__(self, other):
            return type(other) is Thing
    text = pickle.dumps(Thing(), protocol=0)
    print(text)
    assert pickle.loads(text) == Thing()
    """
    write(tmp_path / "job.py", program)
    run_twice(tmp_path, "job.py")
    run_twice(tmp_path, "-m", "job")
    run_twice(tmp_path, "-c", textwrap.dedent(program))


def test_spawned_processes_find_the_main_module(tmp_path: Path) -> None:
    program = """
    import multiprocessing
    def square(number):
        return number * number
    if __name__ == "__main__":
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            print(pool.map(square, range(5)))
            # A pool that is left without this ends its workers by a signal, maybe before one of them has begun.
            pool.close()
            pool.join()
    """
    write(tmp_path / "job.py", program)
    assert run_twice(tmp_path, "job.py").stdout == b"[0, 1, 4, 9, 16]\n"
    assert run_twice(tmp_path, "-m", "job").stdout == b"[0, 1, 4, 9, 16]\n"


def test_unittest_finds_the_tests_of_the_main_module(tmp_path: Path) -> None:
    program = """
    import sys, unittest
    class Claims(unittest.TestCase):
        def test_holds(self):
            pass
        def test_fails(self):
            self.assertEqual(1, 2)
    unittest.main(testRunner=unittest.TextTestRunner(stream=open("/dev/null", "w")), argv=sys.argv)
    """
    write(tmp_path / "job.py", program)
    assert run_twice(tmp_path, "job.py").returncode == 1
    assert run_twice(tmp_path, "job.py", "Claims.test_holds").returncode == 0


def test_pytest_runs_as_it_always_does(tmp_path: Path) -> None:
    write(tmp_path / "test_it.py", "import os\ndef test_holds(): pass\ndef test_fails(): assert os.getpid() < 0\n")
    # Without the terminal, because it shows how long it took.
    assert run_twice(tmp_path, "-m", "pytest", "-p", "no:terminal", "-p", "no:cacheprovider").returncode == 1
    assert run_twice(tmp_path, "-m", "pytest", "-p", "no:terminal", "-k", "holds").returncode == 0
    assert run_twice(tmp_path, "-m", "pytest", "--version").returncode == 0


def test_the_documented_ways_to_find_oneself_work(tmp_path: Path) -> None:
    program = """
    import __main__, inspect, os, sys
    class Thing:
        def method(self): pass
    print(__main__.__file__, inspect.getsource(Thing), inspect.getmodule(Thing) is __main__)
    print(os.path.dirname(os.path.abspath(__file__)) == sys.path[0])
    a: int = 1
    print(__annotations__ if sys.version_info < (3, 14) else "")
    import typing
    print(typing.get_type_hints(__main__))
    """
    write(tmp_path / "job.py", program)
    run_twice(tmp_path, "job.py")
