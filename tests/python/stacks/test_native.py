"""Tests native stacks: native functions by name and between the Python functions, in call order."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import PROGRAMS, Finished, compile_library, heaptide
from support.controlled_program import page_data
from support.native_frames import called_by, lost, names, stacks, traces

Run = Callable[..., Finished]
Extension = Callable[..., Path]

SIZE = 3_000_017
CHAIN = ["native_stacks_outer", "middle_function", "leaf_function", "tiny_inlined"]
PROGRAM = """
    import sys
    sys.path.insert(0, sys.argv[1])
    import native_stacks

    def start():
        native_stacks.allocate(3_000_017)
        native_stacks.call_back(back)
        native_stacks.recurse(5, 3_000_047)

    def back():
        deeper()

    def deeper():
        native_stacks.allocate(3_000_029)

    start()
    native_stacks.in_a_thread(3_000_053)
    native_stacks.call_back_in_a_thread(lambda: native_stacks.allocate(3_000_059))
"""


@pytest.fixture
def recorded(heaptide_run: Run, extension: Extension, tmp_path: Path) -> Callable[..., Path]:
    """Record the program with the extension module compiled by these flags."""

    def run(*options: str, flags: tuple[str, ...] = ()) -> Path:
        library = extension("stacks/native_stacks", *flags)
        return heaptide_run(PROGRAM, "--native", *options, args=[str(library.parent)]).capture

    return run


def test_native_functions_lie_between_their_python_callers_and_callees(
    recorded: Callable[..., Path], tmp_path: Path
) -> None:
    capture = recorded()
    found = stacks(capture)
    assert names(found[SIZE], tmp_path) == ["<module>", "start", "allocate", *CHAIN]
    assert names(found[3_000_029], tmp_path) == [
        *("<module>", "start", "call_back", "call_it", "back", "deeper", "allocate"),
        *CHAIN,
    ]
    assert names(found[3_000_047], tmp_path) == ["<module>", "start", "recurse", *["descend"] * 5, *CHAIN]
    assert names(found[3_000_053]) == ["thread_main", *CHAIN]
    assert names(found[3_000_059], tmp_path) == ["calls_python", "<lambda>", "allocate", *CHAIN]
    evaluations = [frame for stack in found.values() for frame in stack if "_PyEval_EvalFrameDefault" in frame.function]
    assert evaluations == []
    assert lost(capture) == []


def test_python_frames_are_the_same_with_and_without_native_functions(
    recorded: Callable[..., Path], heaptide_run: Run, extension: Extension
) -> None:
    library = extension("stacks/native_stacks")
    plain = heaptide_run(PROGRAM, args=[str(library.parent)]).capture
    native = recorded()
    plain_frames = {
        size: [(at.function, at.line) for at in stack] for size, stack in stacks(plain).items() if size > SIZE
    }
    hidden = stacks(native, "--hide-native")
    assert {
        size: [(at.function, at.line) for at in stack] for size, stack in hidden.items() if size > SIZE
    } == plain_frames


@pytest.mark.once
@pytest.mark.parametrize("options", [("--objects",), ("--aggregate",), ("--sample=1k",), ("--objects", "--aggregate")])
def test_native_functions_are_recorded_in_every_mode(
    recorded: Callable[..., Path], tmp_path: Path, options: tuple[str, ...]
) -> None:
    text = heaptide("transform", "csv", "--total", "-o", "-", recorded(*options)).stdout
    rows = [row["stack_trace"] for row in csv.DictReader(text.splitlines()) if "leaf_function" in row["stack_trace"]]
    innermost_first = [[frame.split(";")[0] for frame in row.split("|")] for row in rows]
    assert [*CHAIN[::-1], "allocate"] in [stack[:5] for stack in innermost_first]
    assert any(stack.count("descend") == 5 for stack in innermost_first)


@pytest.mark.once
def test_optimised_code_without_frame_pointers_is_unwound(recorded: Callable[..., Path], tmp_path: Path) -> None:
    capture = recorded(flags=("-O3", "-fomit-frame-pointer"))
    found = stacks(capture)
    assert names(found[SIZE], tmp_path) == ["<module>", "start", "allocate", *CHAIN]
    assert names(found[3_000_047], tmp_path) == ["<module>", "start", "recurse", *["descend"] * 5, *CHAIN]
    assert lost(capture) == []


@pytest.mark.once
@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-fomit-frame-pointer")], ids=" ".join)
def test_alternating_callers_on_the_same_stack_memory_are_distinguished(
    heaptide_run: Run, extension: Extension, flags: tuple[str, ...]
) -> None:
    library = extension("stacks/alternating_callers", *flags)
    program = """
        import ctypes, sys
        print(ctypes.CDLL(sys.argv[1]).alternate(700_001))
    """
    done = heaptide_run(program, "--native", args=[str(library)])
    n_each = int(done.stdout) // 2
    text = heaptide("transform", "csv", "--total", "-o", "-", done.capture).stdout
    found = []
    for row in csv.DictReader(text.splitlines()):
        functions = [frame.partition(";")[0] for frame in row["stack_trace"].split("|")]
        if functions[0] == "make":
            found.append((functions[1:4], int(row["num_allocations"]), int(row["size"])))
    # The callers alternate, so each has every second size.
    sums = (sum(range(700_001 + first, 700_001 + 2 * n_each, 2)) for first in (0, 1))
    expected = [(["with_room", caller, "alternate"], n_each) for caller in ("from_far", "from_near")]
    assert sorted(found) == [(*row, size) for row, size in zip(expected, sums, strict=True)]
    assert lost(done.capture) == []


@pytest.mark.once
def test_stripped_library_shows_exported_names_and_offsets_of_other_functions(
    recorded: Callable[..., Path], tmp_path: Path
) -> None:
    capture = recorded(flags=("-s",))
    stack = stacks(capture)[3_000_047]
    library = [frame for frame in stack if "/native_stacks" in frame.file]
    assert [frame.function for frame in stack if frame.file.endswith(".py")] == ["<module>", "start"]
    # recurse, five times descend, the exported function, middle and leaf; the inlined function is unknown.
    assert len(library) == 9
    assert library[6].function == "native_stacks_outer"
    assert all(frame.function.startswith("native_stacks.") and "+0x" in frame.function for frame in library[:6])
    assert len({frame.function for frame in library[1:6]}) == 1


@pytest.mark.once
def test_debug_information_in_a_separate_file_is_found(heaptide_run: Run, tmp_path: Path) -> None:
    if shutil.which("objcopy") is None:
        pytest.skip("no objcopy: install binutils to run this test")
    library = compile_library(PROGRAMS / "stacks/native_stacks.c", tmp_path, ["-Wl,--build-id"])
    debug = tmp_path / "native_stacks.debug"
    for words in (
        ["--only-keep-debug", str(library), str(debug)],
        ["--strip-all", f"--add-gnu-debuglink={debug}", str(library)],
    ):
        subprocess.run(["objcopy", *words], check=True, cwd=tmp_path)
    capture = heaptide_run(PROGRAM, "--native", args=[str(tmp_path)]).capture
    stack = stacks(capture)[SIZE]
    assert names(stack, tmp_path) == ["<module>", "start", "allocate", *CHAIN]
    leaf = next(frame for frame in stack if frame.function == "tiny_inlined")
    source = (PROGRAMS / "stacks/native_stacks.c").read_text().splitlines()
    assert "malloc(size)" in source[leaf.line - 1]


@pytest.mark.once
def test_stacks_are_complete_during_cpp_exceptions(heaptide_run: Run, tmp_path: Path) -> None:
    library = compile_library(PROGRAMS / "stacks/native_exceptions.cpp", tmp_path, ["-lstdc++"])
    program = """
        import ctypes, sys
        ctypes.CDLL(sys.argv[1]).throw_and_catch(3_000_017)
    """
    capture = heaptide_run(program, "--native", args=[str(library)]).capture
    found = stacks(capture)
    rescue = ["throw_and_catch", "store::rescue"]
    destructor = names(found[3_000_017])
    assert destructor[:2] == rescue
    assert destructor[2].startswith("store::Box<") and destructor[2].endswith(">::fill")
    assert destructor[3:] == ["store::Guard::~Guard"]
    assert names(found[3_000_018]) == rescue
    assert lost(capture) == []


@pytest.mark.once
def test_library_loaded_at_the_address_of_another_is_distinguished(heaptide_run: Run, tmp_path: Path) -> None:
    libraries = []
    for name in ("first_plugin", "second_plugin"):
        (tmp_path / name).mkdir()
        libraries.append(compile_library(PROGRAMS / "stacks/native_plugin.c", tmp_path / name, [f"-DFUNCTION={name}"]))
    program = """
        import _ctypes, ctypes, sys
        for number, path in enumerate(sys.argv[1:] * 2):
            library = ctypes.CDLL(path)
            library.plugin_run(3_000_017 + number)
            _ctypes.dlclose(library._handle)
    """
    capture = heaptide_run(program, "--native", args=[str(library) for library in libraries]).capture
    text = heaptide("transform", "csv", "--total", "-o", "-", capture).stdout
    rows = [row for row in csv.DictReader(text.splitlines()) if int(row["size"]) > SIZE]
    found = {(row["stack_trace"].split(";")[0], int(row["size"])) for row in rows}
    assert found == {("first_plugin", 2 * SIZE + 2), ("second_plugin", 2 * SIZE + 4)}
    modules = [line for line in heaptide("parse", capture).stdout.splitlines() if line.startswith("MODULE ")]
    assert len({line.split()[1] for line in modules if "native_plugin" in line}) == 2


@pytest.mark.once
def test_bundled_capture_has_names_without_the_libraries(
    heaptide_run: Run, extension: Extension, tmp_path: Path
) -> None:
    original = extension("stacks/native_stacks")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    library = Path(shutil.copy(original, folder))
    capture = heaptide_run(PROGRAM, "--native", args=[str(folder)]).capture
    before = stacks(capture)
    first = heaptide("symbols", "bundle", capture).stdout
    size = capture.stat().st_size
    again = heaptide("symbols", "bundle", capture).stdout
    assert " symbols added" in first and ": 0 symbols added" in again
    assert capture.stat().st_size == size
    library.unlink()
    assert stacks(capture) == before
    assert lost(capture) == []


@pytest.mark.once
def test_names_are_not_taken_from_a_rebuilt_library(heaptide_run: Run, tmp_path: Path) -> None:
    library = compile_library(PROGRAMS / "stacks/native_plugin.c", tmp_path, ["-DFUNCTION=old_name", "-Wl,--build-id"])
    program = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).plugin_run(3_000_017)"
    capture = heaptide_run(program, "--native", args=[str(library)]).capture
    assert stacks(capture)[SIZE][-1].function == "old_name"
    compile_library(PROGRAMS / "stacks/native_plugin.c", tmp_path, ["-DFUNCTION=new_name", "-Wl,--build-id"])
    innermost = stacks(capture)[SIZE][-1]
    assert innermost.function.startswith("native_plugin.so+0x")
    assert innermost.file == str(library)


@pytest.mark.once
def test_reports_warn_once_about_missing_native_names(heaptide_run: Run, tmp_path: Path) -> None:
    library = compile_library(PROGRAMS / "stacks/native_plugin.c", tmp_path, ["-DFUNCTION=plugin", "-Wl,--build-id"])
    program = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).plugin_run(3_000_017)"
    capture = heaptide_run(program, "--native", args=[str(library)]).capture
    bundled = Path(shutil.copy(capture, tmp_path / "bundled.tide"))
    heaptide("symbols", "bundle", bundled)
    assert heaptide("stats", capture).stderr == ""
    library.unlink()
    warning = "heaptide: cannot resolve native symbols of native_plugin.so, which are not on this machine: "
    for words in ("stats", "tree --plain", "flamegraph -f", "table -f"):
        warnings = [line for line in heaptide(*words.split(), capture).stderr.splitlines() if "native" in line]
        assert warnings == [f"{warning}run `heaptide symbols bundle` on the capture where the program ran"]
    assert heaptide("diff", capture, capture).stderr.count(warning) == 1
    assert heaptide("stats", bundled).stderr == heaptide("stats", "--hide-native", capture).stderr == ""


@pytest.mark.once
def test_capture_without_native_functions_cannot_be_bundled(heaptide_run: Run) -> None:
    capture = heaptide_run("pass").capture
    done = heaptide("symbols", "bundle", capture, check=False)
    assert done.returncode == 1
    assert "has no native frames: record with --native" in done.stderr


@pytest.mark.once
def test_function_of_zlib_is_named_below_its_python_caller(heaptide_run: Run) -> None:
    program = """
        import zlib
        def pack():
            zlib.compress(bytes(100_000))
        pack()
    """
    capture = heaptide_run(program, "--native").capture
    packing = [called_by("pack", trace.frames) for trace in traces(capture)]
    assert any("deflateInit2_" in frame.function for frames in packing for frame in frames)


@pytest.mark.once
def test_functions_of_numpy_are_named_in_call_order_below_their_python_caller(heaptide_run: Run) -> None:
    pytest.importorskip("numpy", reason="no numpy: install it to run this test")
    program = """
        import numpy
        def table():
            return numpy.zeros(3_000_017, dtype="u1")
        kept = table()
    """
    frames = stacks(heaptide_run(program, "--native").capture)[SIZE]
    called = [frame.function for frame in called_by("table", frames) if "/numpy/_core/" in frame.file]
    assert called[0] == "array_zeros"
    assert "PyDataMem_UserNEW_ZEROED" in called[1:]
    assert [function for function in called if "+0x" in function] == []


@pytest.mark.once
def test_tracker_records_native_stacks_by_either_option(extension: Extension, tmp_path: Path) -> None:
    folder = extension("stacks/native_stacks").parent
    program = f"""
import sys
sys.path.insert(0, {str(folder)!r})
import heaptide, native_stacks
def call():
    native_stacks.allocate(3_000_017)
with heaptide.Tracker("one.tide", native=True):
    call()
with heaptide.Tracker("two.tide", native_traces=True):
    call()
with heaptide.Tracker("three.tide"):
    call()
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)
    for capture in ("one.tide", "two.tide"):
        assert names(stacks(tmp_path / capture)[SIZE])[-5:] == ["allocate", *CHAIN]
    assert [frame.function for frame in stacks(tmp_path / "three.tide")[SIZE]][-1] == "call"


@pytest.mark.once
def test_page_data_marks_native_functions(recorded: Callable[..., Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    heaptide("flamegraph", "--leaks", "-o", page, recorded())
    data = json.loads(page_data(page.read_text()))
    locations, texts = data["locations"], data["texts"]
    libraries = {
        texts[function]: library for function, library in zip(locations["function"], locations["library"], strict=True)
    }
    assert libraries["start"] == libraries["deeper"] == -1
    assert Path(texts[libraries["middle_function"]]).name.startswith("native_stacks.")
