"""Tests of unsupported interpreters, and of an extension module that cannot be loaded."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import heaptide
from support.messages import one_sentence

# Makes code objects a word larger than in this version, as in a patched build. The interpreter still works, because it
# uses the size in the type.
UNKNOWN_LAYOUT = """
import ctypes, sys
type_object = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "PyCode_Type"))
ctypes.c_ssize_t.from_address(type_object + 32).value += 8
"""


@pytest.fixture
def unknown_layout(tmp_path: Path) -> dict[str, str]:
    """An environment in which the interpreter has an unknown layout."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(UNKNOWN_LAYOUT)
    return {"PYTHONPATH": str(tmp_path / "site"), "PATH": "/usr/bin:/bin"}


def test_free_threaded_build_is_refused_in_one_sentence() -> None:
    for statement in ("import heaptide", "import heaptide.recording.tracker", "from heaptide import Tracker"):
        code = f"import sys\nsys.abiflags = 't'\ntry:\n  {statement}\nexcept ImportError as error: print(error)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert "free-threaded" in done.stdout and done.stdout.count("\n") == 1
        assert "heaptide._native" not in done.stdout


def test_command_fails_and_names_the_reason_on_a_free_threaded_build(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.abiflags = 't'")
    env = {"PYTHONPATH": str(tmp_path)}
    done = heaptide("run", "-c", "print('ran')", check=False, env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert "free-threaded" in done.stderr.splitlines()[-1]


def test_program_configured_for_recording_runs_on_a_free_threaded_build(tmp_path: Path) -> None:
    package = subprocess.check_output([sys.executable, "-c", "import heaptide; print(heaptide.__path__[0])"], text=True)
    shutil.copy(Path(package.strip()).parent / "heaptide.pth", tmp_path)
    code = f"""
import os, site, sys
sys.abiflags, os.environ["HEAPTIDE"] = "t", "run"
site.addsitedir({str(tmp_path)!r})
print("ran")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "free-threaded" in done.stderr and done.stderr.count("\n") == 1


def test_command_fails_with_one_sentence_if_the_extension_module_cannot_be_loaded(tmp_path: Path) -> None:
    # The loader fails like this when a memory limit leaves no room for the library.
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['heaptide._native'] = None")
    done = heaptide("run", "-c", "print('ran')", check=False, env={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stdout) == (1, "")
    assert one_sentence(done.stderr).startswith("could not be loaded: ")


def test_unknown_layout_disables_only_the_python_stacks(tmp_path: Path, unknown_layout: dict[str, str]) -> None:
    code = "held = [bytes(1_234_567) for _ in range(3)]; print('ran'); raise SystemExit(5)"
    capture = tmp_path / "job.tide"
    done = heaptide("run", "-q", "-o", capture, "-c", code, check=False, env=unknown_layout)
    assert (done.stdout, done.returncode) == ("ran\n", 5)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and "Python stacks are left out" in lines[0], done.stderr
    records = heaptide("parse", capture).stdout.splitlines()
    assert sum(f" size={1_234_567 + sys.getsizeof(b'')} " in record for record in records) == 3
    assert not any(record.startswith("FRAME_PUSH") for record in records)
    for report in ("stats", "summary", "tree"):
        assert heaptide(report, capture).stderr == ""


def test_tracker_warns_about_an_unknown_layout(tmp_path: Path, unknown_layout: dict[str, str]) -> None:
    code = """
import heaptide, warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    with heaptide.Tracker("block.tide"):
        held = bytes(1_234_567)
print(len(seen), seen[0].category.__name__, "left out" in str(seen[0].message), seen[0].filename)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=unknown_layout, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("1 RuntimeWarning True <string>\n", "")
    assert f" size={1_234_567 + sys.getsizeof(b'')} " in heaptide("parse", tmp_path / "block.tide").stdout


def test_program_runs_with_an_unknown_layout_and_warnings_as_errors(
    tmp_path: Path, unknown_layout: dict[str, str]
) -> None:
    env = {**unknown_layout, "PYTHONWARNINGS": "error"}
    code = "import heaptide; print('ran', heaptide.active()); raise SystemExit(5)"
    done = heaptide("run", "-q", "-o", tmp_path / "job.tide", "-c", code, check=False, env=env)
    assert done.returncode == 5 and done.stdout.startswith("ran ")
    assert len(done.stderr.splitlines()) == 1 and "left out" in done.stderr
    assert done.stdout == "ran True\n"


def test_tracker_records_nothing_if_its_warning_is_an_error(tmp_path: Path, unknown_layout: dict[str, str]) -> None:
    code = """
import heaptide
try:
    heaptide.Tracker("block.tide").start()
except RuntimeWarning as error:
    print("raised", heaptide.active())
"""
    env = {**unknown_layout, "PYTHONWARNINGS": "error"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("raised False\n", "", 0)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="debug offsets are published from 3.13 on")
def test_wrong_debug_offsets_do_not_stop_the_recording(tmp_path: Path) -> None:
    code = """
import ctypes, sys
runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
assert ctypes.string_at(runtime, 8) == b"xdebugpy"
ctypes.memset(runtime, 0, 8)
import heaptide, warnings
warnings.simplefilter("ignore")
with heaptide.Tracker("block.tide"):
    held = bytes(1_234_567)
print("ran")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("ran\n", "", 0)
    assert f" size={1_234_567 + sys.getsizeof(b'')} " in heaptide("parse", tmp_path / "block.tide").stdout


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="from 3.12 on sub-interpreters are supported")
def test_tracker_in_a_sub_interpreter_raises(tmp_path: Path) -> None:
    try:
        import _testcapi  # noqa: F401
    except ImportError:
        pytest.skip("this Python has no _testcapi, which creates sub-interpreters in every version")
    code = """
import _testcapi, heaptide
_testcapi.run_in_subinterp('''
try:
    import heaptide
    heaptide.Tracker("block.tide").start()
except (ImportError, RuntimeError) as error:
    print(type(error).__name__, flush=True)
''')
print(heaptide.active())
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.splitlines()[0] in ("ImportError", "RecordingError") and done.stdout.endswith("False\n")
    assert not (tmp_path / "block.tide").exists()
