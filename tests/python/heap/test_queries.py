"""Tests the queries on heap snapshots of real programs, from the command line and from Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

# The number of objects in each leak. Each object keeps 3,000 bytes alive.
N_LEAKED = 300

PROGRAM = """
import functools, gc, sys
import heaptide

N = {n}

class Order:
    def __init__(self, number):
        self.number = number
        self.text = bytearray(3000)

class Node(Order):
    def __del__(self):
        pass

cache, callbacks, errors = {{}}, [], []

@functools.lru_cache(maxsize=None)
def fetch(number):
    return Order(number)

def handler(number):
    order = Order(number)
    return lambda: order

def fail(number):
    order = Order(number)
    raise ValueError(number)

def keep_in_cache(number):
    cache[number] = Order(number)

def keep_in_closure(number):
    callbacks.append(handler(number))

def keep_in_traceback(number):
    try:
        fail(number)
    except ValueError as error:
        errors.append(error)

def keep_in_lru_cache(number):
    fetch(number)

def keep_in_cycle(number):
    one, other = Node(number), Node(number)
    one.peer, other.peer = other, one

# A collection would free the cycles.
gc.disable()
for number in range(N):
    globals()[sys.argv[1]](number)
heaptide.heap_snapshot(sys.argv[2])
"""

SHAPES = {
    "keep_in_cache": ("container", "sys.modules['__main__'].__dict__['cache']"),
    "keep_in_closure": ("closure", "sys.modules['__main__'].__dict__['callbacks']"),
    "keep_in_traceback": ("traceback", "sys.modules['__main__'].__dict__['errors']"),
    "keep_in_lru_cache": ("lru_cache", "sys.modules['__main__'].__dict__['fetch']"),
    "keep_in_cycle": ("cycle", ""),
}


def snapshot(folder: Path, leak_kind: str) -> Path:
    """Run the program with one type of leak, and return its snapshot."""
    program = folder / "job.py"
    program.write_text(PROGRAM.format(n=N_LEAKED))
    path = folder / f"{leak_kind}.heap"
    subprocess.run([sys.executable, program, leak_kind, path], check=True)
    return path


def heap(*words: object) -> str:
    """Run `heaptide heap` and return its output."""
    command = [sys.executable, "-m", "heaptide", "heap", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of the program that leaks into its cache."""
    return snapshot(tmp_path_factory.mktemp("cached"), "keep_in_cache")


@pytest.mark.parametrize("leak_kind", SHAPES)
def test_leak_is_the_first_suspect_with_its_shape_and_holder(tmp_path: Path, leak_kind: str) -> None:
    shape, holder = SHAPES[leak_kind]
    found = json.loads(heap("suspects", "--json", snapshot(tmp_path, leak_kind)))
    first = found["suspects"][0]
    assert first["shape"] == shape
    assert first["holder"].startswith(holder)
    assert first["bytes"] > N_LEAKED * 3000
    assert first["piles"][0]["count"] >= N_LEAKED


def test_counts_paths_and_retained_sizes_match_the_program(cached: Path) -> None:
    census = json.loads(heap("types", "--json", "-n", "0", cached))
    row = {row["label"]: row for row in census["rows"]}["__main__.Order"]
    assert row["count"] == N_LEAKED
    assert row["retained_bytes"] > N_LEAKED * 3000
    paths = json.loads(heap("paths", "--json", "-n", "0", "--kind", "__main__.Order", cached))
    texts = {path["text"] for path in paths["paths"]}
    assert {f"sys.modules['__main__'].__dict__['cache'][{number}]" for number in range(N_LEAKED)} <= texts


