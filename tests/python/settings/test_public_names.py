"""Tests that every import path users rely on exists: public modules, their names, and names in the documents."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.commands import REPOSITORY

OBJGRAPH = """at at_addrs by_type count find_backref_chain find_ref_chain get_leaking_objects get_new_ids growth
    is_proper_module most_common_types show_backrefs show_chain show_growth show_most_common_types show_refs typestats"""

PUBLIC = {
    "heaptide": """HeapCensus HeapSnapshot HeapTaken RecordingError Tracker __version__ active asgi component control heap
        heap_census heap_snapshot hpy job label leaks load_ipython_extension memory_usage memray_profiling objects on_pressure profile
        profile_memory reports set_mode wsgi""",
    "heaptide.asgi": "App app mount",
    "heaptide.wsgi": "App app mount",
    "heaptide.control": """BASE Control DEFAULT_KEEP_BYTES DEFAULT_KEEP_SESSIONS DEFAULT_REQUESTS_PER_SECOND start
        start_as_set token_as_set""",
    "heaptide.jobs": "OUTCOMES Job current job",
    "heaptide.labels": "current label",
    "heaptide.leaks": "Frame GrownType Job JobTracer Rest Site around clear_caches",
    "heaptide.objects": OBJGRAPH,
    "heaptide.reports": "Report Sink set_sink to_file",
    "heaptide.settings": "ALL Setting Settings load",
    "heaptide.notebook": "load_ipython_extension",
    "heaptide.compat.guppy": "Root __version__ heapy hpy sets",
    "heaptide.compat.guppy.sets": """BitSet ImmBitSet ImmNodeSet MutBitSet MutNodeSet NodeSet immbit immbitrange immbitset
        immnodeset immnodeset_union mutbitset mutnodeset mutnodeset_union""",
    "heaptide.compat.memory_profiler": """CodeMap LineProfiler LogFile MemTimer MemitResult MemoryProfilerMagics
        TimeStamper _get_child_memory _get_memory choose_backend exec_with_profiler has_tracemalloc install
        load_ipython_extension memory_usage profile run_module_with_profiler show_results""",
    "heaptide.compat.mprof": """ALL_ACTIONS attach_action clean_action filter_mprofile_mem_usage_by_function
        find_first_process function_labels get_action get_cmd_line get_profile_filenames get_profiles help_msg list_action
        main peak_action plot_action print_usage read_mprofile_file rm_action run_action""",
    "heaptide.compat.memray": """AllocationRecord AllocatorType Destination FileDestination FileFormat FileReader
        MemorySnapshot Metadata SocketDestination SocketReader Tracker __version__ dump_all_records
        load_ipython_extension set_log_level start_thread_trace""",
    "heaptide.compat.objgraph": OBJGRAPH,
}

# Dotted words in the documents that are not Python names: files and JSON keys; and a class that needs MRQ.
OTHER_WORDS = {"heaptide.cfg", "heaptide.toml", "heaptide.pth", "heaptide.findings", "heaptide.profiling"}
OTHER_WORDS.add("heaptide.platforms.mrq.Worker")
MADE_BY_THE_EXAMPLE = "heaptide._attached"


def resolve(dotted: str) -> Any:
    """Return the object at a dotted path, importing submodules as needed."""
    value: Any = importlib.import_module("heaptide")
    path = "heaptide"
    for part in dotted.split(".")[1:]:
        path += f".{part}"
        if not hasattr(value, part) and isinstance(value, ModuleType):
            importlib.import_module(path)
        value = getattr(value, part)
    return value


def documented_names() -> list[str]:
    """Return the dotted names in the README and the docs that start with the name of the package."""
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    words = re.findall(r"\bheaptide(?:\.[A-Za-z_]\w*)+", "\n".join(page.read_text("utf-8") for page in pages))
    return sorted({word for word in words if word not in OTHER_WORDS and not word.startswith(MADE_BY_THE_EXAMPLE)})


@pytest.fixture(autouse=True)
def private_runtime_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use a private folder for the sockets of applications that are created on demand."""
    monkeypatch.setenv("HEAPTIDE_RUNTIME_DIR", str(tmp_path))
    # The mounted applications set these variables in this process, and programs of later tests would inherit them.
    monkeypatch.setenv("HEAPTIDE_RUN", "public-names")
    monkeypatch.setenv("HEAPTIDE_RUN_FOLDER", str(tmp_path / "sessions" / "public-names"))


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_can_be_imported(module: str) -> None:
    loaded = importlib.import_module(module)
    for name in PUBLIC[module].split():
        assert getattr(loaded, name) is not None, f"{module}.{name}"
    assert set(getattr(loaded, "__all__", [])) <= set(PUBLIC[module].split())


@pytest.mark.parametrize("name", documented_names())
def test_names_in_the_documents_exist(name: str) -> None:
    resolve(name)


def test_no_submodule_hides_a_public_function() -> None:
    package = importlib.import_module("heaptide")
    for name in package.__all__:
        is_submodule = importlib.util.find_spec(f"heaptide.{name}") is not None
        assert is_submodule == isinstance(getattr(package, name), ModuleType), name


def test_public_names_are_available_after_importing_only_the_package() -> None:
    code = "import heaptide, json; print(json.dumps([n for n in heaptide.__all__ if not hasattr(heaptide, n)]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize(
    "module", ["heaptide", "heaptide.compat.memray", "heaptide.compat.memory_profiler", "heaptide.compat.mprof run"]
)
def test_documented_commands_print_help(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", *module.split(), "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout.lower()


def test_names_load_while_another_thread_imports_the_native_module() -> None:
    program = """
import sys, types, heaptide
sys.modules["heaptide._native"] = types.ModuleType("heaptide._native")  # as it is before its functions are added
print(heaptide.label.__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("label\n", "")
