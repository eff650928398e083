"""Tests native stacks in real programs: random calls, C++ and Rust packages, greenlets, a stripped Python, readers."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import Finished, heaptide, python
from support.native_frames import Frame, called_by, functions, lost, names, stacks, traces

Run = Callable[..., Finished]
Extension = Callable[..., Path]

# Each call allocates a block of a unique size, through random chains of Python and native calls.
RANDOM_CALLS = """
    import random, sys
    sys.path.insert(0, sys.argv[1])
    import native_stacks

    count, chance = 0, random.Random(7)

    def allocate():
        global count
        bytearray(100_000 + count)
        count += 1

    def plainly(n):
        call_randomly(n)

    def by_callback(n):
        native_stacks.call_back(lambda: call_randomly(n))

    def by_sorting(n):
        sorted([n], key=call_randomly)

    def by_generator(n):
        for _ in (call_randomly(n) for _ in [0]):
            pass

    def call_randomly(n):
        allocate()
        while n and count < 1000:
            chance.choice([plainly, plainly, by_callback, by_sorting, by_generator])(n - 1)
            if chance.random() < 0.7:
                break
        allocate()

    while count < 1000:
        call_randomly(40)
"""


def python_part(frames: list[Frame]) -> list[tuple[str, int]]:
    """Return the functions and lines of the program itself."""
    return [(frame.function, frame.line) for frame in frames if frame.file.endswith(".py")]


def test_random_call_chains_have_the_same_python_frames_with_native_stacks(
    heaptide_run: Run, extension: Extension
) -> None:
    folder = str(extension("stacks/native_stacks").parent)
    plain = stacks(heaptide_run(RANDOM_CALLS, args=[folder]).capture)
    native = stacks(heaptide_run(RANDOM_CALLS, "--native", args=[folder]).capture)
    known = [size for size in plain if 100_000 < size < 102_000]
    assert len(known) > 500
    for size in known:
        frames = [frame for frame in native[size] if "native_stacks." in frame.file or frame.file.endswith(".py")]
        assert python_part(frames) == python_part(plain[size])
        called = [frame.function for frame in frames]
        for at, function in enumerate(called[:-2]):
            if function == "by_callback" and called[at + 1] != "by_callback":
                assert called[at + 1 : at + 4] == ["call_back", "call_it", "<lambda>"]


@pytest.mark.once
def test_function_of_pandas_is_named_below_its_python_and_stripped_callers(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="no pandas: install it to run this test")
    # The values descend, so pandas keeps a whole window of them in a deque, which allocates 512 bytes for each 64.
    (tmp_path / "job.py").write_text(
        "import heaptide, numpy, pandas\n"
        "def largest():\n"
        "    return pandas.Series(numpy.arange(100_000, 0, -1)).rolling(50_000).max()\n"
        "with heaptide.Tracker('job.tide', native=True):\n"
        "    largest()\n"
    )
    python("job.py", cwd=tmp_path)
    capture = tmp_path / "job.tide"
    # Wheels of pandas are stripped: only exported functions have names, such as those of C++ templates.
    name = "std::deque<long, std::allocator<long> >::_M_push_back_aux<long const&>"
    [trace] = [trace for trace in traces(capture) if name in [frame.function for frame in trace.frames]]
    assert trace.n_allocations >= 100_000 // 64
    functions_of = {
        part: [frame.function for frame in trace.frames if part in frame.file]
        for part in ("/job.py", "/pandas/core/window/", "/pandas/_libs/window/aggregations.")
    }
    script, core, library = functions_of.values()
    assert script == ["<module>", "largest"]
    assert core[0] == "max"
    assert library[-1] == name and len(library) > 1
    assert all(function.startswith("aggregations.") and "+0x" in function for function in library[:-1])
    # The three parts follow each other.
    parts = [part for frame in trace.frames for part in functions_of if part in frame.file]
    assert parts == sorted(parts, key=list(functions_of).index)
    assert lost(capture) == []


@pytest.mark.once
def test_functions_of_a_rust_extension_are_named_in_call_order_below_their_python_caller(heaptide_run: Run) -> None:
    pytest.importorskip("rpds", reason="no rpds-py: install it to run this test")
    program = """
        import rpds
        def fill():
            return rpds.HashTrieMap({number: str(number) for number in range(20_000)})
        kept = fill()
    """
    capture = heaptide_run(program, "--native").capture
    below = [
        [frame.function for frame in called_by("fill", trace.frames) if "/rpds/rpds." in frame.file]
        for trace in traces(capture, selection="--leaks")
        if trace.n_allocations == 20_000
    ]
    # `insert_mut` allocates one block for each entry. How types are written depends on the version of Rust.
    inserting = [called for called in below if any(function.endswith("::insert_mut") for function in called)]
    assert inserting, below
    for called in inserting:
        [new] = [at for at, function in enumerate(called) if function.endswith("::__pymethod___new____")]
        [insert] = [at for at, function in enumerate(called) if function.endswith("::insert_mut")]
        assert new < insert
        assert "rpds::HashTrieMapPy" in called[new]
        assert "rpds::map::hash_trie_map::HashTrieMap" in called[insert]
    assert lost(capture) == []


@pytest.mark.once
def test_each_greenlet_has_its_own_native_stack(heaptide_run: Run, extension: Extension, tmp_path: Path) -> None:
    pytest.importorskip("greenlet", reason="no greenlet: install it to run this test")
    program = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import greenlet, native_stacks

        def switching(size):
            for step in range(3):
                other.switch()
                native_stacks.call_back(lambda: native_stacks.recurse(2 + step, size + step))

        def first(): switching(3_000_017)
        def second():
            while True:
                native_stacks.recurse(7, 4_000_037)
                one.switch()

        other, one = greenlet.greenlet(second), greenlet.greenlet(first)
        one.switch()
    """
    capture = heaptide_run(program, "--native", args=[str(extension("stacks/native_stacks").parent)]).capture
    found = stacks(capture)
    inner = ["native_stacks_outer", "middle_function", "leaf_function", "tiny_inlined"]
    for step in range(3):
        expected = [
            "first",
            "switching",
            "call_back",
            "call_it",
            "<lambda>",
            "recurse",
            *["descend"] * (2 + step),
            *inner,
        ]
        assert names(found[3_000_017 + step], tmp_path)[-len(expected) :] == expected
    rows = csv.DictReader(heaptide("transform", "csv", "--total", "-o", "-", capture).stdout.splitlines())
    [second] = [row["stack_trace"] for row in rows if int(row["size"]) == 3 * 4_000_037]
    assert second.count("descend;") == 7 and "second;" in second and "first;" not in second