def test_export_agrees_with_the_snapshot(cached: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.heapsnapshot"
    heap("export", "-o", path, cached)
    made = json.loads(path.read_text())
    fields = len(made["snapshot"]["meta"]["node_fields"])
    nodes = made["nodes"]
    assert len(nodes) == fields * made["snapshot"]["node_count"]
    assert len(made["edges"]) == 3 * made["snapshot"]["edge_count"]
    census = json.loads(heap("types", "--json", cached))
    assert sum(nodes[3::fields]) == census["bytes"]
    names = [made["strings"][name] for name in nodes[1::fields]]
    assert names.count("__main__.Order") == N_LEAKED


def test_page_and_graph_are_written_from_a_real_heap(cached: Path, tmp_path: Path) -> None:
    page, picture = tmp_path / "page.html", tmp_path / "orders.svg"
    heap("explore", "-o", page, cached)
    assert "HEAPTIDE-DATA-GOES-HERE" not in page.read_text()
    heap("graph", "--kind", "__main__.Order", "-o", picture, cached)
    assert "__main__.Order" in picture.read_text()


def test_view_in_python_agrees_with_the_command_line(cached: Path) -> None:
    from heaptide._native import HeapView

    view = HeapView.open(cached)
    orders = view.of_kind("__main__.Order")
    assert len(orders) == N_LEAKED
    assert orders.is_subset(view.all())
    kinds = view.all().partition("kind")
    assert kinds.table(0, 10) == heap("show", cached).replace(": -n 0 shows all.>", ". Type e.g. '_.more' to view.>")
    assert sum(count for count, _, _ in kinds.rows()) == len(view)
    labels = [label for _, _, label in kinds.rows()]
    assert kinds.members(labels.index("__main__.Order")) == orders
    assert len(orders | orders.referrers()) == len(orders) + len(orders.referrers())
    assert len(orders - orders) == 0
    assert orders.dominated().bytes > N_LEAKED * 3000
    n_paths, paths = orders.paths(limit=1)
    assert n_paths >= N_LEAKED
    assert len(paths) == 1
    assert "[-]" in orders.pattern_text()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Snapshots of the program taken while its objects were recorded, by type of leak."""
    made = {}
    for leak_kind in SHAPES:
        folder = tmp_path_factory.mktemp(leak_kind)
        program = folder / "job.py"
        program.write_text(PROGRAM.format(n=N_LEAKED))
        made[leak_kind] = folder / f"{leak_kind}.heap"
        command = [sys.executable, "-m", "heaptide", "run", "--objects", "-o", folder / "job.tide", program]
        subprocess.run([*command, leak_kind, made[leak_kind]], check=True, capture_output=True)
    return made


def line_of(site: dict[str, object], program: Path) -> str:
    """Return the source line of an allocation site in the program."""
    assert site["file"] == str(program)
    return program.read_text().splitlines()[int(str(site["line"])) - 1].strip()


@pytest.mark.parametrize("leak_kind", SHAPES)
def test_leak_during_a_recording_is_the_first_suspect_with_holder_and_line(
    recorded: dict[str, Path], leak_kind: str
) -> None:
    shape, holder = SHAPES[leak_kind]
    path = recorded[leak_kind]
    first = json.loads(heap("suspects", "--json", path))["suspects"][0]
    assert first["shape"] == shape
    assert first["holder"].startswith(holder)
    assert line_of(first["sites"][0], path.with_name("job.py")) == "self.text = bytearray(3000)"


def test_queries_find_the_recording_of_the_snapshot(recorded: dict[str, Path]) -> None:
    path = recorded["keep_in_closure"]
    program = path.with_name("job.py")
    allocated = "self.text = bytearray(3000)"
    rows = json.loads(heap("types", "--json", "-n", "0", path))["rows"]
    row = next(row for row in rows if row["label"] == "bytearray")
    assert line_of(row["site"], program) == allocated
    assert 0 < row["site"]["count"] <= row["count"]
    assert " ".join(heap("types", "-n", "0", path).split()).count("% of the objects)") >= 1
    assert f"{program}:" in heap("show", "--by", "producer", "--kind", "bytearray", path)
    found = json.loads(heap("paths", "--json", "-n", "1", "--kind", "bytearray", path))
    calls = found["paths"][0]["objects"][-1]["allocated_at"]
    assert line_of(calls[-1], program) == allocated
    assert [call["function"] for call in calls[-4:-1]] == ["<module>", "keep_in_closure", "handler"]


def test_types_name_no_line_if_most_objects_have_none(tmp_path: Path) -> None:
    # Without --objects, only the long strings have a line.
    program = tmp_path / "job.py"
    program.write_text(
        "import heaptide\n"
        "short = [str(number) for number in range(20_000)]\n"
        "long = [str(number) * 500 for number in range(20)]\n"
        "heaptide.heap_snapshot('job.heap')\n"
    )
    command = [sys.executable, "-m", "heaptide", "run", "-q", "-o", "job.tide", program]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    rows = json.loads(heap("types", "--json", "-n", "0", tmp_path / "job.heap"))["rows"]
    row = next(row for row in rows if row["label"] == "str")
    assert row["count"] > 20_000
    assert "site" not in row
    assert "str <- " not in heap("types", "-n", "0", tmp_path / "job.heap")


def test_view_in_python_has_allocation_sites(recorded: dict[str, Path]) -> None:
    from heaptide._native import HeapView

    path = recorded["keep_in_cache"]
    view = HeapView.open(path)
    assert view.has_sites
    assert view.recording == str(path.with_name("job.tide"))
    buffers = view.of_kind("bytearray")
    lines = {calls[-1][2] for calls in buffers.sites() if calls}
    texts = path.with_name("job.py").read_text().splitlines()
    assert "self.text = bytearray(3000)" in {texts[line - 1].strip() for line in lines}


def test_recording_is_found_next_to_the_snapshot_or_by_option_or_reported_missing(
    recorded: dict[str, Path], tmp_path: Path
) -> None:
    original = recorded["keep_in_cache"]
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    capture = folder / "job.tide"
    capture.write_bytes(original.with_name("job.tide").read_bytes())
    moved = folder / "job.heap"
    moved.write_bytes(original.read_bytes())
    original.with_name("job.tide").rename(tmp_path / "put-away.tide")
    try:
        adjacent = json.loads(heap("suspects", "--json", moved))["suspects"][0]
        assert adjacent["sites"]
        # A capture under another name is cut at the time of the snapshot instead of its event number.
        renamed = capture.rename(tmp_path / "renamed.tide")
        named = json.loads(heap("suspects", "--json", "--recording", renamed, moved))["suspects"][0]
        assert named["sites"][0] == adjacent["sites"][0]
        command = [sys.executable, "-m", "heaptide", "heap", "suspects", "--json", moved]
        missed = subprocess.run(command, check=True, capture_output=True, text=True)
        assert not json.loads(missed.stdout)["suspects"][0]["sites"]
        assert [line for line in missed.stderr.splitlines() if "is missing" in line and "--recording" in line]
        assert len(missed.stderr.splitlines()) == 1
    finally:
        (tmp_path / "put-away.tide").rename(original.with_name("job.tide"))
