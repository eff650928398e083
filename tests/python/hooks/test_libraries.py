"""Tests that libraries loaded during a recording are recorded, and that loading them works as without Heaptide."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.commands import PROGRAMS, Finished, compile_library

Run = Callable[..., Finished]
Parse = Callable[[Path], list[str]]


def sizes_of(lines: Sequence[str], allocator: str = "malloc") -> list[int]:
    """Return the sizes of all recorded allocations by this function, in order."""
    ending = f" allocator={allocator}"
    return [int(line.split(" size=")[1].split()[0]) for line in lines if line.endswith(ending)]


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Path]:
    """Compile tests/programs/hooks/<name>.c into a folder; other libraries refer to it by its file name alone."""

    def compile_into(folder: str, name: str, *flags: str) -> Path:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        return compile_library(PROGRAMS / "hooks" / f"{name}.c", tmp_path / folder, [f"-Wl,-soname,{name}.so", *flags])

    return compile_into


def run_plain(program: str, *arguments: Path) -> Any:
    """Return the JSON that a program prints without Heaptide."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_library_loaded_by_ctypes_is_recorded_with_its_dependency(
    build: Callable[..., Path], heaptide_run: Run, parse: Parse
) -> None:
    dependency = build("libraries", "dependency")
    library = build("libraries", "dependent", str(dependency), "-Wl,-rpath,$ORIGIN")
    done = heaptide_run(
        """
        import ctypes, sys
        library = ctypes.CDLL(sys.argv[1])
        library.dependent_allocate(100_003)
        library.allocate_in_dependency(100_019)
        """,
        args=[str(library)],
    )
    sizes = sizes_of(parse(done.capture))
    assert (sizes.count(100_003), sizes.count(100_019)) == (1, 1)