@pytest.mark.once
def test_stripped_interpreter_has_the_same_python_frames(extension: Extension, tmp_path: Path) -> None:
    strip = shutil.which("strip")
    if strip is None:
        pytest.skip("no strip: install binutils to run this test")
    home = tmp_path / "python"
    home.mkdir()
    binary = home / "python"
    shutil.copy(Path(sys.executable).resolve(), binary)
    files = [binary]
    shared = sysconfig.get_config_var("INSTSONAME") or ""
    library = Path(sysconfig.get_config_var("LIBDIR") or "") / shared
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and library.is_file():
        files.append(Path(shutil.copy(library, home / shared)))
    for file in files:
        subprocess.run([strip, "--strip-all", file], check=True)
    script = tmp_path / "job.py"
    script.write_text(
        "import sys\nsys.path.insert(0, sys.argv[1])\nimport native_stacks\n"
        "def back(): native_stacks.allocate(3_000_017)\n"
        "def start(): native_stacks.call_back(back)\n"
        "start()\n"
    )
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(home),
        "PYTHONHOME": f"{sys.base_prefix}:{sys.base_exec_prefix}",
        "PYTHONPATH": os.pathsep.join(sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})),
    }
    if subprocess.run([binary, "-c", "import heaptide"], env=environment, capture_output=True).returncode != 0:
        pytest.skip("a copy of this interpreter does not run in another folder")
    folder = extension("stacks/native_stacks").parent
    options = ["run", "-q", "-f", "--native", "-o", "x.tide", script, folder]
    subprocess.run([binary, "-m", "heaptide", *options], env=environment, cwd=tmp_path, check=True)
    stack = stacks(tmp_path / "x.tide")[3_000_017]
    wanted = ["<module>", "start", "call_back", "call_it", "back", "allocate", "native_stacks_outer"]
    assert names(stack, script)[: len(wanted)] == wanted
    # The interpreter's own functions have no names, and none is mistaken for a Python function.
    python_files = {frame.file for frame in stack if frame.file.endswith(".py")}
    assert python_files == {str(script)}


@pytest.mark.once
def test_live_view_shows_native_functions(extension: Extension, tmp_path: Path) -> None:
    terminal = pytest.importorskip("support.terminal_screen", reason="no pyte: install it to run this test")
    script = tmp_path / "job.py"
    script.write_text(
        "import sys\nsys.path.insert(0, sys.argv[1])\nimport native_stacks\n"
        "def hold(): native_stacks.allocate(3_000_017)\n"
        "hold()\nprint('holding', flush=True)\nsys.stdin.readline()\n"
    )
    command = [sys.executable, "-m", "heaptide"]
    with subprocess.Popen(
        [*command, "run", "-q", "--native", "-o", "x.tide", script, extension("stacks/native_stacks").parent],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "holding\n"
        with terminal.TerminalScreen([*command, "live", "x.tide"], cwd=tmp_path, columns=200) as screen:
            screen.wait_for("leaf_function", "hold", "3.00 MB")
            screen.type("q")
            assert screen.finish() == 0
        program.communicate("\n")
    assert program.returncode == 0


@pytest.mark.once
def test_memray_compatible_reader_returns_hybrid_stacks(extension: Extension, tmp_path: Path) -> None:
    folder = str(extension("stacks/native_stacks").parent)
    program = f"""
import sys
sys.path.insert(0, {folder!r})
import native_stacks
from heaptide.compat import memray
def hold():
    native_stacks.allocate(3_000_017)
with memray.Tracker("x.bin", native_traces=True):
    hold()
with memray.FileReader("x.bin") as reader:
    assert reader.metadata.has_native_traces
    [record] = [record for record in reader.get_leaked_allocation_records() if record.size == 3_000_017]
for trace in (record.hybrid_stack_trace(), record.native_stack_trace(), record.stack_trace()):
    print(*[frame[0] for frame in trace])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    inner = ["tiny_inlined", "leaf_function", "middle_function", "native_stacks_outer", "allocate"]
    hybrid, native, plain = [line.split() for line in done.stdout.splitlines()]
    assert hybrid[:5] == native[:5] == inner
    assert [name for name in hybrid if name not in native] == plain == ["hold", "<module>"]
    assert "hold" not in native
    assert functions(tmp_path / "x.bin", selection="--leaks")[3_000_017][::-1] == hybrid
