"""Tests that a program finds the same environment under `heaptide run` as under plain Python.

Every program runs twice in the same folder, without and with Heaptide. Both must print the same bytes about themselves
and exit with the same code.
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

PRINT_STATE = '''
    """A program that prints its environment."""
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


def test_script_has_the_same_environment(tmp_path: Path) -> None:
    write(tmp_path / "job.py", PRINT_STATE)
    done = run_twice(tmp_path, "job.py", "a", "--help", "-q", "", "-o", "ü")
    assert b"['job.py', 'a', '--help', '-q', '', '-o'" in done.stdout and b"'a\\nb\\n'" in done.stdout


def test_no_large_modules_are_imported_for_a_script(tmp_path: Path) -> None:
    large = ("argparse", "ast", "dataclasses", "enum", "inspect", "json", "pathlib", "re", "subprocess", "typing")
    write(tmp_path / "job.py", f"import sys; print([name for name in {large} if name in sys.modules])")
    run_twice(tmp_path, "job.py")


def test_script_in_another_folder_imports_from_its_folder(tmp_path: Path) -> None:
    write(tmp_path / "other" / "job.py", PRINT_STATE + "    import neighbour; print(neighbour.__file__)")
    write(tmp_path / "other" / "neighbour.py", "")
    assert b"other/neighbour.py" in run_twice(tmp_path, "other/job.py").stdout


def test_linked_script_imports_from_the_folder_of_its_target(tmp_path: Path) -> None:
    script = write(tmp_path / "real" / "job.py", PRINT_STATE)
    (tmp_path / "link.py").symlink_to(script)
    run_twice(tmp_path, "link.py")


def test_script_given_by_an_unusual_path_is_named_as_given(tmp_path: Path) -> None:
    write(tmp_path / "sub" / "jöb with blanks", PRINT_STATE)
    run_twice(tmp_path, "./sub/../sub/jöb with blanks", "x")
    run_twice(tmp_path, tmp_path / "sub" / "jöb with blanks", "x")


def test_module_has_the_same_environment(tmp_path: Path) -> None:
    write(tmp_path / "package" / "__init__.py", "print('the package is imported')")
    write(tmp_path / "package" / "job.py", PRINT_STATE + "    from . import __name__ as name; print(name)")
    assert b"the package is imported" in run_twice(tmp_path, "-m", "package.job", "a", "-m", "x").stdout


def test_package_runs_its_main_module(tmp_path: Path) -> None:
    write(tmp_path / "package" / "__init__.py", "import sys; print(sys.argv)")
    write(tmp_path / "package" / "__main__.py", PRINT_STATE)
    assert b"package.__main__" in run_twice(tmp_path, "-m", "package", "a").stdout


def test_code_string_has_the_same_environment(tmp_path: Path) -> None:
    run_twice(tmp_path, "-c", textwrap.dedent(PRINT_STATE), "a", "-c")


def test_program_on_standard_input_has_the_same_environment(tmp_path: Path) -> None:
    run_twice(tmp_path, "-", "a", "-x", stdin=textwrap.dedent(PRINT_STATE).encode())


def test_folder_runs_its_main_module(tmp_path: Path) -> None:
    write(tmp_path / "folder" / "__main__.py", PRINT_STATE + "    import neighbour")
    write(tmp_path / "folder" / "neighbour.py", "print('neighbour')")
    run_twice(tmp_path, "folder", "a")
    run_twice(tmp_path, "folder/", "a")


def test_archive_runs_its_main_module(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "job.pyz", "w") as archive:
        archive.writestr("__main__.py", textwrap.dedent(PRINT_STATE) + "import neighbour")
        archive.writestr("neighbour.py", "print('neighbour')")
    run_twice(tmp_path, "job.pyz", "a")


def test_compiled_script_has_the_same_environment(tmp_path: Path) -> None:
    source = write(tmp_path / "job.py", PRINT_STATE)
    py_compile.compile(str(source), cfile=str(tmp_path / "job.pyc"))
    source.unlink()
    run_twice(tmp_path, "job.pyc", "a")


@pytest.mark.parametrize(
    "flags",
    [["-O"], ["-OO"], ["-B", "-s"], ["-X", "dev"], ["-X", "utf8"], ["-W", "error", "-X", "faulthandler"], ["-u"]],
)
def test_interpreter_flags_are_kept(tmp_path: Path, flags: list[str]) -> None:
    write(tmp_path / "job.py", PRINT_STATE)
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
def test_import_path_follows_the_flags(tmp_path: Path, target: str, flags: list[str], env: dict[str, str]) -> None:
    write(tmp_path / "job.py", PRINT_STATE)
    write(tmp_path / "folder" / "__main__.py", PRINT_STATE)
    write(tmp_path / "elsewhere" / "job.py", PRINT_STATE)
    operands = {"-m": ["job"], "-c": [textwrap.dedent(PRINT_STATE)]}
    run_twice(tmp_path, target, *operands.get(target, []), flags=flags, env=env)


def test_installed_command_runs_programs_like_python(tmp_path: Path) -> None:
    script = write(tmp_path / "job.py", PRINT_STATE)
    command = Path(sys.executable).with_name("heaptide")
    if not command.exists():
        pytest.skip(f"no heaptide command next to {sys.executable}")
    outputs = [
        subprocess.run([*start, *words, script], cwd=tmp_path, capture_output=True, input=b"")
        for start, words in [([sys.executable], []), ([command], ["run", "-q", "-o", tmp_path / "x.tide"])]
    ]
    assert outputs[1].stdout.decode() == outputs[0].stdout.decode()
    assert outputs[1].returncode == outputs[0].returncode == 0


def test_recursion_limit_is_reached_at_the_same_depth(tmp_path: Path) -> None:
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


def test_stack_inspection_finds_only_frames_of_the_program(tmp_path: Path) -> None:
    program = """
    import inspect, logging, sys, threading, traceback, warnings
    def inspect_stack():
        print(len(inspect.stack()), [frame.name for frame in traceback.extract_stack()])
        warnings.warn("from the very bottom", stacklevel=9)
        warnings.warn("from the caller", stacklevel=2)
        logging.basicConfig(format="%(pathname)s %(lineno)d %(funcName)s %(threadName)s")
        logging.warning("here")
        print(sys._current_frames()[threading.get_ident()].f_code.co_name)
        print(threading.enumerate() == [threading.main_thread()], threading.active_count())
    inspect_stack()
    thread = threading.Thread(target=inspect_stack, name="second")
    thread.start()
    thread.join()
    """
    write(tmp_path / "job.py", program)
    assert b"2 ['<module>', 'inspect_stack']" in run_twice(tmp_path, "job.py").stdout


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
            # Without this the pool kills its workers, maybe before one of them has started.
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


def test_pytest_runs_the_same(tmp_path: Path) -> None:
    write(tmp_path / "test_it.py", "import os\ndef test_holds(): pass\ndef test_fails(): assert os.getpid() < 0\n")
    # Without the terminal plugin, which prints durations.
    assert run_twice(tmp_path, "-m", "pytest", "-p", "no:terminal", "-p", "no:cacheprovider").returncode == 1
    assert run_twice(tmp_path, "-m", "pytest", "-p", "no:terminal", "-k", "holds").returncode == 0
    assert run_twice(tmp_path, "-m", "pytest", "--version").returncode == 0


def test_program_finds_its_own_file_module_and_source(tmp_path: Path) -> None:
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