def test_imported_extension_module_is_recorded_with_its_dependency(
    build: Callable[..., Path], heaptide_run: Run, parse: Parse
) -> None:
    dependency = build("libraries", "dependency")
    module = build("libraries", "dependent_module", str(dependency), "-Wl,-rpath,$ORIGIN")
    done = heaptide_run(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        import dependent_module
        dependent_module.allocate(100_043)
        dependent_module.allocate_in_dependency(100_049)
        """,
        args=[str(module.parent)],
    )
    sizes = sizes_of(parse(done.capture))
    assert (sizes.count(100_043), sizes.count(100_049)) == (1, 1)


@pytest.mark.parametrize("tags", ["--disable-new-dtags", "--enable-new-dtags"])
def test_library_finds_its_plugin_through_its_own_run_path(
    build: Callable[..., Path], heaptide_run: Run, parse: Parse, tags: str
) -> None:
    loader = build("loader", "plugin_loader", f"-Wl,{tags}", "-Wl,-rpath,$ORIGIN/plugins")
    build("loader/plugins", "dependency")
    program = """
import ctypes, json, sys
loader = ctypes.CDLL(sys.argv[1])
loader.load_plugin.restype = ctypes.c_char_p
loader.allocate_in_plugin.restype = ctypes.c_void_p
error = loader.load_plugin(b"dependency.so")
missing = loader.load_plugin(b"no-such-plugin.so")
loader.load_plugin(b"dependency.so")
found = loader.allocate_in_plugin(100_057) is not None
print(json.dumps([error and error.decode(), missing.decode(), found]))
"""
    done = heaptide_run(program, args=[str(loader)])
    answers = json.loads(done.stdout)
    assert answers == run_plain(program, loader)
    assert answers[0] is None
    assert answers[2] is True
    assert sizes_of(parse(done.capture)).count(100_057) == 1


def test_dlsym_resolves_names_for_its_real_caller(build: Callable[..., Path], heaptide_run: Run) -> None:
    dependency = build("libraries", "dependency")
    library = build("libraries", "dependent", str(dependency), "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed")
    program = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
for name in ("find_with_rtld_next", "find_with_rtld_default", "error_for"):
    getattr(library, name).restype = ctypes.c_char_p
answers = [library.find_with_rtld_next(), library.find_with_rtld_default(), library.error_for(b"no_such_function")]
print(json.dumps([answer.decode() for answer in answers]))
"""
    answers = json.loads(heaptide_run(program, args=[str(library)]).stdout)
    assert answers == run_plain(program, library)
    assert answers[:2] == ["dependency", "dependent"]


def test_library_is_recorded_when_it_is_closed_and_loaded_again(
    build: Callable[..., Path], heaptide_run: Run, parse: Parse
) -> None:
    # Two libraries alternate at the same addresses.
    first, second = build("one", "dependency"), build("two", "dependency", "-DANOTHER")
    done = heaptide_run(
        """
        import _ctypes, ctypes, sys
        addresses = set()
        for round in range(40):
            library = ctypes.CDLL(sys.argv[1 + round % 2])
            library.dependency_allocate(200_000 + round)
            addresses.add(ctypes.cast(library.dependency_allocate, ctypes.c_void_p).value)
            _ctypes.dlclose(library._handle)
        print(len(addresses))
        """,
        args=[str(first), str(second)],
    )
    assert int(done.stdout) < 40
    sizes = [size for size in sizes_of(parse(done.capture)) if 200_000 <= size < 200_040]
    assert sizes == list(range(200_000, 200_040))


@pytest.mark.parametrize("bind_now", ["", "1"])
@pytest.mark.parametrize("binding", ["lazy", "now"])
def test_calls_are_recorded_whether_import_slots_are_bound_lazily_or_at_load(
    build: Callable[..., Path], heaptide_run: Run, parse: Parse, binding: str, bind_now: str
) -> None:
    # The library is loaded before the recording starts, and none of its slots has been used.
    library = build("libraries", "import_slots", f"-Wl,-z,{binding}", "-Wl,-z,relro")
    program = """
import ctypes, sys, heaptide
library = ctypes.PyDLL(sys.argv[1])
library.allocate.restype, library.release.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
def protections():
    return [line.split()[:2] for line in open("/proc/self/maps") if "import_slots" in line]
before = protections()
with heaptide.Tracker(sys.argv[2]):
    first = library.allocate(100_069)
    library.release(first)
    second = library.allocate(100_103)
print(before == protections())
library.release(second)
library.release(library.allocate(100_109))
"""
    capture = library.parent / "capture.tide"
    command = [sys.executable, "-c", program, str(library), str(capture)]
    environment = {"LD_BIND_NOW": bind_now} if bind_now else {}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "True\n", "the protection of the pages with the library's slots has changed"
    lines = parse(capture)
    sizes = sizes_of(lines)
    assert (sizes.count(100_069), sizes.count(100_103), sizes.count(100_109)) == (1, 1, 0)
    first = next(line.split(" address=")[1].split()[0] for line in lines if " size=100069 " in line)
    assert any(line.startswith("FREE ") and line.endswith(f"address={first}") for line in lines)


@pytest.mark.parametrize("flags", [[], ["-DVISIBLE", "-Wl,-Bsymbolic"]])
def test_library_with_its_own_malloc_keeps_calling_it(
    build: Callable[..., Path], heaptide_run: Run, parse: Parse, flags: list[str]
) -> None:
    library = build("libraries", "own_malloc", *flags)
    done = heaptide_run(
        """
        import ctypes, sys
        library = ctypes.CDLL(sys.argv[1])
        print([library.takes_from_its_pool(30_011) for _ in range(3)])
        """,
        args=[str(library)],
    )
    assert done.stdout == "[1, 1, 1]\n"
    assert 30_011 not in sizes_of(parse(done.capture))


def test_library_bound_to_its_dependencys_malloc_keeps_calling_it(
    build: Callable[..., Path], heaptide_run: Run, parse: Parse
) -> None:
    dependency = build("libraries", "own_malloc", "-DVISIBLE", "-Wl,-Bsymbolic")
    links = ["-Wl,--no-as-needed", str(dependency), "-Wl,-rpath,$ORIGIN", "-Wl,-z,now"]
    library = build("libraries", "calls_malloc", *links)
    done = heaptide_run(
        """
        import ctypes, os, sys
        library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_DEEPBIND | os.RTLD_LAZY)
        library.allocate.restype = ctypes.c_void_p
        block = library.allocate(30_029)
        print(library.is_of_pool(ctypes.c_void_p(block)))
        library.release_last()
        """,
        args=[str(library)],
    )
    assert done.stdout == "1\n"
    assert 30_029 not in sizes_of(parse(done.capture))


LOADING = """
import ctypes, sys, threading
paths, n_threads = sys.argv[2:], int(sys.argv[1])
libraries = {}
def load(first):
    for n in range(first, len(paths), n_threads):
        libraries[n] = ctypes.CDLL(paths[n])
        libraries[n].allocate(300_000 + n)
threads = [threading.Thread(target=load, args=[first]) for first in range(n_threads)]
for thread in threads: thread.start()
"""


@pytest.fixture
def slow_libraries(build: Callable[..., Path]) -> list[str]:
    """Thirty libraries with so many import slots that the linker takes long to load each."""
    library = build("libraries", "slow_to_load", "-Wl,-z,now", "-Wl,-z,relro")
    return [str(shutil.copy(library, library.with_name(f"slow-{n}.so"))) for n in range(30)]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_library_is_hooked_only_after_the_linker_has_finished_loading_it(
    slow_libraries: list[str], heaptide_run: Run, parse: Parse, n_threads: int
) -> None:
    done = heaptide_run(LOADING, "--interval", "1", args=[str(n_threads), *slow_libraries], check=False)
    assert done.returncode == 0
    sizes = [size for size in sizes_of(parse(done.capture)) if 300_000 <= size < 300_030]
    assert sorted(sizes) == list(range(300_000, 300_030))


def test_libraries_loaded_while_recordings_start_and_stop_are_recorded_by_the_next(
    slow_libraries: list[str], tmp_path: Path, parse: Parse
) -> None:
    program = (
        LOADING
        + """
import heaptide
while any(thread.is_alive() for thread in threads):
    with heaptide.Tracker("capture.tide", overwrite=True):
        pass
for n in range(len(paths)):
    libraries[n].allocate(400_000 + n)
with heaptide.Tracker("next.tide"):
    for n in range(len(paths)):
        libraries[n].allocate(500_000 + n)
for n in range(len(paths)):
    libraries[n].allocate(600_000 + n)
"""
    )
    command = [sys.executable, "-c", program, "2", *slow_libraries]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    sizes = [size for size in sizes_of(parse(tmp_path / "next.tide")) if 300_000 <= size < 600_030]
    assert sizes == list(range(500_000, 500_030))
